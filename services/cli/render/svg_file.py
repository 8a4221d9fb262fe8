"""Pictures that commands draw: SVG files, for a browser."""

from __future__ import annotations

from pathlib import Path

from ..exit_codes import ExitCode, Failure
from .output import tell

_ENDING = ".svg"


def write_svg(path: Path, svg: str) -> None:
    """Writes the picture, over an older one at most, and tells so. Raises Failure where it can't."""
    if path.exists() and path.suffix.lower() != _ENDING:
        raise Failure(ExitCode.USAGE, f"{path} is there already, and is no picture: call it {_ENDING}")
    try:
        path.write_text(svg, "utf-8")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path} cannot be written: {error.strerror or error}") from error
    tell(f"{path} is written: open it in a browser")
