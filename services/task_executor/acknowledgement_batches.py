"""Collects the acknowledgements of a checkpoint, so that a TaskExecutor sends one event for all its tasks.

A checkpoint is complete when the last subtask has acknowledged, so nothing is gained by an event for each of them, and
the log of a job with many subtasks consists of little else. A batch is complete when all tasks of the job have
acknowledged that ran here at its first acknowledgement. A caller takes it earlier

- before any other event of one of these tasks, so that the log keeps the order in which things happened,
- after `LINGER_US`, so that the log shows which task a checkpoint waits for,
- when it has as many bytes as an event should have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from ...schemas import job_master
from ...schemas.types import SubtaskAcknowledgement

LINGER_US: Final = 1_000_000
"""How long an acknowledgement waits for those of other tasks, in microseconds."""
MAX_BATCH_BYTES: Final = 1 << 20
_size = msgspec.msgpack.Encoder().encode

Batch = tuple[job_master.AcknowledgeCheckpoint, int | None]
"""The event, and its cause."""


class _OpenBatch:
    def __init__(self, running: Iterable[str], now_us: int, cause: int | None) -> None:
        self.parts: list[SubtaskAcknowledgement] = []
        self.missing = set(running)
        self.due_us = now_us + LINGER_US
        self.cause = cause
        self.bytes = 0


class AcknowledgementBatches:
    """The acknowledgements of all jobs of a TaskExecutor that are not sent yet. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _OpenBatch] = {}

    def add(
        self,
        job_id: str,
        checkpoint_id: int,
        part: SubtaskAcknowledgement,
        *,
        running: Callable[[], Iterable[str]],
        cause: int | None,
        now_us: int,
    ) -> list[Batch]:
        """Adds an acknowledgement; returns the batches to send now.

        `running` returns the Executions of the job here; it is called for the first acknowledgement of a batch only.
        `now_us`: the time of a clock that does not go back.
        """
        key, size = (job_id, checkpoint_id), len(_size(part))
        ready: list[Batch] = []
        batch = self._open.get(key)
        if batch is not None and batch.bytes + size > MAX_BATCH_BYTES:
            ready.append(self._take(key))
            batch = None
        if batch is None:
            batch = self._open[key] = _OpenBatch(running(), now_us, cause)
        batch.parts.append(part)
        batch.bytes += size
        batch.missing.discard(part.execution_attempt_id)
        if not batch.missing:
            ready.append(self._take(key))
        return ready

    def take_job(self, job_id: str) -> list[Batch]:
        """Returns all batches of a job, to be sent before the next event of one of its tasks."""
        return [self._take(key) for key in [key for key in self._open if key[0] == job_id]]

    def take_due(self, now_us: int) -> list[Batch]:
        """Returns the batches that have waited for long enough."""
        return [self._take(key) for key in [key for key, each in self._open.items() if each.due_us <= now_us]]

    def due_us(self) -> int | None:
        """Returns when the next batch is due; None if there is none."""
        return min((batch.due_us for batch in self._open.values()), default=None)

    def take_all(self) -> Iterator[Batch]:
        """Yields all batches."""
        for key in list(self._open):
            yield self._take(key)

    def _take(self, key: tuple[str, int]) -> Batch:
        batch, (job_id, checkpoint_id) = self._open.pop(key), key
        event = job_master.AcknowledgeCheckpoint(
            job_id=job_id, checkpoint_id=checkpoint_id, acknowledgements=tuple(batch.parts)
        )
        return event, batch.cause
