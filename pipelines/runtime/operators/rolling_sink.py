"""The part that sinks have in common whose records are state (files/pending_files.py) until they are published: as
files (file_sink.py), or as a user's transactions (transactional_sink.py).

The task's transaction writes the records to the changelog. After a file is closed and that is committed, the sink
publishes it from the changelog's bytes. After a crash in between, the next attempt does it at its first commit. The
cost: records travel through Kafka once more, and stay in memory until their file is closed.

A file is closed at its most records, when it is old, at the commit at which it has its most bytes, and at the end.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ..records.batch import Batch, concatenate
from ..records.buffers import MAX_WATERMARK
from ..state_backend.stateful import Origin
from .files.pending_files import PendingFile, PendingFiles
from .operator import Operator, OperatorSetup

ROLL_BYTES: Final = 64 << 20
"""The size of the encoded records of a file, which are in memory."""


class RollLimits(msgspec.Struct, frozen=True):
    """When a file is closed; None: without this limit."""

    records: int | None
    size: int
    """In encoded bytes."""
    age_ms: int | None
    """After its first record, by the wall clock."""
    inactivity_ms: int | None = None
    """After its last one."""


class _OpenFile:
    """What fills the open file of a bucket."""

    def __init__(self, opened_at: int, records: int = 0) -> None:
        self.opened_at = opened_at
        self.last_at = opened_at
        self.records = records
        """With those that are only gathered."""
        self.gathered: list[Batch] = []


class RollingSink(Operator):
    """Fills, closes and publishes the files of one subtask, at most one open file for each bucket."""

    def __init__(self, setup: OperatorSetup, limits: RollLimits, form: bytes) -> None:
        """`form`: how chunks are encoded, as stored with each file."""
        self._setup = setup
        self._limits = limits
        self._form = form
        self._files = PendingFiles(self._name, form)
        self._origins: list[PendingFiles] = []
        self._from_origin = False
        self._open: dict[str, _OpenFile] = {}
        """By bucket, the one that was written last at the end."""
        self._has_closed = False

    def restore(self, message: bytes) -> None:
        (self._origins[-1] if self._from_origin else self._files).restore(message)

    def restore_from(self, origin: Origin | None) -> None:
        self._from_origin = origin is not None
        if origin is not None:
            self._origins.append(PendingFiles(self._name, self._form))
        else:
            self._files.take_in(self._origins)
            self._origins.clear()

    def open(self) -> None:
        self._files.own()
        self._has_closed = bool(self._files.closed)
        for bucket, file in self._files.open_files.items():
            self._open[bucket] = _OpenFile(file.opened_at, file.records)

    @property
    def next_clock(self) -> int:
        return min(map(self._due_at, self._open.values()), default=MAX_WATERMARK)

    def advance_clock(self, clock: int) -> None:
        self._close_old()

    def before_commit(self) -> None:
        for bucket in self._open:
            self._fill(bucket)
        files = self._files.open_files
        for bucket in [bucket for bucket, file in files.items() if file.size >= self._limits.size]:
            self._close(bucket)
        self._close_old()

    def finish(self) -> None:
        for bucket in list(self._open):
            self._close(bucket)

    @property
    def wants_commit(self) -> bool:
        return self._has_closed

    def take_changes(self) -> Iterable[bytes]:
        self._has_closed = False
        return self._files.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._files.full())

    def committed(self) -> None:
        for file in self._files.closed:
            self._publish(file)
            self._files.published(file.number)

    @abstractmethod
    def _name(self, number: int, bucket: str) -> str:
        """Returns the name of a new file."""

    @abstractmethod
    def _encode(self, batch: Batch) -> bytes:
        """Returns records as a chunk."""

    @abstractmethod
    def _publish(self, file: PendingFile) -> None:
        """Publishes a closed file, whose close is committed. It may have been published before."""

    def _gather(self, batch: Batch, bucket: str = "") -> None:
        """Takes records of one bucket."""
        start, now, most = 0, self._setup.wall_clock(), self._limits.records
        while start < len(batch):
            file = self._open.pop(bucket, None) or _OpenFile(now)
            self._open[bucket] = file
            # A savepoint may be of a job with larger files.
            stop = len(batch) if most is None else min(len(batch), start + max(1, most - file.records))
            file.gathered.append(batch if stop - start == len(batch) else batch.slice(start, stop))
            file.records += stop - start
            file.last_at = now
            if most is not None and file.records >= most:
                self._close(bucket)
            start = stop

    def _close(self, bucket: str) -> None:
        self._fill(bucket)
        del self._open[bucket]
        self._files.close(bucket)
        self._has_closed = True

    def _fill(self, bucket: str) -> None:
        """Encodes the gathered records of a bucket as a chunk."""
        file = self._open[bucket]
        if file.gathered:
            batch = concatenate(file.gathered)
            self._files.fill(len(batch), self._encode(batch), file.opened_at, bucket)
            file.gathered.clear()

    def _close_old(self) -> None:
        now = self._setup.wall_clock()
        for bucket in [bucket for bucket, file in self._open.items() if now > self._due_at(file)]:
            self._close(bucket)

    def _due_at(self, file: _OpenFile) -> int:
        """Returns the last moment at which an open file is not old (ms)."""
        age_ms, inactivity_ms = self._limits.age_ms, self._limits.inactivity_ms
        by_age = MAX_WATERMARK if age_ms is None else file.opened_at + age_ms - 1
        by_rest = MAX_WATERMARK if inactivity_ms is None else file.last_at + inactivity_ms - 1
        return min(by_age, by_rest)


def name_sink(setup: OperatorSetup, digits: int) -> str:
    """Returns the hexadecimal digits that distinguish this sink from those of other jobs and operators."""
    names = f"{setup.cluster}/{setup.job_id}/{setup.config.operator_id}"
    return hashlib.sha256(names.encode()).hexdigest()[:digits]
