"""The output file of an export: its format, and the check that it does not replace a file without --overwrite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ...history.archive.formats import ArchiveFormat

Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]


def check_free(path: Path, source: Path | None, *, overwrite: bool) -> None:
    """Raises CommandFailure if the file may not be written. `source` is the file that the command reads."""
    if path.is_dir():
        raise CommandFailure(ExitCode.USAGE, f"{path} is a directory: name the file")
    if not path.exists():
        return
    if source is not None and source.exists() and path.samefile(source):
        raise CommandFailure(
            ExitCode.USAGE, f"{path} is the file to read, so it can't be replaced: name another file"
        )
    if not overwrite:
        raise CommandFailure(ExitCode.USAGE, f"{path} already exists: --overwrite replaces it")


def archive_format(path: Path, kind: str | None = None) -> ArchiveFormat:
    """Returns the format `kind`, or the format of the file's suffix. Raises CommandFailure for an unknown format."""
    from ...history.archive.formats import ArchiveFormat

    if kind is None:
        found = ArchiveFormat.from_name(path)
        if found is None:
            suffixes = ", ".join(f".{known}" for known in ArchiveFormat)
            raise CommandFailure(
                ExitCode.USAGE, f"the name of {path} has no known suffix: use one of {suffixes}"
            )
        return found
    try:
        return ArchiveFormat(kind.lower())
    except ValueError:
        known = ", ".join(ArchiveFormat)
        raise CommandFailure(ExitCode.USAGE, f"there is no format {kind!r}: use one of {known}") from None
