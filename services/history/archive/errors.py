"""What can be wrong with an exported file, each in one line for a person."""

from __future__ import annotations

from pathlib import Path


class ArchiveError(Exception):
    """A file that can't be used as a log."""


class NotAnArchive(ArchiveError):
    """It is missing, or no export at all, or one that this release can't read."""


class CorruptArchive(ArchiveError):
    """It was one, but is torn or changed; `last_good` is the last offset before the damage, -1 for none."""

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
    """It holds an event that this release does not know."""

    def __init__(self, path: Path, offset: int, name: str) -> None:
        super().__init__(
            f"{path} has an event of the type {name!r} at offset {offset}, which this release does not know: "
            "read it with the release that wrote it, or a newer one"
        )


class PartialArchive(ArchiveError):
    """It leaves events out, where all are needed."""

    def __init__(self, path: Path, selected: str) -> None:
        super().__init__(
            f"{path} is a selection ({selected}): a state can't be built from it, nor can it be imported; "
            "export without --from, --job and --type"
        )
