"""Check of the values that items return, against the annotations of the SDK's own types.

The component's bindings would trap on a value of another type, without a word about the item.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from . import values
from .errors import Refusal


_UNICODE = "text without half of a surrogate pair"


class _Mismatch(Exception):
    """The path of a part of another type, that part, and the name of the expected type."""

    def __init__(self, path: str, part: Any, expected: str) -> None:
        super().__init__()
        self.path, self.part, self.expected = path, part, expected


def converted(what: str, value: Any, kind: Any) -> Any:
    """Returns `value`, which `what` returned, with its parts converted to their types. Raises a Refusal about another type."""
    try:
        return _converted(value, kind, "")
    except _Mismatch as found:
        whole = f"{_article(type(value).__name__)} whose `{found.path}` is " if found.path else ""
        problem = f"{whole}{_shown(found.part)}, expected {found.expected}"
    raise Refusal(f"{what} returned {problem}")


def _converted(value: Any, kind: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        found = []
        for option in arguments:
            try:
                return _converted(value, option, path)
            except _Mismatch as mismatch:
                found.append(mismatch)
        # A part of an option that fits by itself says more than the list of all options, and so does its content.
        inner = [one for one in found if one.path != path or one.expected == _UNICODE]
        raise inner[0] if inner else _Mismatch(path, value, _name(kind))
    if kind is Any:
        return value
    fits, convert = _CONVERSIONS.get(origin or kind, (lambda value: isinstance(value, origin or kind), None))
    if not fits(value):
        raise _Mismatch(path, value, _name(kind))
    if kind is str and not is_unicode(value):
        raise _Mismatch(path, value, _UNICODE)
    if origin in (list, Sequence):
        return [_converted(item, arguments[0], f"{path}[{at}]") for at, item in enumerate(value)]
    if dataclasses.is_dataclass(kind) and kind.__module__ == values.__name__:
        made = copy.copy(value)
        for name, of in _hints(kind).items():
            given = getattr(value, name)
            part = _converted(given, of, f"{path}.{name}" if path else name)
            if part is not given:
                # Also where a subclass is frozen.
                object.__setattr__(made, name, part)
        return made
    return convert(value) if convert else value


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


#: What passes as these types, and the conversion. As a truth value, "no" and a function that was not called are mistakes.
_CONVERSIONS = {
    bool: (lambda value: not isinstance(value, (str, bytes)) and not callable(value), bool),
    float: (lambda value: hasattr(value, "__float__"), float),
    bytes: (lambda value: isinstance(value, (bytes, bytearray, memoryview)), bytes),
    list: (_is_list, None),
    Sequence: (_is_list, None),
}


def is_unicode(text: str) -> bool:
    """Returns False if `text` contains half of a surrogate pair, which UTF-8 can't represent."""
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _name(kind: Any) -> str:
    options = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    plain = (option.__name__ if isinstance(option, type) and not typing.get_args(option) else str(option) for option in options)
    names = (name.replace("NoneType", "None").replace(f"{values.__name__}.", "").replace("typing.", "") for name in plain)
    return " or ".join(names)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str)):
        return f"{ascii(value)[:60]} ({type(value).__name__})"
    return _article(type(value).__name__)
