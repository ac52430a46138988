"""Plain data as JSON, between the process of a program and the process of its tests.

None, booleans, strings, lists and small integers are themselves; everything else is an object with one key, its kind.
Decoding builds values of exact built-in types and runs no code of the sender: there is no eval and no pickle.
"""

import collections
import datetime
import decimal
import fractions
import json

# Nesting of containers. serde_json's limit is 128, and a container takes two levels.
MAX_DEPTH = 50
# Items that are taken from an iterator.
MAX_ITEMS = 10_000
# Integers up to here are JSON numbers in every reader.
MAX_NUMBER = 2**53
# Modules whose iterators are read out. Iterators of a program's own classes stay objects.
ITERATORS = ("builtins", "itertools")

DICT_VIEWS = {
    "keys": (type({}.keys()), lambda items: dict.fromkeys(items).keys()),
    "items": (type({}.items()), lambda items: dict(items).items()),
    "values": (type({}.values()), lambda items: dict(enumerate(items)).values()),
}
CONTAINERS = {
    "tuple": (tuple, tuple),
    "deque": (collections.deque, collections.deque),
    "iterator": (None, iter),
    **DICT_VIEWS,
}
SETS = {"set": set, "frozenset": frozenset}
# Kinds that are written as text: type, text of a value, value of a text.
TEXTS = {
    "float": (float, float.hex, float.fromhex),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "decimal": (decimal.Decimal, decimal.Decimal.__str__, decimal.Decimal),
    "fraction": (fractions.Fraction, fractions.Fraction.__str__, fractions.Fraction),
    "datetime": (datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}


class NotPlain(Exception):
    """Something that isn't plain data."""


class Endless(Exception):
    """An iterator with more items than are taken."""


def to_text(data):
    """Returns the one JSON text of encoded data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def encode(value, other, depth=MAX_DEPTH):
    """Returns `value` as JSON data. Instances of subclasses lose their class. `other` encodes what isn't plain data, or
    raises NotPlain."""
    if depth == 0:
        raise NotPlain("data that is nested too deeply")

    def items(values):
        return [encode(item, other, depth - 1) for item in values]

    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int.__index__(value)
        return number if -MAX_NUMBER <= number <= MAX_NUMBER else {"int": hex(number)}
    if isinstance(value, list):
        return items(list.__iter__(value))
    if isinstance(value, dict):
        return {"dict": [items(pair) for pair in dict.items(value)]}
    if isinstance(value, (set, frozenset)):
        kind = "frozenset" if isinstance(value, frozenset) else "set"
        return {kind: sorted(items(value), key=to_text)}
    if isinstance(value, complex):
        return {"complex": [float.hex(value.real), float.hex(value.imag)]}
    if isinstance(value, range):
        return {"range": items([value.start, value.stop, value.step])}
    if isinstance(value, datetime.timedelta):
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    for kind, (type_, write, _) in TEXTS.items():
        if isinstance(value, type_):
            return {kind: write(value)}
    for kind, (type_, _) in CONTAINERS.items():
        if type_ is not None and isinstance(value, type_):
            return {kind: items(value)}
    if hasattr(type(value), "__next__") and type(value).__module__ in ITERATORS:
        return {"iterator": items(take(value))}
    return other(value)


def take(iterator):
    """Returns the items of an iterator. Raises Endless."""
    items = []
    for item in iterator:
        if len(items) == MAX_ITEMS:
            raise Endless(f"the iterator has more than {MAX_ITEMS} items")
        items.append(item)
    return items


def decode(data, other):
    """Returns the value of encoded data. `other` decodes kinds that aren't plain data, or raises NotPlain. Any error
    means that the data is invalid."""
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if isinstance(data, list):
        return [decode(item, other) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise NotPlain("invalid data")
    ((kind, body),) = data.items()
    if kind == "int":
        return int(body, 16)
    if kind == "dict":
        return {decode(key, other): decode(value, other) for key, value in body}
    if kind in SETS:
        return SETS[kind](decode(item, other) for item in body)
    if kind == "complex":
        return complex(*(float.fromhex(part) for part in body))
    if kind == "range":
        return range(*decode(body, other))
    if kind == "timedelta":
        return datetime.timedelta(*decode(body, other))
    if kind in TEXTS:
        return TEXTS[kind][2](body)
    if kind in CONTAINERS:
        return CONTAINERS[kind][1](decode(body, other))
    return other(kind, body)
