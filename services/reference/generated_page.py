"""Writes or checks a page that is generated from the code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, target: str, arguments: Sequence[str]) -> int:
    """Writes the page. With `--check` it writes nothing, and returns 1 if the page differs from `text`. `target`: the
    target of make that writes it."""
    if "--check" not in arguments:
        path.write_text(text, "utf-8")
        return 0
    if path.exists() and path.read_text("utf-8") == text:
        return 0
    print(f"{path.parent.name}/{path.name} is out of date: run `make {target}`", file=sys.stderr)
    return 1
