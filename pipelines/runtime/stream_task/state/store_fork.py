"""Forks a process that reads the state of a database as of the fork.

A database must not be used behind a fork: its threads and locks are not those of the child. So the task writes a copy
first, as links to the database's files, and the child opens that.
"""

from __future__ import annotations

import shutil
from concurrent.futures import Future

from ...common.failures import StateDiskError, TaskError
from ...state_backend.rocksdb_database import RocksDatabase
from .fork_worker import ForkedWork, ForkedWorker
from .full_snapshot import FullSnapshotWrite


class _NotForked:
    def __init__(self, error: StateDiskError) -> None:
        self.result: Future[bytes] = Future()
        self.result.set_exception(TaskError(f"state could not be written: {error}"))

    def kill(self) -> None:
        """Does nothing."""


def fork_with_database(database: RocksDatabase, work: ForkedWork) -> FullSnapshotWrite:
    """Runs work in a forked child. If there can be no copy, the result is the error."""
    try:
        copy = database.create_copy()
    except StateDiskError as error:
        return _NotForked(error)

    def run(progress: object) -> bytes:
        database.read_copy(copy)
        return work(progress)  # type: ignore[arg-type]

    worker = ForkedWorker(run)
    worker.result.add_done_callback(lambda _: shutil.rmtree(copy, ignore_errors=True))
    return worker
