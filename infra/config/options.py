"""A configuration option (Flink's ConfigOption): key, type, default, bounds, and description.

`read` raises an error, for settings at start-up; `of` never fails and falls back to the default, for values from an old
log or another version.

This module is below the services, because pipelines read the options of jobs too.
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
    """Every process and command: where the cluster is."""
    JOB = "job"
    """A job may set it; the cluster's configuration has the default for jobs."""


class ConfigOption(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One option. `doc` is a sentence or two for docs/configuration.md; bounds are inclusive, except `above`.

    `ours` marks options that Flink does not have; `flink` describes the difference from Flink's option of the same
    name. `is_dynamic`: of a job's option, whether it may change while the job runs: only masters read it, and each
    decision reads it anew.
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
    is_dynamic: bool = False

    def read(self, text: str) -> T:
        """Parses a text. Raises ValueError: one line with the key, the text, and the valid values."""
        try:
            value = self.type.read(text.strip())
        except (ValueError, OverflowError):
            raise self._range_error(text) from None
        if not self._within(value):
            raise self._range_error(text)
        return value

    def of(self, configuration: Mapping[str, str]) -> T:
        """Returns the value in a configuration; the default if it is missing or invalid."""
        text = configuration.get(self.key)
        if text is None:
            return self.default
        try:
            return self.read(text)
        except ValueError:
            return self.default

    def write(self, value: T) -> str:
        """Returns the canonical text of a value."""
        return self.type.write(value)

    @property
    def possible(self) -> str:
        """Returns a description of the valid values, for messages."""
        return self._bounded(self.type.wanted)

    @property
    def brief(self) -> str:
        """Like `possible`, for tables."""
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
        """None (unlimited) is within all bounds."""
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
    """Two options; the second must be larger, with `strictly`, or at least as large."""

    smaller: ConfigOption[Any]
    larger: ConfigOption[Any]
    is_strict: bool

    def find_error(self, configuration: Mapping[str, str]) -> str | None:
        """Returns one line if the values in a configuration contradict each other, else None."""
        smaller, larger = self.smaller.of(configuration), self.larger.of(configuration)
        if smaller < larger or (smaller == larger and not self.is_strict):
            return None
        relation = "above" if self.is_strict else "at least"
        return (
            f"{self.larger.key} is {self.larger.write(larger)}: it must be {relation} {self.smaller.key}, "
            f"which is {self.smaller.write(smaller)}"
        )


def index(options: Iterable[ConfigOption[Any]]) -> Mapping[str, ConfigOption[Any]]:
    """Returns the options by key. Raises ValueError for duplicate keys."""
    found: dict[str, ConfigOption[Any]] = {}
    for option in options:
        if option.key in found:
            raise ValueError(f"two options have the key {option.key}")
        found[option.key] = option
    return found


def nearest(key: str, known: Iterable[str]) -> str:
    """Returns the known key that is most similar to `key`."""
    by_lower = {name.lower(): name for name in sorted(known, reverse=True)}
    matches = difflib.get_close_matches(key[:_SHOWN].lower(), by_lower, n=1, cutoff=0.0)
    return by_lower[matches[0]]


def unknown(key: str, known: Iterable[str]) -> str:
    """Returns one line about an unknown key."""
    return f"there is no option {shown(key)}: the nearest is {nearest(key, known)}"


def shown(text: str) -> str:
    """Returns a text from outside, shortened, on one line, and without secrets."""
    text = redacted(text)
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


def find_errors(
    configuration: Mapping[str, str],
    known: Mapping[str, ConfigOption[Any]],
    ordered: Iterable[OrderedOptions] = (),
) -> Iterator[str]:
    """Yields one line for each unknown key, invalid value and contradiction."""
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
