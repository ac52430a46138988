"""Conversion between JSON and annotated Python values.

Dataclasses become objects, their fields in declaration order; tuples become lists. Reading checks every value against
its annotation, so that an invalid state, view or action is reported where it enters.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any


def dump(value: Any) -> str:
    """Returns `value` as JSON. Raises ValueError if it has no JSON form (e.g. NaN, or an object other than a dataclass)."""
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        text.encode()
        return text
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise ValueError(f"a text has half of a surrogate pair, {half}") from None
    except RecursionError as error:
        raise ValueError(str(error)) from None
    except (TypeError, ValueError) as error:
        # The notes, of Python 3.14 and newer, are the path to the value.
        raise ValueError("; ".join([str(error), *getattr(error, "__notes__", [])[:4]])) from None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def plain(value: Any) -> Any:
    """Returns `value` after a round trip through JSON."""
    return json.loads(dump(value))


def parse(text: str | bytes, kind: Any = Any, closed: bool = False) -> Any:
    """Parses `text` as a value of type `kind`. `closed`, for settings: fields that the dataclass does not have
    are errors, and numbers such as 3.0 are integers too.

    Raises ValueError with the path and the reason.
    """
    try:
        return read(json.loads(text), kind, "", closed)
    except RecursionError:
        raise ValueError("the JSON nests too deeply") from None


def read(value: Any, kind: Any, where: str, closed: bool = False) -> Any:
    """Converts `value`, a result of json.loads, to `kind`. `where` is its path, for messages."""
    if kind is Any:
        return value
    if kind is None or kind is type(None):
        return _expect(value, value is None, "null", where)
    if kind is bool:
        return _expect(value, isinstance(value, bool), "true or false", where)
    if kind is int:
        # JSON Schema counts 3.0 as an integer. Elsewhere it stays a float, as in a snapshot of a field `int | float`.
        if closed and isinstance(value, float) and value.is_integer():
            return int(value)
        return _expect(value, isinstance(value, int) and not isinstance(value, bool), "an integer", where)
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_expect(value, number, "a number", where))
    if kind is str:
        return _expect(value, isinstance(value, str), "a string", where)
    if dataclasses.is_dataclass(kind):
        return _read_object(_expect(value, isinstance(value, dict), "an object", where), kind, where, closed)
    return _read_generic(value, kind, where, closed)


def _read_object(value: dict, kind: type, where: str, closed: bool) -> Any:
    hints = _hints(kind)
    known = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            known[field.name] = read(value[field.name], hints[field.name], f"{where}.{field.name}", closed)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{_at(where)}`{field.name}` is missing")
    unknown = [name for name in value if name not in hints]
    if closed and unknown:
        names = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        expected = f"expected one of {names}" if names else "there are no settings"
        raise ValueError(f"{_at(where)}unknown field `{unknown[0]}`, {expected}")
    return kind(**known)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read_generic(value: Any, kind: Any, where: str, closed: bool) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(value, arguments, where, closed)
    if origin is typing.Literal:
        return _expect(value, value in arguments, "one of " + ", ".join(map(repr, arguments)), where)
    if origin is tuple:
        items = _expect(value, isinstance(value, list), "a list", where)
        if len(arguments) == 2 and arguments[1] is ...:
            return tuple(read(item, arguments[0], f"{where}[{at}]", closed) for at, item in enumerate(items))
        _expect(value, len(items) == len(arguments), f"a list of {len(arguments)}", where)
        pairs = enumerate(zip(items, arguments))
        return tuple(read(item, kind, f"{where}[{at}]", closed) for at, (item, kind) in pairs)
    if origin is list or kind is list:
        item_kind = arguments[0] if arguments else Any
        items = _expect(value, isinstance(value, list), "a list", where)
        return [read(item, item_kind, f"{where}[{at}]", closed) for at, item in enumerate(items)]
    if origin is dict or kind is dict:
        item_kind = arguments[1] if arguments else Any
        entries = _expect(value, isinstance(value, dict), "an object", where)
        return {name: read(item, item_kind, f"{where}.{name}", closed) for name, item in entries.items()}
    raise TypeError(f"pl_sdk reads no values of type {kind!r}: use dataclasses, lists, dicts and plain values")


def _read_union(value: Any, kinds: tuple, where: str, closed: bool) -> Any:
    if value is None and type(None) in kinds:
        return None
    refusals = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return read(value, kind, where, closed)
            except ValueError as error:
                refusals.append(str(error))
    raise ValueError(" or ".join(refusals))


def _expect(value: Any, holds: bool, expected: str, where: str) -> Any:
    if not holds:
        shown = json.dumps(value, ensure_ascii=False)
        raise ValueError(f"{_at(where)}expected {expected}, found {shown[:80]}")
    return value


def _at(where: str) -> str:
    return f"{where.removeprefix('.')}: " if where else ""
