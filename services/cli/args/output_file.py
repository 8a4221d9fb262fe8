"""Where a log is written to, as people say it: in which format, and over nothing that is there unasked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ...history.archive.formats import ArchiveFormat

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]


def check_free(path: Path, source: Path | None, *, overwrite: bool) -> None:
    """Raises Failure where the file may not be written. `source`: the file that is read meanwhile."""
    if path.is_dir():
        raise CommandFailure(ExitCode.USAGE, f"{path} is a directory: name the file")
    if not path.exists():
        return
    if source is not None and source.exists() and path.samefile(source):
        raise CommandFailure(ExitCode.USAGE, f"{path} can't be written over itself: name another file")
    if not overwrite:
        raise CommandFailure(ExitCode.USAGE, f"{path} is there already: --overwrite replaces it")


def archive_format(path: Path, kind: str | None = None) -> ArchiveFormat:
    """The one that is named, or that the file's name says. Raises Failure."""
    from ...history.archive.formats import ArchiveFormat

    if kind is None:
        found = ArchiveFormat.from_name(path)
        if found is None:
            endings = ", ".join(f".{each}" for each in ArchiveFormat)
            raise CommandFailure(
                ExitCode.USAGE, f"the name of {path} says no format: end it with one of {endings}"
            )
        return found
    try:
        return ArchiveFormat(kind.lower())
    except ValueError:
        known = ", ".join(ArchiveFormat)
        raise CommandFailure(ExitCode.USAGE, f"there is no format {kind!r}: there are {known}") from None
