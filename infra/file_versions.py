"""Notices that files with passwords, keys or certificates have been replaced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileVersions = tuple[tuple[int, int, int], ...]


def versions_of(paths: Iterable[Path]) -> FileVersions:
    """Returns a value that changes when one of the files changes, appears or is gone."""
    return tuple(_version(path) for path in paths)


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ino, found.st_size
