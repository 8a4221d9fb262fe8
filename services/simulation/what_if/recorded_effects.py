"""What shells of masters answered behind a place in a log, and when: so they answer where they are asked again.

Of an answer that had not come when its leader was deposed, the successor's is known: it comes at its time, or not to
who asked first.
"""

from __future__ import annotations

from collections import deque

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
    RemoveCheckpoints,
    WriteMetadata,
)
from ...job_master.state import JobMasterState
from ...resource_manager.instructions import StartWorkerProcess
from ..task_behavior import step_delay

InstructionKey = tuple[str, object]
"""(what is demanded, of whom)."""
_LATENCY_ONLY = (
    job_master.ChannelsCreated,
    job_master.ChannelsDeleted,
    job_master.CheckpointCompleted,
    job_master.CheckpointDiscarded,
    job_master.CheckpointsRemoved,
    resource_manager.WorkerStarted,
)
"""Answers that say no more than that it is done."""


class RecordedEffect(msgspec.Struct, frozen=True):
    """Given at `at`, `after` it was asked for."""

    after: Time
    at: Time
    body: Body


class RecordedEffects:
    """`see` takes events in order; then `told` says what is to be answered."""

    def __init__(self, start: Time) -> None:
        self._start = start
        self._known: dict[InstructionKey, deque[RecordedEffect]] = {}
        self._given: dict[str, RecordedEffect] = {}
        """By the key of the instruction."""
        self._acknowledged: dict[InstructionKey, Time] = {}
        """Since when the metadata of a checkpoint are to be written."""
        self.torn: set[str] = set()
        """Directories that were passed over because they can't be read."""

    def on_event(self, record: Record, now: Time, asked: Time | None) -> None:
        """The next event; `asked`: when its cause was said, where that is behind the place."""
        body = record.body
        match body:
            case job_master.CheckpointAborted() if record.header.decided:
                return
            case job_master.CheckpointRestored(passed_over=passed_over):
                self.torn.update(passed_over)
            case _:
                pass
        question = _answered_key(body)
        if question is not None:
            self._answer(question, body, now, self._acknowledged.pop(question, asked))

    def on_worker_start_failed(
        self, body: resource_manager.WorkerLost, now: Time, asked: Time | None
    ) -> None:
        """A worker's process could not be started."""
        self._answer(("start", body.resource_id), body, now, asked)

    def follow(self, state: JobMasterState, now: Time) -> None:
        """A part of a checkpoint came, or a task ended: the job's state since."""
        for number, pending in state.checkpoints.pending.items():
            if pending.is_acknowledged:
                self._acknowledged.setdefault(("metadata", (state.job_id, number)), now)

    def _answer(self, question: InstructionKey, body: Body, now: Time, asked: Time | None) -> None:
        after = now - (self._start if asked is None else asked)
        self._known.setdefault(question, deque()).append(RecordedEffect(after, now, body))

    def take_effect(self, instruction: Instruction, now: Time) -> tuple[Time, Body | None] | None:
        """What the shell answered when it was asked this (simulation.masters.Told); each answer is given once."""
        question = _instruction_key(instruction)
        again = self._given.get(instruction.key)
        if again is not None:
            return max(0, again.at - now), _body(again)
        known = None if question is None else self._known.get(question)
        if not known:
            return None
        answer = self._given[instruction.key] = known.popleft()
        if answer.at - answer.after <= now <= answer.at:
            # Its cause may have been there before it was asked for.
            return answer.at - now, _body(answer)
        return step_delay(now, answer.after, answer.at), _body(answer)


def _body(answer: RecordedEffect) -> Body | None:
    return None if isinstance(answer.body, _LATENCY_ONLY) else answer.body


def _instruction_key(instruction: Instruction) -> InstructionKey | None:
    match instruction:
        case CreateChannels(job_id=job_id):
            return "create", job_id
        case DeleteChannels(job_id=job_id):
            return "delete", job_id
        case BuildJobGraph(job_id=job_id):
            return "build", job_id
        case FindCheckpoint(job_id=job_id):
            return "find", job_id
        case WriteMetadata(job_id=job_id, pending=pending):
            return "metadata", (job_id, pending.checkpoint_id)
        case DiscardCheckpoint(job_id=job_id, checkpoint_id=number):
            return "discard", (job_id, number)
        case RemoveCheckpoints(job_id=job_id):
            return "remove", job_id
        case DisposeSavepoint(path=path):
            return "dispose", path
        case StartWorkerProcess(resource_id=resource_id):
            return "start", resource_id
        case _:
            return None


def _answered_key(body: Body) -> InstructionKey | None:
    match body:
        case job_master.ChannelsCreated(job_id=job_id) | job_master.ChannelsFailed(job_id=job_id):
            return "create", job_id
        case job_master.ChannelsDeleted(job_id=job_id):
            return "delete", job_id
        case dispatcher.JobGraphBuilt(job_id=job_id) | dispatcher.JobGraphFailed(job_id=job_id):
            return "build", job_id
        case job_master.CheckpointRestored(job_id=job_id) | job_master.RestoreFailed(job_id=job_id):
            return "find", job_id
        case job_master.CheckpointCompleted(job_id=job_id, checkpoint=checkpoint):
            return "metadata", (job_id, checkpoint.checkpoint_id)
        case job_master.CheckpointAborted(job_id=job_id, checkpoint_id=number):
            return "metadata", (job_id, number)
        case job_master.CheckpointDiscarded(job_id=job_id, checkpoint_id=number):
            return "discard", (job_id, number)
        case job_master.CheckpointsRemoved(job_id=job_id):
            return "remove", job_id
        case dispatcher.SavepointDisposed(path=path):
            return "dispose", path
        case resource_manager.WorkerStarted(resource_id=resource_id):
            return "start", resource_id
        case _:
            return None
