"""Splits the bytes of a state into pieces, so that changes can be stored without the rest.

A piece is an entry of a large map, a large field, or all small fields together. Pieces only divide the output of
`encode`: `join(split(state))` equals `encode(state)`, byte for byte, whatever the state's history. Pieces of different
times can therefore be joined to the state, with the same hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from immutables import Map

from .encoding import encode_fields, encode_value

Key = tuple[str, bytes]
"""(field, key of an entry in it). The key is empty for a field in one piece; both are empty for all small fields."""
SMALL: Key = ("", b"")
LARGE_MAP = 64
"""The number of entries from which each entry is a piece."""
LARGE_FIELD = 1024
"""The number of bytes from which a field is a piece."""
_PAIR = b"\x92"


def split(state: msgspec.Struct) -> dict[Key, bytes]:
    """Returns all pieces of a state."""
    return {key: data for key, data in changes(None, state).items() if data is not None}


def changes(before: msgspec.Struct | None, after: msgspec.Struct) -> dict[Key, bytes | None]:
    """Returns the pieces of `after` that differ from `before`; None for pieces that no longer exist.

    The cost depends on the fields, and the entries of large maps, that are not identical objects.
    """
    old, new = {} if before is None else _whole_piece(before), _whole_piece(after)
    found: dict[Key, bytes | None] = {key: None for key in old if key not in new}
    found.update((key, data) for key, data in new.items() if old.get(key) != data)
    for name in type(after).__struct_fields__:
        was: Map[object, object] = _NOTHING if before is None else _large(getattr(before, name))
        now = _large(getattr(after, name))
        if was is now:
            continue
        found.update(((name, encode_value(key)), None) for key in was if key not in now)
        for key, value in now.items():
            held = was.get(key, _NOTHING)
            if held is not value:
                data = encode_value(value)
                if held is _NOTHING or encode_value(held) != data:
                    found[name, encode_value(key)] = data
    return found


def join(pieces: Mapping[Key, bytes]) -> bytes:
    """Joins the pieces to the bytes of the state. Raises msgspec.MsgspecError or KeyError for invalid pieces."""
    if len(pieces) == 1:
        return pieces[SMALL]
    fields: dict[str, msgspec.Raw] = msgspec.msgpack.decode(pieces[SMALL], type=dict[str, msgspec.Raw])
    maps: dict[str, list[tuple[Any, bytes]]] = {}
    for (name, key), data in pieces.items():
        if key:
            maps.setdefault(name, []).append((_sortable(msgspec.msgpack.decode(key)), _PAIR + key + data))
        elif name:
            fields[name] = msgspec.Raw(data)
    for name, pairs in maps.items():
        pairs.sort(key=_first)
        fields[name] = msgspec.Raw(encode_value(_array(len(pairs)) + b"".join(data for _, data in pairs)))
    return encode_value(fields)


def _whole_piece(state: msgspec.Struct) -> dict[Key, bytes]:
    """The pieces that are not entries of large maps."""
    small: dict[str, msgspec.Raw] = {}
    found: dict[Key, bytes] = {}
    for name, data in encode_fields(state, but=_is_large):
        if len(data) < LARGE_FIELD:
            small[name] = msgspec.Raw(data)
        else:
            found[name, b""] = data
    found[SMALL] = encode_value(small)
    return found


def _is_large(value: object) -> bool:
    return type(value) is Map and len(value) >= LARGE_MAP


def _large(value: object) -> Map[object, object]:
    return value if isinstance(value, Map) and len(value) >= LARGE_MAP else _NOTHING


def _array(length: int) -> bytes:
    """The head of a msgpack array."""
    return encode_value([None] * length)[: -length or None]


def _sortable(key: object) -> object:
    return tuple(map(_sortable, key)) if isinstance(key, list) else key


def _first(pair: tuple[Any, bytes]) -> Any:
    return pair[0]


_NOTHING: Map[object, object] = Map()
