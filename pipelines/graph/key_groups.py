"""Key groups: they assign a key to a subtask, the same in every process and release.

A key's canonical MessagePack form is hashed into one of `max_parallelism` key groups; a subtask owns a contiguous range
of groups. These are Flink's formulas (KeyGroupRangeAssignment), so state moves by whole groups when the parallelism
changes. The hash is CRC-32 multiplied by Knuth's golden number; its highest bits select the group. CRC-32 alone would
map keys that differ only in their last digit (k0 to k9) to neighbouring groups, and so to one subtask.

Keys that are equal in Python have the same canonical form: 1, 1.0 and True are one key, as in a dict. NaN is no key: it
does not equal itself, so a dict would never find its state. Python's own `hash` is never used: it differs between
processes.
"""

from __future__ import annotations

import dataclasses
import enum
import uuid
import zlib
from datetime import UTC, date, datetime
from typing import Any, Final

import msgspec

DEFAULT_LOWER_BOUND = 128
UPPER_BOUND = 1 << 15

_GOLDEN = 0x9E3779B1
"""The odd number next to 2**32 divided by the golden ratio (Knuth, volume 3, 6.4)."""

NAN_KEY: Final = "a key is NaN, which equals no key: let the key selector return None or a text instead"

_encode = msgspec.msgpack.Encoder().encode


class UnstableKey(TypeError):
    """A key has no form that is the same in every process."""


def default_max_parallelism(parallelism: int) -> int:
    """Flink's default number of key groups: 128, or more from 86 subtasks on, a power of two up to 32768."""
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), DEFAULT_LOWER_BOUND), UPPER_BOUND)


def key_bytes(key: Any) -> bytes:
    """Returns a key's canonical form: the same bytes for equal keys, in every process. Raises UnstableKey."""
    return _encode(key if type(key) is str else _canonical(key))


def key_group_of(key: Any, max_parallelism: int) -> int:
    """Returns the key group of a key, 0 <= group < max_parallelism. Raises UnstableKey."""
    crc = zlib.crc32(_encode(key if type(key) is str else _canonical(key)))
    return (crc * _GOLDEN & 0xFFFFFFFF) * max_parallelism >> 32


def key_group_of_bytes(data: bytes, max_parallelism: int) -> int:
    """Returns the key group of the key with this canonical form."""
    return (zlib.crc32(data) * _GOLDEN & 0xFFFFFFFF) * max_parallelism >> 32


def subtask_of(key: Any, max_parallelism: int, parallelism: int) -> int:
    """Returns the subtask that a record with this key goes to, 0 <= subtask < parallelism. Raises UnstableKey."""
    return key_group_of(key, max_parallelism) * parallelism // max_parallelism


def key_groups_of_subtask(subtask: int, max_parallelism: int, parallelism: int) -> range:
    """Returns the key groups that a subtask owns. They are contiguous; every group belongs to exactly one subtask."""
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism + 1
    return range(start, end)


def _canonical(key: Any) -> Any:
    """Returns a form for which MessagePack writes the same bytes if keys are equal."""
    match key:
        case enum.Enum() if not isinstance(key, (str, int)):
            return [type(key).__name__, key.name]
        case str():
            return str.__str__(key)
        case None | bytes():
            return key
        case int():
            number = int(key)
            return number if -(1 << 63) <= number < 1 << 64 else str(number).encode()
        case float():
            if key != key:
                raise UnstableKey(NAN_KEY)
            return _canonical(int(key)) if key.is_integer() else float(key)
        case tuple():
            return [_canonical(item) for item in key]
        case frozenset():
            return sorted(_encode(_canonical(item)) for item in key)
        case uuid.UUID():
            return key.bytes
        case datetime():
            return (key.astimezone(UTC) if key.tzinfo else key).isoformat()
        case date():
            return key.isoformat()
        case _ if dataclasses.is_dataclass(key) and not isinstance(key, type):
            return [_canonical(getattr(key, f.name)) for f in dataclasses.fields(key) if f.compare]
        case _ if hasattr(key, "__index__"):
            return _canonical(key.__index__())
        case _:
            raise UnstableKey(
                f"a key of type {type(key).__name__} has no form that is the same in every process:"
                " let the key selector return str, int, float, bool, bytes, None, or a tuple of them"
            )
