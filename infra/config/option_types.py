"""The text forms of option values, in Flink's words and units (its TimeUtils and MemorySize).

Every value has one canonical text, which the log stores and which reads back as the same value. Other forms are
accepted too.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from .characters import is_plain

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

Duration = int
"""Microseconds."""
MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_MAX_LENGTH = 36_500 * DAY
_MAX_VALUE = 1 << 53
_DIGITS = r"[0-9]{1,18}"
_UNLIMITED = "unlimited"
_AUTO = "auto"
_NONE = "none"
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://(.+)")
_OFF = "off"


class OptionType(msgspec.Struct, Generic[T], frozen=True):
    """How values are read and written. `name` is for tables, `wanted` continues "it may be ..."; `read` raises
    ValueError."""

    name: str
    wanted: str
    read: Callable[[str], T]
    write: Callable[[T], str]


def choice(kind: type[E], aliases: Mapping[str, E] | None = None) -> OptionType[E]:
    """An option type for the values of an enum, and aliases of them."""
    by_name = {**{member.value.lower(): member for member in kind}, **(aliases or {})}

    def read(text: str) -> E:
        if text.lower() not in by_name:
            raise ValueError(text)
        return by_name[text.lower()]

    *first, last = kind
    names = f"{', '.join(first)} or {last}" if first else str(last)
    return OptionType(names, names, read, lambda value: value.value)


def unlimited(inner: OptionType[T]) -> OptionType[T | None]:
    """Like `inner`, or `unlimited`, which is None."""

    def read(text: str) -> T | None:
        return None if text.lower() in (_UNLIMITED, "infinite") else inner.read(text)

    def write(value: T | None) -> str:
        return _UNLIMITED if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_UNLIMITED}", f"{inner.wanted} or {_UNLIMITED}", read, write)


def derived(inner: OptionType[T]) -> OptionType[T | None]:
    """Like `inner`, or `auto`, which is None: the machine's value."""

    def read(text: str) -> T | None:
        return None if text.lower() == _AUTO else inner.read(text)

    def write(value: T | None) -> str:
        return _AUTO if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_AUTO}", f"{inner.wanted} or {_AUTO}", read, write)


def switchable(inner: OptionType[T]) -> OptionType[T | None]:
    """Like `inner`, or `off`, which is None: disabled."""

    def read(text: str) -> T | None:
        return None if text.lower() == _OFF else inner.read(text)

    def write(value: T | None) -> str:
        return _OFF if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_OFF}", f"{inner.wanted} or {_OFF}", read, write)


def optional(inner: OptionType[T]) -> OptionType[T | None]:
    """Like `inner`, or `none`, which is None."""

    def read(text: str) -> T | None:
        return None if text.lower() in (_NONE, "") else inner.read(text)

    def write(value: T | None) -> str:
        return _NONE if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_NONE}", f"{inner.wanted} or {_NONE}", read, write)


def pattern(wanted: str, matches: Callable[[str], bool]) -> OptionType[str]:
    """An option type for texts that satisfy a predicate."""

    def read(text: str) -> str:
        if not matches(text):
            raise ValueError(text)
        return text

    return OptionType(wanted, wanted, read, str)


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _read_int(text: str) -> int:
    if re.fullmatch(rf"[+-]?{_DIGITS}", text) is None or abs(int(text)) > _MAX_VALUE:
        raise ValueError(text)
    return int(text)


def _read_float(text: str) -> float:
    # Only ASCII digits: which other digits exist depends on the interpreter.
    value = float(text) if text.isascii() else math.nan
    if not math.isfinite(value) or "_" in text:
        raise ValueError(text)
    return value


def _read_location(text: str) -> str:
    path = text.removeprefix("file://") if text.startswith("file://") else text.removeprefix("file:")
    if path.startswith("/") and is_plain(text):
        return f"file://{posixpath.normpath('/' + path.lstrip('/'))}"
    found = _URI.fullmatch(text)
    if found is None or found[1] == "file" or not is_plain(text) or not found[2].strip("/"):
        raise ValueError(text)
    return text.rstrip("/")


_TIME_UNITS: Mapping[str, int] = {
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("h", "hour", "hours"), HOUR),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds", ""), MILLISECOND),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), MICROSECOND),
}
_MEMORY_UNITS: Mapping[str, int] = {
    **dict.fromkeys(("t", "tb", "tebibytes"), 1 << 40),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1 << 30),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1 << 20),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1 << 10),
    **dict.fromkeys(("b", "bytes", ""), 1),
}
_QUANTITY = re.compile(rf"({_DIGITS})\s*([a-zµ]*)")


def _reader(units: Mapping[str, int], most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        found = _QUANTITY.fullmatch(text.lower())
        if found is None or found[2] not in units:
            raise ValueError(text)
        value = int(found[1]) * units[found[2]]
        if value > most:
            raise ValueError(text)
        return value

    return read


def _writer(names: Mapping[str, int]) -> Callable[[int], str]:
    """Returns a function that writes a number with the largest unit that divides it."""

    def write(value: int) -> str:
        if value == 0:
            return f"0 {'ms' if 'ms' in names else 'b'}"
        name, size = next((name, size) for name, size in names.items() if value % size == 0)
        return f"{value // size} {name}"

    return write


LOCATION: OptionType[str] = OptionType(
    "URI or absolute path", "a URI such as s3://bucket/directory, or an absolute path", _read_location, str
)
"""A location in storage, as a URI without a trailing slash. Relative paths are refused: each process would resolve them
differently."""
BOOL: OptionType[bool] = OptionType(
    "true or false", "true or false", _read_bool, lambda value: str(value).lower()
)
INT: OptionType[int] = OptionType("whole number", "a whole number", _read_int, str)
FLOAT: OptionType[float] = OptionType("number", "a number", _read_float, lambda value: f"{value!r}")
DURATION: OptionType[Duration] = OptionType(
    "duration",
    "a duration such as 500 ms, 10 s or 1 min (a plain number: milliseconds)",
    _reader(_TIME_UNITS, _MAX_LENGTH),
    _writer({"d": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": MICROSECOND}),
)
MEMORY: OptionType[int] = OptionType(
    "memory size",
    "a memory size such as 128 mb or 1 gb (a plain number: bytes; 1 kb is 1024)",
    _reader(_MEMORY_UNITS, _MAX_VALUE),
    _writer({"tb": 1 << 40, "gb": 1 << 30, "mb": 1 << 20, "kb": 1 << 10, "b": 1}),
)
"""In bytes."""
