"""The files that jobs ship, on a TaskExecutor, while the jobs have tasks there.

One directory for each job and content, so that equal names of two jobs do not meet. A StreamTask's process, and a
Python worker of Spark, imports from its job's directory before anything else of the job is loaded.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....schemas.types import PythonFile
from ...graph.errors import ProgramError
from ...graph.python_files import unpack
from ..common.failures import TaskError


class UserFiles:
    """The directories below `root`, which is emptied. For one thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._users: dict[str, int] = {}
        shutil.rmtree(root, ignore_errors=True)

    def enter(
        self, job_id: str, files: Sequence[PythonFile], blobs: Mapping[str, str] | None = None
    ) -> str | None:
        """A task of the job begins: the directory of its files, None where it ships none.

        `blobs`: key -> the local file with the content of those that are blobs. Raises TaskError.
        """
        if not files:
            return None
        directory = self._root / f"{job_id}-{_digest(files)}"
        path = str(directory)
        if path not in self._users:
            try:
                unpack(files, directory, blobs)
            except (OSError, ProgramError) as error:
                shutil.rmtree(directory, ignore_errors=True)
                raise TaskError(f"the files that the job ships can't be unpacked: {error}") from error
        self._users[path] = self._users.get(path, 0) + 1
        return path

    def leave(self, path: str | None) -> None:
        """A task that was given this directory has ended; the last one's end removes it."""
        if path is None:
            return
        self._users[path] -= 1
        if self._users[path] == 0:
            del self._users[path]
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Nobody needs any of them."""
        self._users.clear()
        shutil.rmtree(self._root, ignore_errors=True)


def _digest(files: Sequence[PythonFile]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for each in sorted(files, key=lambda file: file.path):
        for part in (each.path.encode(), each.content, (each.blob or "").encode()):
            found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()
