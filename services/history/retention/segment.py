"""A segment of the archive: an Avro file with a range of the log, and its manifest.

    <first offset>-<last offset>.json                the manifest
    <first offset>-<last offset>-<checksum>.avro     the entries, in the format of exported logs

The manifest is written after the file, so a segment exists when its manifest does. The name of the file has the start
of its SHA-256: two processes that write the same range do not overwrite each other's file. Segments may overlap, since
all of them have the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

FORMAT = 1
_NAME = re.compile(r"(\d{20})-(\d{20})\.json")


class SegmentRange(msgspec.Struct, frozen=True, order=True):
    """The offsets of a segment, both inclusive."""

    first: int
    last: int

    @property
    def stem(self) -> str:
        """The beginning of its files' names."""
        return f"{self.first:020d}-{self.last:020d}"

    @property
    def manifest_name(self) -> str:
        """The name of its manifest."""
        return f"{self.stem}.json"

    @classmethod
    def from_name(cls, name: str) -> SegmentRange | None:
        """Parses the name of a manifest; None for another file."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(int(found[1]), int(found[2]))


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a segment; times are in microseconds since the epoch."""

    format: int = FORMAT
    cluster: str
    log_id: str
    """The id of the log (snapshots/log_identity.py)."""
    first: int
    last: int
    """The range of offsets; its first and last may have no entries."""
    entries: int
    file: str
    """The name of the Avro file."""
    bytes: int
    """The size of the file."""
    sha256: str
    """The SHA-256 of the file, in hexadecimal."""
    log_bytes: int
    """The bytes of the entries' values in the topic."""
    first_time: int | None
    """The time of its first event."""
    last_time: int | None
    """The latest time of its events."""

    @property
    def range(self) -> SegmentRange:
        """Its offsets."""
        return SegmentRange(self.first, self.last)


def find_covering(ranges: Iterable[SegmentRange], offset: int) -> SegmentRange | None:
    """Returns the range with that offset that reaches furthest; None if no range has it."""
    return max(
        (found for found in ranges if found.first <= offset <= found.last),
        key=lambda found: (found.last, -found.first),
        default=None,
    )


def find_chain(ranges: Iterable[SegmentRange], start: int) -> list[SegmentRange]:
    """Returns the ranges that follow each other without a gap, the first of which has the offset `start`."""
    ranges = list(ranges)
    chain: list[SegmentRange] = []
    while (found := find_covering(ranges, start)) is not None:
        chain.append(found)
        start = found.last + 1
    return chain
