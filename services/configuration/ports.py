"""Ports for a server to listen on, in Flink's syntax: one port, a range, or several of both with commas.

Processes of one machine with the same configuration take one port each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ...infra.config.option_types import OptionType

_RANGE = re.compile(r"([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?")
_LAST = 65_535


class Ports(msgspec.Struct, frozen=True):
    """`ranges` of first and last port, in the order in which they are tried; only port 0: any free port."""

    ranges: tuple[tuple[int, int], ...] = ((0, 0),)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    @property
    def max_count(self) -> int | None:
        """The number of servers at one address for which the ports suffice; None: no limit."""
        return None if self.ranges == ((0, 0),) else len(set(self))


def _read(text: str) -> Ports:
    ranges = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(text)
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= _LAST and (first, last, text.strip()) != (0, 0, "0"):
            raise ValueError(text)
        ranges.append((first, last))
    return Ports(tuple(ranges))


PORTS: OptionType[Ports] = OptionType(
    "0, or ports and ranges",
    "0 for a free port, or ports and ranges of them such as 50100 or 50100-50200,50300",
    _read,
    str,
)
