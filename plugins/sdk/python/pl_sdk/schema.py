"""Descriptions of settings (JSON Schema) and facts (a list) for the host, made from dataclasses."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any

from . import codec

#: Marks a setting without a default.
_NONE: Any = dataclasses.MISSING


def setting(
    default: Any = _NONE,
    doc: str = "",
    *,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A field of a settings dataclass: its default, a sentence for users, and its inclusive bounds.

    A list or dict as default is copied for each instance.
    """
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=default.copy, metadata=metadata, kw_only=True)
    # Keyword-only: a setting without a default may follow one with a default.
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


def fact(doc: str) -> Any:
    """A field of a facts dataclass, with a sentence for users."""
    return dataclasses.field(metadata={"doc": doc})


@dataclass
class NoSettings:
    """Settings of an item without settings: any setting is an error."""


def settings_schema(kind: type) -> dict[str, Any]:
    """Returns the JSON Schema of a settings dataclass. It rejects unknown keys."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_schema(kind)}
    if not kind.__doc__ or kind.__doc__.startswith(f"{kind.__name__}("):
        schema.pop("description", None)
    return schema


def check_bounds(kind: type, settings: Any) -> None:
    """Raises ValueError for a value outside its bounds."""
    for field in dataclasses.fields(kind):
        value = getattr(settings, field.name)
        low, high = field.metadata.get("minimum"), field.metadata.get("maximum")
        if value is None or (low is None and high is None):
            continue
        if (low is not None and value < low) or (high is not None and value > high):
            allowed = f"at least {low}" if high is None else f"at most {high}" if low is None else f"{low} to {high}"
            raise ValueError(f"{field.name}: {value} is out of range, expected {allowed}")


def fact_list(kind: type) -> list[tuple[str, str, str]]:
    """Returns name, kind (`boolean`, `number`, `text`) and doc of each fact."""
    kinds = {bool: "boolean", int: "number", float: "number", str: "text"}
    hints = typing.get_type_hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        if hints[field.name] not in kinds:
            raise TypeError(f"fact `{field.name}` of {kind.__name__}: facts are bool, int, float or str")
        found.append((field.name, kinds[hints[field.name]], field.metadata.get("doc", "")))
    return found


def _schema(kind: Any) -> dict[str, Any]:
    plain = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    if kind is Any:
        return {}
    if kind in plain:
        return {"type": plain[kind]}
    if dataclasses.is_dataclass(kind):
        return _object_schema(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        options = [_schema(option) for option in arguments]
        if all(list(option) == ["type"] for option in options):
            return {"type": [option["type"] for option in options]}
        return {"anyOf": options}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    raise TypeError(f"settings have no values of type {kind!r}")


def _object_schema(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties, required = {}, []
    for field in dataclasses.fields(kind):
        schema = _schema(hints[field.name])
        if field.metadata.get("doc"):
            schema["description"] = field.metadata["doc"]
        for bound in ("minimum", "maximum"):
            if field.metadata.get(bound) is not None:
                schema[bound] = field.metadata[bound]
        if field.default is not dataclasses.MISSING:
            schema["default"] = codec.plain(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            schema["default"] = codec.plain(field.default_factory())
        else:
            required.append(field.name)
        properties[field.name] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return schema
