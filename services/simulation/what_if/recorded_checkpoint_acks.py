"""The parts that subtasks had in checkpoints behind a place in a log: which came when, which were declined, and which
had not come when the checkpoint was over."""

from __future__ import annotations

import msgspec

from ....schemas import job_master
from ....schemas.event import Record
from ...core.role import Time
from ..task_behavior import CheckpointContribution, Subtask, step_delay

CheckpointKey = tuple[str, int]
"""(job, checkpoint)."""


class _RecordedAck(msgspec.Struct, frozen=True):
    at: Time
    declined: str | None


class RecordedCheckpointAcks:
    """`see` takes events in order, `done` ends it; then `of` says what became of a part."""

    def __init__(self) -> None:
        self._triggered: dict[CheckpointKey, Time] = {}
        self._parts: dict[tuple[CheckpointKey, Subtask], _RecordedAck] = {}
        self._over: dict[CheckpointKey, Time] = {}
        self._end: Time = 0

    def on_triggered(self, job_id: str, checkpoint_id: int, now: Time) -> None:
        """A checkpoint was triggered, or was under way at the place."""
        self._triggered.setdefault((job_id, checkpoint_id), now)

    def on_event(self, record: Record, now: Time, subtask: Subtask | None) -> None:
        """The next event; `subtask`: whose Execution it is about."""
        body = record.body
        match body:
            case job_master.CheckpointTriggered(job_id=job_id, checkpoint_id=number):
                self.on_triggered(job_id, number, now)
            case job_master.AcknowledgeCheckpoint(job_id=job_id, checkpoint_id=number):
                self._on_ack((job_id, number), subtask, _RecordedAck(now, None))
            case job_master.DeclineCheckpoint(job_id=job_id, checkpoint_id=number, reason=reason):
                if not record.header.decided:
                    self._on_ack((job_id, number), subtask, _RecordedAck(now, reason))
            case job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint):
                self._over.setdefault((job_id, checkpoint.checkpoint_id), now)
            case job_master.CheckpointAborted(job_id=job_id, checkpoint_id=number):
                self._over.setdefault((job_id, number), now)
            case _:
                pass

    def finish(self, end: Time) -> None:
        """Nothing is known of what was behind that time."""
        self._end = end

    def take_ack(
        self, subtask: Subtask, checkpoint_id: int, usual: CheckpointContribution, now: Time
    ) -> CheckpointContribution:
        """What becomes of the part of a subtask that is told now."""
        key = subtask[0], checkpoint_id
        triggered = self._triggered.get(key)
        if triggered is None:
            return usual
        part = self._parts.get((key, subtask))
        if part is not None:
            return CheckpointContribution(step_delay(now, part.at - triggered, part.at), part.declined)
        # It came too late, or never.
        at = self._over.get(key, self._end) + 1
        return CheckpointContribution(max(usual.after, step_delay(now, at - triggered, at)))

    def _on_ack(self, key: CheckpointKey, subtask: Subtask | None, part: _RecordedAck) -> None:
        if subtask is not None:
            self._parts.setdefault((key, subtask), part)
