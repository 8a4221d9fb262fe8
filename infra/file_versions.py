"""Notices that files with passwords, keys or certificates have been replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

_INTERVAL_S: Final = 2.0
FileVersions = tuple[tuple[int, int, int], ...]


def versions_of(paths: Iterable[Path]) -> FileVersions:
    """Returns a value that changes when one of the files changes, appears or is gone."""
    return tuple(_version(path) for path in paths)


class FileWatch:
    """Notices, within some seconds, that one of the files has changed. Used from one thread at a time."""

    def __init__(self, paths: Iterable[Path], is_usable: Callable[[], bool] = lambda: True) -> None:
        """`is_usable`: whether the files can be read and fit together. A change counts when they can: they may be
        replaced one after another."""
        self._paths = tuple(paths)
        self._is_usable = is_usable
        self._versions = versions_of(self._paths)
        self._looked_at = time.monotonic()

    def has_changed(self) -> bool:
        """Returns whether a file has changed since the creation or the last call that returned True."""
        now = time.monotonic()
        if not self._paths or now - self._looked_at < _INTERVAL_S:
            return False
        self._looked_at = now
        versions = versions_of(self._paths)
        if versions == self._versions or not self._is_usable():
            return False
        self._versions = versions
        return True


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_ino, found.st_size
