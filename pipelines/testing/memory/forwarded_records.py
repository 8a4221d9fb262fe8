"""Takes what a worker of Spark forwards, for an attempt in the same thread."""

from __future__ import annotations

import sys

from ...runtime.common.failures import TaskError
from ...runtime.common.protocol import (
    NO_SKIPPED_RECORDS,
    SKIPPED,
    SKIPPED_COUNTS,
    TIMED,
    TIMED_RECORDS,
    SkippedRecords,
)
from ...runtime.spark.partition_forwarder import PartitionPosition
from ...runtime.stream_task.loop.subtask import Subtask


class ForwardedRecords:
    """The DataReceivers of one attempt."""

    def __init__(self, task: Subtask) -> None:
        self._task = task

    def leads(self, path: str) -> bool:
        return True

    def announce(self, path: str, place: PartitionPosition) -> None:
        pass

    def send(self, path: str, kind: int, place: PartitionPosition, *content: bytes) -> None:
        skipped, greatest = NO_SKIPPED_RECORDS, None
        if kind == SKIPPED_COUNTS:
            skipped = SkippedRecords._make(SKIPPED.unpack(content[0]))
        elif kind == TIMED_RECORDS:
            *counts, greatest = TIMED.unpack(content[0])
            skipped = SkippedRecords._make(counts)
        where = place.input_index, place.partition, place.first, place.following
        self._task.take_records(*where, content[-1], skipped, greatest)

    def fail(self, path: str, place: PartitionPosition, reason: str) -> None:
        """Raises the error that the worker handles; a cluster has only its text."""
        raise sys.exception() or TaskError(reason)
