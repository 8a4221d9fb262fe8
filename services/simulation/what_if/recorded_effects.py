"""The results of masters' effects after a place in a log, and when they came. A simulation repeats them.

If a result had not come when its leader was deposed, the result of the successor is known: it comes at its time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from ....schemas import dispatcher, job_master, resource_manager
from ....schemas.body import Body
from ....schemas.event import Record
from ...core.role import Instruction, Time
from ...dispatcher.checkpoints import DisposeSavepoint
from ...dispatcher.role import BuildJobGraph
from ...job_master.instructions import (
    CreateChannels,
    DeleteChannels,
    DiscardCheckpoint,
    FindCheckpoint,
    MeasureTasks,
    RemoveCheckpoints,
    WriteMetadata,
)
from ...job_master.state import StartedJob
from ...resource_manager.instructions import StartWorkerProcess
from ..task_behavior import delay_until

EffectKey = tuple[str, object]
"""(the effect, of which job, checkpoint, path or TaskExecutor)."""
_INSTRUCTIONS: Mapping[type, tuple[str, *tuple[str, ...]]] = {
    CreateChannels: ("create", "job_id"),
    DeleteChannels: ("delete", "job_id"),
    BuildJobGraph: ("build", "job_id"),
    FindCheckpoint: ("find", "job_id"),
    MeasureTasks: ("measure", "job_id"),
    DiscardCheckpoint: ("discard", "job_id", "checkpoint_id"),
    RemoveCheckpoints: ("remove", "job_id"),
    DisposeSavepoint: ("dispose", "path"),
    StartWorkerProcess: ("start", "resource_id"),
}
"""Instruction -> its effect, and the fields that identify it; WriteMetadata besides."""
_RESULTS: Mapping[type, tuple[str, *tuple[str, ...]]] = {
    job_master.ChannelsCreated: ("create", "job_id"),
    job_master.ChannelsFailed: ("create", "job_id"),
    job_master.ChannelsDeleted: ("delete", "job_id"),
    dispatcher.JobGraphBuilt: ("build", "job_id"),
    dispatcher.JobGraphFailed: ("build", "job_id"),
    job_master.CheckpointRestored: ("find", "job_id"),
    job_master.RestoreFailed: ("find", "job_id"),
    job_master.TasksMeasured: ("measure", "job_id"),
    job_master.CheckpointAborted: ("metadata", "job_id", "checkpoint_id"),
    job_master.CheckpointDiscarded: ("discard", "job_id", "checkpoint_id"),
    job_master.CheckpointsRemoved: ("remove", "job_id"),
    dispatcher.SavepointDisposed: ("dispose", "path"),
    resource_manager.WorkerStarted: ("start", "resource_id"),
}
"""Event of a shell -> the same; also CheckpointCompleted."""
_LATENCY_ONLY = (
    job_master.ChannelsCreated,
    job_master.ChannelsDeleted,
    job_master.CheckpointCompleted,
    job_master.CheckpointDiscarded,
    job_master.CheckpointsRemoved,
    resource_manager.WorkerStarted,
)
"""Results that only report completion."""


class RecordedEffect(msgspec.Struct, frozen=True):
    """A result that came at `at`, `after` its instruction was issued."""

    after: Time
    at: Time
    body: Body


class RecordedEffects:
    """`on_event` takes the events in order; then `take_effect` returns the recorded results."""

    def __init__(self, start: Time) -> None:
        self._start = start
        self._known: dict[EffectKey, deque[RecordedEffect]] = {}
        self._given: dict[str, RecordedEffect] = {}
        """By the key of the instruction."""
        self._acknowledged: dict[EffectKey, Time] = {}
        """Since when the metadata of a checkpoint has to be written."""
        self.corrupt_uris: set[str] = set()
        """Directories that could not be read."""

    def on_event(self, record: Record, now: Time, asked: Time | None) -> None:
        """The next event; `asked`: the time of its cause, None before the place."""
        body = record.body
        match body:
            case job_master.CheckpointAborted() | dispatcher.JobGraphFailed() if record.header.decided:
                return
            case job_master.CheckpointRestored(passed_over=passed_over):
                self.corrupt_uris.update(passed_over)
            case _:
                pass
        key = _result_key(body)
        if key is not None:
            self._add(key, body, now, self._acknowledged.pop(key, asked))

    def on_worker_start_failed(
        self, body: resource_manager.WorkerLost, now: Time, asked: Time | None
    ) -> None:
        """A worker's process could not be started."""
        self._add(("start", body.resource_id), body, now, asked)

    def follow(self, state: StartedJob, now: Time) -> None:
        """The state of a job after an acknowledgement or the end of a task."""
        for number, pending in state.checkpoints.pending.items():
            if pending.is_acknowledged:
                self._acknowledged.setdefault(("metadata", (state.job_id, number)), now)

    def _add(self, key: EffectKey, body: Body, now: Time, asked: Time | None) -> None:
        after = now - (self._start if asked is None else asked)
        self._known.setdefault(key, deque()).append(RecordedEffect(after, now, body))

    def take_effect(self, instruction: Instruction, now: Time) -> tuple[Time, Body | None] | None:
        """Returns the recorded result of an instruction (master_effects.FindRecordedEffect); each result once."""
        key = _instruction_key(instruction)
        again = self._given.get(instruction.key)
        if again is not None:
            return max(0, again.at - now), _body(again)
        known = None if key is None else self._known.get(key)
        if isinstance(instruction, MeasureTasks):
            # What tasks did earlier says nothing about now.
            while known and known[0].at < now:
                known.popleft()
        if not known:
            return None
        result = self._given[instruction.key] = known.popleft()
        if result.at - result.after <= now <= result.at:
            # Its cause may be older than its request.
            return result.at - now, _body(result)
        if isinstance(instruction, MeasureTasks):
            return result.at - now, result.body
        return delay_until(now, result.after, result.at), _body(result)


def _body(result: RecordedEffect) -> Body | None:
    return None if isinstance(result.body, _LATENCY_ONLY) else result.body


def _instruction_key(instruction: Instruction) -> EffectKey | None:
    if isinstance(instruction, WriteMetadata):
        return "metadata", (instruction.job_id, instruction.pending.checkpoint_id)
    return _key(instruction, _INSTRUCTIONS)


def _result_key(body: Body) -> EffectKey | None:
    if isinstance(body, job_master.CheckpointCompleted):
        return "metadata", (body.job_id, body.checkpoint.checkpoint_id)
    return _key(body, _RESULTS)


def _key(value: object, kinds: Mapping[type, tuple[str, *tuple[str, ...]]]) -> EffectKey | None:
    found = kinds.get(type(value))
    if found is None:
        return None
    effect, *names = found
    parts = tuple(getattr(value, name) for name in names)
    return effect, parts if len(parts) > 1 else parts[0]
