"""The files that jobs ship, on a TaskExecutor, while the jobs have tasks there.

There is one directory for each job and content, so equal names of two jobs do not conflict. A StreamTask's process, and
a Python worker of Spark, imports from its job's directory before it loads anything else of the job.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....schemas.types import PythonFile
from ...graph.archives import package_directories
from ...graph.errors import ProgramError
from ...graph.python_files import unpack
from ..common.failures import TaskError


class UserFiles:
    """The directories below `root`, which is emptied first. For one thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._users: dict[str, int] = {}
        shutil.rmtree(root, ignore_errors=True)

    def enter(
        self, job_id: str, files: Sequence[PythonFile], blobs: Mapping[str, str] | None = None
    ) -> str | None:
        """Records that a task of the job begins. Returns the directory of the job's files; None if it ships none.

        `blobs`: key -> the local file with the content, for files that are blobs. Raises TaskError.
        """
        if not files:
            return None
        directory = self._root / f"{job_id}-{_digest(files)}"
        path = str(directory)
        if path not in self._users:
            try:
                unpack(files, directory, blobs)
                package_directories(directory)
            except (OSError, ProgramError) as error:
                shutil.rmtree(directory, ignore_errors=True)
                raise TaskError(f"the files that the job ships can't be unpacked: {error}") from error
        self._users[path] = self._users.get(path, 0) + 1
        return path

    def leave(self, path: str | None) -> None:
        """Records that a task with this directory has ended. The end of the last one removes the directory."""
        if path is None:
            return
        self._users[path] -= 1
        if self._users[path] == 0:
            del self._users[path]
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Removes all directories."""
        self._users.clear()
        shutil.rmtree(self._root, ignore_errors=True)


def _digest(files: Sequence[PythonFile]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda shipped: shipped.path):
        for part in (file.path.encode(), file.content, (file.blob or "").encode(), bytes([file.archive])):
            found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()
