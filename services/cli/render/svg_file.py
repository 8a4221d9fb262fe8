"""Writes SVG files that commands draw."""

from __future__ import annotations

from pathlib import Path

from ..exit_codes import CommandFailure, ExitCode
from .output import print_progress

_ENDING = ".svg"


def write_svg(path: Path, svg: str) -> None:
    """Writes the picture, over an older one at most, and tells so. Raises CommandFailure where it can't."""
    if path.exists() and path.suffix.lower() != _ENDING:
        raise CommandFailure(ExitCode.USAGE, f"{path} is there already, and is no picture: call it {_ENDING}")
    try:
        path.write_text(svg, "utf-8")
    except OSError as error:
        raise CommandFailure(
            ExitCode.USAGE, f"{path} cannot be written: {error.strerror or error}"
        ) from error
    print_progress(f"{path} is written: open it in a browser")
