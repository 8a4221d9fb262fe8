"""Avro's primitive types, arrays and maps as bytes: the building blocks of the functions of `binary`.

A reader takes all bytes and an offset, and returns the value and the offset after it. It raises ValueError or
IndexError for bytes that are not such a value; a writer raises ValueError, TypeError or AttributeError for a value that
does not fit.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def varint(zigzag: int) -> bytes:
    """Returns the bytes of a number that is not negative: seven bits per byte, the lowest first (Avro specification,
    "Primitive Types")."""
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


class _Sizes(dict[int, bytes]):
    """Encoded lengths; the short ones are precomputed."""

    def __missing__(self, size: int) -> bytes:
        return varint(size << 1)


SIZES = _Sizes({size: varint(size << 1) for size in range(4096)})
FLAGS = {False: b"\x00", True: b"\x01"}
DOUBLE = struct.Struct("<d")
_INT_RANGE = range(-(1 << 31), 1 << 31)
_LONG_RANGE = range(-(1 << 63), 1 << 63)
_REMEMBERED = 64
_BEGINNING = 128
_ALIKE = 4
_LARGEST_REMEMBERED = 1 << 16


def write_long(value: int) -> bytes:
    if 0 <= value < 0x100000:
        # Mostly offsets: up to 2**20, three bytes at most.
        if value < 0x40:
            return SIZES[value]
        if value < 0x2000:
            return bytes((value << 1 & 0x7E | 0x80, value >> 6))
        return bytes((value << 1 & 0x7E | 0x80, value >> 6 & 0x7F | 0x80, value >> 13))
    return _write_far(value)


@functools.lru_cache(64)
def _write_far(value: int) -> bytes:
    # Times: all events of one decision have the same time.
    if value not in _LONG_RANGE:
        raise ValueError(f"{value!r} is not a 64-bit integer")
    return varint(value << 1 ^ value >> 63)


def write_int(value: int) -> bytes:
    if value not in _INT_RANGE:
        raise ValueError(f"{value!r} is not a 32-bit integer")
    return write_long(value)


def write_string(value: str) -> bytes:
    text = value.encode()
    return SIZES[len(text)] + text


def write_bytes(value: bytes) -> bytes:
    return SIZES[len(value)] + value


def write_array(values: Any, write: Callable[[Any], bytes]) -> bytes:
    return SIZES[len(values)] + b"".join(map(write, values)) + b"\x00" if values else b"\x00"


def write_map(values: Mapping[str, Any], write: Callable[[Any], bytes]) -> bytes:
    if not values:
        return b"\x00"
    items = [write_string(key) + write(value) for key, value in values.items()]
    return SIZES[len(values)] + b"".join(items) + b"\x00"


def read_long(data: bytes, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    byte = 0x80
    while byte > 0x7F and shift < 70:
        byte = data[at]
        zigzag |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    if byte > 0x7F or zigzag >> 64:
        raise ValueError("an integer of more than 64 bits")
    return zigzag >> 1 ^ -(zigzag & 1), at


@functools.lru_cache(64)
def read_time(eight: bytes) -> int | None:
    """Reads a long that takes exactly these bytes, as the times of this century do; returns None if it takes more or
    fewer.

    All events of one decision have the same time, so the last one is cached.
    """
    bits = int.from_bytes(eight, "little")
    if len(eight) < 8 or bits & 0x80808080_80808080 != 0x00808080_80808080:
        return None
    # Seven bits of each byte: joins neighbours, then pairs, then the halves.
    bits = bits & 0x007F007F_007F007F | (bits & 0x7F007F00_7F007F00) >> 1
    bits = bits & 0x00003FFF_00003FFF | (bits & 0x3FFF0000_3FFF0000) >> 2
    zigzag = bits & 0x0FFFFFFF | (bits & 0x0FFFFFFF_00000000) >> 4
    return zigzag >> 1 ^ -(zigzag & 1)


def read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_long(data, at)
    if value not in _INT_RANGE:
        raise ValueError("an integer of more than 32 bits")
    return value, at


def read_size(data: bytes, at: int) -> tuple[int, int]:
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError("a negative size")
    return size, at


def read_array(
    data: bytes, at: int, read: Callable[[bytes, int], tuple[Any, int]]
) -> tuple[tuple[Any, ...], int]:
    items = []
    count, at = read_long(data, at)
    while count:
        if count < 0:
            # Blocks may state their length, for readers that skip them.
            _, at = read_size(data, at)
        for _ in range(abs(count)):
            item, at = read(data, at)
            items.append(item)
        count, at = read_long(data, at)
    return tuple(items), at


def ends(data: bytes, at: int) -> None:
    """Raises ValueError if a reader that stopped at `at` did not reach the end of the bytes."""
    if at < len(data):
        raise ValueError(f"{len(data) - at} bytes follow the event")
    if at > len(data):
        raise ValueError(f"{at - len(data)} bytes are missing")


def remembering(read: Callable[[bytes, int], tuple[T, int]]) -> Callable[[bytes, int], tuple[T, int]]:
    """Returns a caching reader of frozen values. Bytes that begin with the bytes of a known value hold that value,
    because no value's bytes begin with another's. For values with equal beginnings, as a graph before and after its
    JobMaster has added to its configuration, the last few are known."""
    known: list[tuple[tuple[bytes, T], ...]] = [()] * _REMEMBERED

    def read_once(data: bytes, at: int) -> tuple[T, int]:
        place = hash(data[at : at + _BEGINNING]) % _REMEMBERED
        alike = known[place]
        for said, value in alike:
            if data.startswith(said, at):
                return value, at + len(said)
        value, end = read(data, at)
        # The check of the event's end detects a truncated value.
        if end <= len(data) and end - at <= _LARGEST_REMEMBERED:
            known[place] = ((data[at:end], value), *alike[: _ALIKE - 1])
        return value, end

    return read_once
