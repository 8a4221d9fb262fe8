"""Converts states to plain data, for JSON, for display and for differences.

Dicts, lists, texts and numbers; keys are texts in their natural order, keys of several parts are joined by "/", bytes
are in base64. Most fields of most states are as at first: the data of those is made once, and shared.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from immutables import Map

_PLAIN = frozenset({str, int, bool, type(None)})


def to_builtins(value: Any) -> Any:
    """Any state as dicts, lists, texts and numbers, with keys sorted; not to be changed: parts of it are shared."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is Map:
        pairs = [(_key(key), each) for key, each in value.items()]
        return {key: to_builtins(each) for key, each in sorted(pairs, key=_natural_first)}
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
    """Name, place, default and its data of each field, by name; None for what is not laid out by its fields alone."""
    if not issubclass(kind, msgspec.Struct) or kind.__struct_config__.tag is not None:
        return None
    found = []
    for place, field in sorted(enumerate(msgspec.structs.fields(kind)), key=_name):
        default = field.default
        # Such as NODEFAULT itself, which is no value of any field.
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
            return [_sorted(each) for each in value]
        case _:
            return value


def natural(key: str) -> tuple[int, str]:
    """Numbers in their own order, before texts."""
    return (int(key), "") if key.isdecimal() else (1 << 62, key)


def _name(place: tuple[int, msgspec.structs.FieldInfo]) -> str:
    return place[1].name


def _natural_first(pair: tuple[str, Any]) -> tuple[int, str]:
    return natural(pair[0])
