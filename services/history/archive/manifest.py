"""The manifest of an exported file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ....schemas.event import Record
from ...log.event_log import Unreadable
from .errors import NotAnArchive

FORMAT = 2
"""The version of the format; a release reads its own and earlier ones. Since 2 the header has a checksum."""
_PADDED = 2048
"""The bytes of the description in the header. They are fixed, because it is complete only after the last entry."""

Item = Record | Unreadable
"""An entry of a file."""


class ArchiveManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a file; times are in microseconds since the epoch."""

    tailrace_log: int = FORMAT
    """The version of the format."""
    cluster: str
    """The id of the cluster."""
    first: int = 0
    """The offset of the first entry."""
    last: int = -1
    """The offset of the last entry; one less than `first` if there are none."""
    entries: int = 0
    unreadable: int = 0
    """The number of entries that the writer of the file could not read as events."""
    whole: bool = True
    """Whether the file has all entries of the log up to `last`; otherwise it is a selection."""
    selected: str | None = None
    """The description of a selection."""
    gaps: int = 0
    """The number of offsets between `first` and `last` that have no entry in the log."""
    feature_level: int = 1
    """The highest feature level in the file."""
    first_time: int | None = None
    """The time of the first event."""
    last_time: int | None = None
    """The latest time of all events."""


def padded(text: bytes) -> bytes:
    """Returns the description with a fixed length. Raises ValueError if it is too long."""
    if len(text) > _PADDED:
        raise ValueError(f"a description of {len(text)} bytes, where {_PADDED} is the most")
    return text.ljust(_PADDED)


class _Version(msgspec.Struct):
    tailrace_log: int


def parse_description(path: Path, text: bytes) -> ArchiveManifest:
    """Parses the description of a file. Raises NotAnArchive for a later format, or no description."""
    try:
        version = msgspec.json.decode(text, type=_Version).tailrace_log
        if version > FORMAT:
            raise NotAnArchive(
                f"{path} is of format {version}, and this release reads {FORMAT} and earlier: upgrade tailrace"
            )
        return msgspec.json.decode(text, type=ArchiveManifest)
    except msgspec.DecodeError as error:
        raise NotAnArchive(f"{path} does not describe itself as an exported log: {error}") from None
