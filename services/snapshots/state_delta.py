"""Splits the bytes of a state into pieces, so that changes can be stored without the rest.

A piece is an entry of a large map, a large field, or all small fields together. Pieces only divide the output of
`encode`: `join(split(state))` equals `encode(state)`, byte for byte, whatever the state's history. Pieces of different
times can therefore be joined to the state, with the same hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    if before is not None and type(before) is not type(after):
        pieces, others = split(before), split(after)
        gone = dict.fromkeys(key for key in pieces if key not in others)
        return {**gone, **{key: data for key, data in others.items() if pieces.get(key) != data}}
    old, new = {} if before is None else whole_pieces(before), whole_pieces(after)
    found: dict[Key, bytes | None] = {key: None for key in old if key not in new}
    found.update((key, data) for key, data in new.items() if old.get(key) != data)
    found.update(entry_changes(before, after))
    return found


def entry_changes(before: msgspec.Struct | None, after: msgspec.Struct) -> dict[Key, bytes | None]:
    """Returns the entries of large maps of `after` that differ from `before`, of the same type; None for entries that
    no longer exist."""
    return {key: new for key, old, new in entry_differences(before, after) if old != new}


def entry_differences(
    before: msgspec.Struct | None, after: msgspec.Struct
) -> Iterator[tuple[Key, bytes | None, bytes | None]]:
    """Yields (key, data before, data after) of the entries of large maps that are not identical objects in both; None
    for an entry that does not exist."""
    for name in type(after).__struct_fields__:
        was: Map[object, object] = _NOTHING if before is None else _large(getattr(before, name))
        now = _large(getattr(after, name))
        if was is now:
            continue
        common = 0
        for key, value in now.items():
            held = was.get(key, _NOTHING)
            common += held is not _NOTHING
            if held is not value:
                old = None if held is _NOTHING else encode_value(held)
                yield (name, encode_value(key)), old, encode_value(value)
        if common < len(was):
            for key, held in was.items():
                if key not in now:
                    yield (name, encode_value(key)), encode_value(held), None


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


def whole_pieces(state: msgspec.Struct) -> dict[Key, bytes]:
    """Returns the pieces with all fields that are not entries of large maps."""
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
    """Returns the head of a msgpack array."""
    return encode_value([None] * length)[: -length or None]


def _sortable(key: object) -> object:
    return tuple(map(_sortable, key)) if isinstance(key, list) else key


def _first(pair: tuple[Any, bytes]) -> Any:
    return pair[0]


_NOTHING: Map[object, object] = Map()
