"""The errors of a cluster's archive, each with a message of one line."""

from __future__ import annotations

from ..archive.errors import ArchiveError

_REMEDY = (
    "restore it from a copy of the storage; masters do not need it. Without a copy: delete this segment and all older "
    "ones, and the history begins after it"
)


class UnusableSegment(ArchiveError):
    """A segment of the archive is missing or damaged."""


class MissingSegment(UnusableSegment):
    """The archive has no entries for a range of offsets."""

    def __init__(self, uri: str, first: int, last: int) -> None:
        super().__init__(f"{uri} with offsets {first} to {last} of the log is missing: {_REMEDY}")


class DamagedSegment(UnusableSegment):
    """The content of a segment is not the one that was written."""

    def __init__(self, uri: str, first: int, last: int, why: str) -> None:
        super().__init__(f"{uri} with offsets {first} to {last} of the log is damaged: {why}; {_REMEDY}")


class LogNotContinued(ArchiveError):
    """The archive and the topic do not belong together, or have a gap between them."""


class ArchiveUnavailable(ArchiveError):
    """The storage of the archive does not answer."""
