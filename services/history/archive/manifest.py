"""What an exported file says of itself, at its head or its foot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ....schemas.event import Record
from ...log.event_log import Unreadable
from .errors import NotAnArchive

FORMAT = 1
"""The version of the files' format; a reader knows its own and the earlier ones."""
_PADDED = 2048
"""Bytes that the description takes where it stands before the entries: it is known only behind them."""

Item = Record | Unreadable
"""What a file holds at an offset."""


class ArchiveManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Of the file as a whole; times in microseconds since the epoch."""

    tailrace_log: int = FORMAT
    """The version of the format; also what a file is known by."""
    cluster: str
    """The id of the cluster whose log it is."""
    first: int = 0
    """The offset of the first entry."""
    last: int = -1
    """The offset of the last entry; one less than `first` where there are none."""
    entries: int = 0
    unreadable: int = 0
    """Of them, how many are no event that the release which wrote the file could read."""
    whole: bool = True
    """Whether it is the log's whole beginning up to `last`; else a selection."""
    selected: str | None = None
    """Of a selection: how it was asked for."""
    gaps: int = 0
    """How many offsets between `first` and `last` have no entry though nothing was left out: the log had none there."""
    feature_level: int = 1
    """The highest in force in it."""
    first_time: int | None = None
    """Of the first event."""
    last_time: int | None = None
    """The latest of all."""


def padded(text: bytes) -> bytes:
    """A description of always the same length. Raises ValueError for one that is too long."""
    if len(text) > _PADDED:
        raise ValueError(f"a description of {len(text)} bytes, where {_PADDED} is the most")
    return text.ljust(_PADDED)


class _Version(msgspec.Struct):
    tailrace_log: int


def parse_description(path: Path, text: bytes) -> ArchiveManifest:
    """The description that a file has. Raises NoArchive for one of a later format, or none."""
    try:
        version = msgspec.json.decode(text, type=_Version).tailrace_log
        if version > FORMAT:
            raise NotAnArchive(
                f"{path} is of format {version}, and this release reads {FORMAT} and earlier: upgrade tailrace"
            )
        return msgspec.json.decode(text, type=ArchiveManifest)
    except msgspec.DecodeError as error:
        raise NotAnArchive(f"{path} does not describe itself as an exported log: {error}") from None
