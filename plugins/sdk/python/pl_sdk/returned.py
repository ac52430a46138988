"""Check of the values that items return, against the annotations of the SDK's own types.

The component's bindings would trap on a value of another type, without a word about the item.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import types
import typing
from collections.abc import Sequence
from typing import Any

from . import values


def mismatch(value: Any, kind: Any) -> str | None:
    """Describes the first part of `value` that is not of its type. Returns None if all of them are."""
    found = _find(value, kind, "")
    if found is None:
        return None
    path, part, expected = found
    whole = f"{_article(type(value).__name__)} whose `{path}` is " if path else ""
    return f"{whole}{_shown(part)}, expected {expected}"


def _find(value: Any, kind: Any, path: str) -> tuple[str, Any, str] | None:
    """Returns the path of the first part of another type, that part, and the name of the expected type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        found = [_find(value, option, path) for option in arguments]
        # A part of an option that fits by itself says more than the list of all options.
        inner = [one for one in found if one is not None and one[0] != path]
        return None if None in found else inner[0] if inner else (path, value, _name(kind))
    if not _fits(value, origin or kind):
        return path, value, _name(kind)
    if kind is str and not is_unicode(value):
        return path, value, "text without half of a surrogate pair"
    if origin in (list, Sequence):
        parts = ((item, arguments[0], f"{path}[{at}]") for at, item in enumerate(value))
    elif dataclasses.is_dataclass(kind) and kind.__module__ == values.__name__:
        at = f"{path}." if path else ""
        parts = ((getattr(value, name), of, at + name) for name, of in _hints(kind).items())
    else:
        return None
    return next(filter(None, (_find(*part) for part in parts)), None)


def _fits(value: Any, kind: Any) -> bool:
    if kind is Any:
        return True
    if kind is float:
        return isinstance(value, numbers.Real)
    if kind in (list, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return isinstance(value, kind)


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
    return " or ".join(name.replace("NoneType", "None").replace(f"{values.__name__}.", "") for name in plain)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str)):
        return f"{ascii(value)[:60]} ({type(value).__name__})"
    return _article(type(value).__name__)
