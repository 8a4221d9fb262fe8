"""A FULL file: all state of a subtask, with a section for each operator and range of key groups.

The ranges are small enough that a subtask that takes over some key groups reads little more than it needs.

A forked child writes the file, and must not use a client of a storage. If storage is not the local file system, the
child writes a temporary file, and the parent uploads it.
"""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol

import msgspec

from .....infra.storage.errors import CheckpointError
from .....infra.storage.storage import Storage
from .....schemas.types import StateFile
from ....checkpoint.state_files import ANY, Sections
from ...common.failures import TaskError
from ...state_backend.stateful import Stateful
from .fork_worker import ForkedWork

Files = Mapping[str, tuple[StateFile, ...]]
"""By operator id: the files in the order to apply. Operators without state are absent."""

MAX_SECTIONS: Final = 16
"""The limit of ranges of key groups for one operator."""
SECTION_BYTES: Final = 256 << 10
"""Smaller neighbouring ranges share a section."""
MAX_SECTION_BYTES: Final = 16 << 20
"""A range with more has several sections: this much is in memory while it is written."""

FULL: Final = ".full"
"""The suffix of such files."""
_CHUNK_BYTES: Final = 8 << 20


class FullSnapshotWrite(Protocol):
    """Work in another process."""

    @property
    def result(self) -> Future[bytes]:
        """Returns the future result; TaskError if the work failed."""

    def kill(self) -> None:
        """Stops the work."""


class FullSnapshotFile:
    """A FULL file that is being written to storage."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        fork: Callable[[ForkedWork], FullSnapshotWrite],
        stateful: Mapping[str, Stateful],
        key_groups: range,
    ) -> None:
        """Starts writing the state as it is now: `fork` runs work on that state."""
        self._storage = storage
        self._path = path
        self._files: Future[Files] = Future()
        self._writing: FullSnapshotWrite | None = None
        try:
            self._scratch = None if storage.can_append else tempfile.mkdtemp(prefix="state-")
        except OSError as error:
            self._files.set_exception(TaskError(f"state could not be written: {error}"))
            return
        target = storage if self._scratch is None else Storage(self._scratch)
        here = path if self._scratch is None else posixpath.join(self._scratch, posixpath.basename(path))

        def work(progress: Callable[[], None]) -> bytes:
            return msgspec.msgpack.encode(write_full_snapshot(target, here, stateful, key_groups, progress))

        self._writing = fork(work)
        self._writing.result.add_done_callback(self._written)

    @property
    def is_done(self) -> bool:
        """Whether `files` returns without waiting."""
        return self._files.done()

    @property
    def has_failed(self) -> bool:
        """Whether the write has ended without a file."""
        return self.is_done and self._files.exception() is not None

    def files(self) -> Files:
        """Waits until the file is in storage. Raises TaskError if that fails."""
        return self._files.result()

    def kill(self) -> None:
        """Stops the write, if it has not ended."""
        if self._writing is not None:
            self._writing.kill()

    def _written(self, written: Future[bytes]) -> None:
        try:
            files = msgspec.msgpack.decode(written.result(), type=dict[str, tuple[StateFile, ...]])
            if self._scratch is not None and files:
                self._upload(Path(self._scratch, posixpath.basename(self._path)))
                name = self._storage.relative(self._path)
                files = {
                    operator_id: tuple(msgspec.structs.replace(file, path=name) for file in some)
                    for operator_id, some in files.items()
                }
        except Exception as error:
            with suppress(CheckpointError):
                self._storage.delete(self._path)
            known = isinstance(error, TaskError)
            self._files.set_exception(error if known else TaskError(f"state could not be written: {error}"))
        else:
            self._files.set_result(files)
        finally:
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _upload(self, source: Path) -> None:
        with source.open("rb") as file, self._storage.create(self._path) as target:
            while chunk := file.read(_CHUNK_BYTES):
                target.write(chunk)


class NotBegun(FullSnapshotFile):
    """A FULL file whose write was not started."""

    def __init__(self, reason: str) -> None:
        self._writing = None
        self._files = Future()
        self._files.set_exception(TaskError(f"state could not be written: {reason}"))


def split_sections(key_groups: range) -> list[range]:
    """Divides key groups into ranges of about the same size."""
    count = min(MAX_SECTIONS, len(key_groups))
    bounds = [key_groups.start + len(key_groups) * i // count for i in range(count + 1)] if count else []
    return [range(start, stop) for start, stop in pairwise(bounds)]


def write_full_snapshot(
    storage: Storage,
    path: str,
    stateful: Mapping[str, Stateful],
    key_groups: range,
    progress: Callable[[], None] = lambda: None,
) -> Files:
    """Writes the file. Raises StorageError, RecordTypeError, and any error of pickling a user's value."""
    sections = split_sections(key_groups)
    files: dict[str, tuple[StateFile, ...]] = {}
    with Sections(storage, path) as file:
        for operator_id, owner in stateful.items():
            if written := tuple(_write_operator(file, operator_id, owner, sections, progress)):
                files[operator_id] = written
    return files


def _write_operator(
    file: Sections,
    operator_id: str,
    owner: Stateful,
    sections: list[range],
    progress: Callable[[], None],
) -> list[StateFile]:
    written: list[StateFile] = []
    unkeyed: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    covered: range | None = None
    for section, message in owner.full(sections):
        progress()
        if section is None:
            unkeyed.append(message)
            continue
        if unkeyed:
            written.append(file.add(operator_id, unkeyed))
            unkeyed = []
        is_next = covered is not None and section.start >= covered.stop
        if covered is not None and size >= (SECTION_BYTES if is_next else MAX_SECTION_BYTES):
            written.append(file.add(operator_id, waiting, covered.start, covered.stop - 1))
            waiting, size, covered = [], 0, None
        waiting.append(message)
        size += len(message)
        covered = section if covered is None else range(covered.start, section.stop)
    if unkeyed:
        written.append(file.add(operator_id, unkeyed, ANY, ANY))
    if covered is not None:
        written.append(file.add(operator_id, waiting, covered.start, covered.stop - 1))
    return written
