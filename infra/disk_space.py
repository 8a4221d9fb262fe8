"""Whether a disk is full. A process that cannot write cannot say so either where its log is on the same disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

MIN_FREE_BYTES: Final = 1 << 20


def describe_shortage(path: Path) -> str:
    """What to say where less than 1 MiB is free on the disk of the path; empty where there is room, or nobody knows."""
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return ""
    if free >= MIN_FREE_BYTES:
        return ""
    return (
        f"; the disk of {path} is full ({free:,} bytes are free): free some space, then `tailrace cluster start` goes "
        "on from what was committed"
    )
