"""What an option is: a key, the type of its values, a default, bounds, and what it does; and how values are written.

Keys, units and defaults are Flink's where Flink has the concept (its `ConfigOption`, `TimeUtils`, `MemorySize`). Every
value has one canonical text, which reads back as the same value: that text is what the log holds. `read` refuses
(people's mistakes, at start); `of` never fails (what an old log or another version holds falls back to the default).

This stands below the services, because a job's options are read by pipelines too.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_LONGEST = 36_500 * DAY
_LARGEST = 1 << 53
_SHOWN = 80
_DIGITS = r"[0-9]{1,18}"


class Scope(StrEnum):
    """Who reads an option."""

    JOBMANAGER = "jobmanager"
    TASKMANAGER = "taskmanager"
    CLIENT = "client"
    """Every process, and the commands: where the cluster is."""
    JOB = "job"
    """A job may set it; what the cluster's configuration says is the default for jobs."""


class OptionType(msgspec.Struct, Generic[T], frozen=True):
    """How values are read and written. `name` is for tables, `wanted` continues "it may be ..."; `read` raises
    ValueError.
    """

    name: str
    wanted: str
    read: Callable[[str], T]
    write: Callable[[T], str]


class ConfigOption(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One option. `doc` is a sentence or two for docs/configuration.md; bounds are inclusive but `above`.

    `ours` marks what Flink does not have; `flink` says what differs from Flink's option of that name.
    """

    key: str
    type: OptionType[T]
    default: T
    doc: str
    scopes: tuple[Scope, ...]
    at_least: T | None = None
    at_most: T | None = None
    above: T | None = None
    ours: bool = False
    flink: str = ""

    def read(self, text: str) -> T:
        """The value of a text. Raises ValueError: one line with the key, the text, and what it may be."""
        try:
            value = self.type.read(text.strip())
        except (ValueError, OverflowError):
            raise self._impossible(text) from None
        if not self._within(value):
            raise self._impossible(text)
        return value

    def of(self, configuration: Mapping[str, str]) -> T:
        """The value that a configuration gives it: the default where there is none or it is impossible."""
        text = configuration.get(self.key)
        if text is None:
            return self.default
        try:
            return self.read(text)
        except ValueError:
            return self.default

    def write(self, value: T) -> str:
        """The canonical text of a value."""
        return self.type.write(value)

    @property
    def possible(self) -> str:
        """What its values may be, for people."""
        return self._bounded(self.type.wanted)

    @property
    def brief(self) -> str:
        """As `possible`, for tables."""
        return self._bounded(self.type.name)

    def _bounded(self, what: str) -> str:
        bounds = [
            f"{words} {self.type.write(bound)}"
            for words, bound in (
                ("at least", self.at_least),
                ("above", self.above),
                ("at most", self.at_most),
            )
            if bound is not None
        ]
        return ", ".join([what, *bounds])

    def _within(self, value: Any) -> bool:
        """A value that is None (unlimited) is within all bounds."""
        if value is None:
            return True
        least: Any = self.at_least
        most: Any = self.at_most
        above: Any = self.above
        return (
            (least is None or value >= least)
            and (most is None or value <= most)
            and (above is None or value > above)
        )

    def _impossible(self, text: str) -> ValueError:
        return ValueError(f"{self.key} is {shown(text)}: it may be {self.possible}")


class Ordered(msgspec.Struct, frozen=True):
    """Two options of which the second must be the larger one; `strictly`, or at least as large."""

    smaller: ConfigOption[Any]
    larger: ConfigOption[Any]
    strictly: bool

    def fault(self, configuration: Mapping[str, str]) -> str | None:
        """One line where the values of a configuration contradict each other."""
        smaller, larger = self.smaller.of(configuration), self.larger.of(configuration)
        if smaller < larger or (smaller == larger and not self.strictly):
            return None
        relation = "above" if self.strictly else "at least"
        return (
            f"{self.larger.key} is {self.larger.write(larger)}: it must be {relation} {self.smaller.key}, "
            f"which is {self.smaller.write(smaller)}"
        )


def index(options: Iterable[ConfigOption[Any]]) -> Mapping[str, ConfigOption[Any]]:
    """By key. Raises ValueError where two have the same."""
    found: dict[str, ConfigOption[Any]] = {}
    for option in options:
        if option.key in found:
            raise ValueError(f"two options have the key {option.key}")
        found[option.key] = option
    return found


def nearest(key: str, known: Iterable[str]) -> str:
    """The known key that resembles most what somebody wrote."""
    by_lower = {each.lower(): each for each in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(key[:_SHOWN].lower(), by_lower, n=1, cutoff=0.0)
    return by_lower[matches[0]]


def unknown(key: str, known: Iterable[str]) -> str:
    """One line about a key that no option has."""
    return f"there is no option {shown(key)}: the nearest is {nearest(key, known)}"


def shown(text: str) -> str:
    """A text from outside, short and on one line."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def choice(kind: type[E], aliases: Mapping[str, E] | None = None) -> OptionType[E]:
    """One of an enum's values, or another name of one."""
    by_name = {**{each.value.lower(): each for each in kind}, **(aliases or {})}

    def read(text: str) -> E:
        if text.lower() not in by_name:
            raise ValueError(text)
        return by_name[text.lower()]

    *first, last = kind
    names = f"{', '.join(first)} or {last}" if first else str(last)
    return OptionType(names, names, read, lambda value: value.value)


def unlimited(inner: OptionType[T]) -> OptionType[T | None]:
    """As `inner`, or `unlimited`, which is None."""

    def read(text: str) -> T | None:
        return None if text.lower() in (_UNLIMITED, "infinite") else inner.read(text)

    def write(value: T | None) -> str:
        return _UNLIMITED if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_UNLIMITED}", f"{inner.wanted} or {_UNLIMITED}", read, write)


