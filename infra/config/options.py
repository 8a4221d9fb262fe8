"""What an option is (Flink's ConfigOption): a key, the type of its values, a default, bounds, and what it does.

`read` refuses (people's mistakes, at the start); `of` never fails (what an old log or another version holds falls back
to the default).

This stands below the services, because a job's options are read by pipelines too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from ..redaction import HIDDEN, is_secret, redacted
from .option_types import OptionType

T = TypeVar("T")

_SHOWN = 80


class Scope(StrEnum):
    """Who reads an option."""

    JOBMANAGER = "jobmanager"
    TASKMANAGER = "taskmanager"
    CLIENT = "client"
    """Every process, and the commands: where the cluster is."""
    JOB = "job"
    """A job may set it; what the cluster's configuration says is the default for jobs."""


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
            raise self._range_error(text) from None
        if not self._within(value):
            raise self._range_error(text)
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

    def _range_error(self, text: str) -> ValueError:
        value = HIDDEN if is_secret(self.key) else shown(text)
        return ValueError(f"{self.key} is {value}: it may be {self.possible}")


class OrderedOptions(msgspec.Struct, frozen=True):
    """Two options of which the second must be the larger one; `strictly`, or at least as large."""

    smaller: ConfigOption[Any]
    larger: ConfigOption[Any]
    is_strict: bool

    def find_error(self, configuration: Mapping[str, str]) -> str | None:
        """One line where the values of a configuration contradict each other."""
        smaller, larger = self.smaller.of(configuration), self.larger.of(configuration)
        if smaller < larger or (smaller == larger and not self.is_strict):
            return None
        relation = "above" if self.is_strict else "at least"
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
    """A text from outside, short, on one line, and without secrets."""
    text = redacted(text)
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def find_errors(
    configuration: Mapping[str, str],
    known: Mapping[str, ConfigOption[Any]],
    ordered: Iterable[OrderedOptions] = (),
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
        if (fault := pair.find_error(configuration)) is not None:
            yield fault
