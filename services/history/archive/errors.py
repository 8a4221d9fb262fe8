"""The errors of exported files, each with a message of one line."""

from __future__ import annotations

from pathlib import Path


class ArchiveError(Exception):
    """A file cannot be used as a log."""


class NotAnArchive(ArchiveError):
    """The file is missing, or no export, or this release cannot read it."""


class CorruptArchive(ArchiveError):
    """An export is damaged; `last_good` is the last offset before the damage."""

    def __init__(self, path: Path, place: str, why: str, last_good: int | None) -> None:
        self.last_good = last_good
        if last_good is None:
            rescue = "no event of it can be read: take another copy, or export again"
        else:
            rescue = (
                f"the last good offset is {last_good}, and --to {last_good} (or --at) reads up to there; "
                "for the rest take another copy, or export again"
            )
        super().__init__(f"{path} is damaged at {place}: {why}; {rescue}")


class UnknownEventType(ArchiveError):
    """The file has an event that this release does not know."""

    def __init__(self, path: Path, offset: int, name: str) -> None:
        super().__init__(
            f"{path} has an event of the type {name!r} at offset {offset}, which this release does not know: "
            "read it with the release that wrote it, or a newer one"
        )


class PartialArchive(ArchiveError):
    """The file has only some events, and all are needed."""

    def __init__(self, path: Path, selected: str) -> None:
        super().__init__(
            f"{path} is a selection ({selected}): a state can't be built from it, nor can it be imported; "
            "export without --from, --job and --type"
        )
