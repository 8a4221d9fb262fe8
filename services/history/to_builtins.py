"""Converts states to plain data, for JSON, for display and for differences.

Data are dicts, lists, strings and numbers. Keys are strings in natural order; the parts of a tuple key are joined by
"/"; bytes are in base64. Most fields of most states have their default: its data is made once, and shared.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from immutables import Map

_PLAIN = frozenset({str, int, bool, type(None)})


def to_builtins(value: Any) -> Any:
    """Returns a state as plain data. Do not change it: parts of it are shared."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is Map:
        pairs = [(_key(key), item) for key, item in value.items()]
        return {key: to_builtins(item) for key, item in sorted(pairs, key=_natural_first)}
    fields = _fields(kind)
    if fields is None:
        return _sorted(msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain))
    held = msgspec.structs.astuple(value)
    found = {}
    for name, place, default, data in fields:
        field = held[place]
        found[name] = data if field is default else field if type(field) in _PLAIN else to_builtins(field)
    return found


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, int, Any, Any], ...] | None:
    """Returns (name, index, default, data of the default) of each field, by name; None for a type with a tag."""
    if not issubclass(kind, msgspec.Struct) or kind.__struct_config__.tag is not None:
        return None
    found = []
    for place, field in sorted(enumerate(msgspec.structs.fields(kind)), key=_name):
        default = field.default
        known = default is not msgspec.NODEFAULT
        found.append((field.name, place, default, to_builtins(default) if known else None))
    return tuple(found)


def _plain(value: object) -> Any:
    if isinstance(value, Map):
        return {_key(key): each for key, each in value.items()}
    raise TypeError(f"a state holds {type(value).__name__}, which is no data")


def _key(key: object) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _sorted(value[key]) for key in sorted(value, key=natural)}
        case list() | tuple():
            return [_sorted(item) for item in value]
        case _:
            return value


def natural(key: str) -> tuple[int, str]:
    """Returns a sort key: numbers by value, before other strings."""
    return (int(key), "") if key.isdecimal() else (1 << 62, key)


def _name(place: tuple[int, msgspec.structs.FieldInfo]) -> str:
    return place[1].name


def _natural_first(pair: tuple[str, Any]) -> tuple[int, str]:
    return natural(pair[0])
