"""Detects a full disk. A process cannot report it in its log if the log is on the same disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

MIN_FREE_BYTES: Final = 1 << 20


def describe_shortage(path: Path) -> str:
    """Returns a message if less than 1 MiB is free on the disk of the path; empty if there is room, or it is
    unknown."""
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return ""
    if free >= MIN_FREE_BYTES:
        return ""
    return (
        f"; the disk of {path} is full ({free:,} bytes are free): free some space, then `tailrace cluster start` "
        "continues from the committed state"
    )
