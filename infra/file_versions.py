"""Notices that files with passwords, keys or certificates have been replaced."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_INTERVAL_S: Final = 2.0
FileVersions = tuple[tuple[int, int, int], ...]


def versions_of(paths: Iterable[Path]) -> FileVersions:
    """Returns a value that changes when one of the files changes, appears or is gone."""
    return tuple(_version(path) for path in paths)


class FileWatch:
    """Notices, within some seconds, that one of the files has changed. Used from one thread at a time."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._versions = versions_of(self._paths)
        self._looked_at = time.monotonic()

    def has_changed(self) -> bool:
        """Returns whether a file has changed since the creation or the last call that returned True."""
        now = time.monotonic()
        if not self._paths or now - self._looked_at < _INTERVAL_S:
            return False
        self._looked_at = now
        before, self._versions = self._versions, versions_of(self._paths)
        return self._versions != before


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ino, found.st_size