def derived(inner: OptionType[T]) -> OptionType[T | None]:
    """As `inner`, or `auto`, which is None: what the machine has."""

    def read(text: str) -> T | None:
        return None if text.lower() == _AUTO else inner.read(text)

    def write(value: T | None) -> str:
        return _AUTO if value is None else inner.write(value)

    return OptionType(f"{inner.name} or {_AUTO}", f"{inner.wanted} or {_AUTO}", read, write)


def pattern(wanted: str, matches: Callable[[str], bool]) -> OptionType[str]:
    """A text of a certain form."""

    def read(text: str) -> str:
        if not matches(text):
            raise ValueError(text)
        return text

    return OptionType(wanted, wanted, read, str)


_UNLIMITED = "unlimited"
_AUTO = "auto"


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _read_int(text: str) -> int:
    if re.fullmatch(rf"[+-]?{_DIGITS}", text) is None or abs(int(text)) > _LARGEST:
        raise ValueError(text)
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or "_" in text:
        raise ValueError(text)
    return value


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
    """The largest unit that divides the value, and the given names for units."""

    def write(value: int) -> str:
        if value == 0:
            return f"0 {'ms' if 'ms' in names else 'b'}"
        name, size = next((name, size) for name, size in names.items() if value % size == 0)
        return f"{value // size} {name}"

    return write


BOOL: OptionType[bool] = OptionType(
    "true or false", "true or false", _read_bool, lambda value: str(value).lower()
)
INT: OptionType[int] = OptionType("whole number", "a whole number", _read_int, str)
FLOAT: OptionType[float] = OptionType("number", "a number", _read_float, lambda value: f"{value!r}")
DURATION: OptionType[int] = OptionType(
    "duration",
    "a duration such as 500 ms, 10 s or 1 min (a plain number: milliseconds)",
    _reader(_TIME_UNITS, _LONGEST),
    _writer({"d": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": MILLISECOND, "us": MICROSECOND}),
)
"""In microseconds."""
MEMORY: OptionType[int] = OptionType(
    "memory size",
    "a memory size such as 128 mb or 1 gb (a plain number: bytes; 1 kb is 1024)",
    _reader(_MEMORY_UNITS, _LARGEST),
    _writer({"tb": 1 << 40, "gb": 1 << 30, "mb": 1 << 20, "kb": 1 << 10, "b": 1}),
)
"""In bytes."""


def find_faults(
    configuration: Mapping[str, str],
    known: Mapping[str, ConfigOption[Any]],
    ordered: Iterable[Ordered] = (),
) -> Iterator[str]:
    """One line for each unknown key, impossible value and contradiction."""
    for key, text in configuration.items():
        option = known.get(key)
        if option is None:
            yield unknown(key, known)
            continue
        try:
            option.read(text)
        except ValueError as error:
            yield str(error)
    for pair in ordered:
        if (fault := pair.fault(configuration)) is not None:
            yield fault
