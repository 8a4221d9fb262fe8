"""A job that takes checkpoints: what its tasks and its shell say of them, and what is seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CompletedCheckpoint,
    ExecutionState,
    JobGraph,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskState,
)
from tailrace.services.core.role import Instruction, OutgoingEvent
from tailrace.services.job_master.checkpoints.pending_checkpoint import PendingCheckpoint
from tailrace.services.job_master.checkpoints.state import Checkpoints
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint, WriteMetadata
from tailrace.services.job_master.state import Execution

from ...graphs import edge, job_graph, source, vertex
from .driver import JOB, Job, bodies

I = TypeVar("I", bound=Instruction)  # noqa: E741

GRAPH = job_graph(source(parallelism=2), vertex("sink", parallelism=2), edge("source", "sink"))
DIRECTORIES = {"state.checkpoints.dir": "file:///c", "state.savepoints.dir": "file:///s"}
ON_REQUEST = {
    **DIRECTORIES,
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "9",
    "restart-strategy.fixed-delay.delay": "2 s",
}
PERIODIC = {**ON_REQUEST, "execution.checkpointing.interval": "10 s"}


class Checkpointed(Job):
    """Its TaskExecutors answer nothing of themselves: the test says what they say."""

    @property
    def checkpoints(self) -> Checkpoints:
        return self.state.checkpoints

    @property
    def pending(self) -> PendingCheckpoint:
        """The one that is under way."""
        (found,) = self.checkpoints.pending.values()
        return found

    def ask(self, snapshot_type: SnapshotType = SnapshotType.CHECKPOINT, **how: object) -> int:
        """A client's request; returns its offset."""
        body = job_master.TriggerCheckpoint(
            job_id="j",
            snapshot_type=snapshot_type,
            requester="client/me",
            **how,  # type: ignore[arg-type]
        )
        return self.tell("dispatcher", body)

    def acknowledge(
        self,
        execution: Execution,
        number: int | None = None,
        size: int = 7,
        accumulators: Mapping[str, float] | None = None,
    ) -> int:
        body = job_master.AcknowledgeCheckpoint(
            job_id="j",
            execution_attempt_id=execution.execution_attempt_id,
            checkpoint_id=self.pending.checkpoint_id if number is None else number,
            metrics=CheckpointMetrics(),
            subtask_state=SubtaskState(
                changelog_offset=execution.subtask_index, size=size, accumulators=accumulators or {}
            ),
        )
        return self.tell(f"task_executor/{execution.resource_id}", body)

    def decline(self, execution: Execution, reason: str = "no space left") -> int:
        body = job_master.DeclineCheckpoint(
            job_id="j",
            execution_attempt_id=execution.execution_attempt_id,
            checkpoint_id=self.pending.checkpoint_id,
            reason=reason,
        )
        return self.tell(f"task_executor/{execution.resource_id}", body)

    def acknowledged_by_all(self) -> None:
        """All who are awaited do their part."""
        for execution in self.executions():
            if execution.execution_attempt_id in self.pending.awaited:
                self.acknowledge(execution)

    def written(self) -> list[OutgoingEvent]:
        """The shell has written the metadata; returns what follows."""
        self.write()
        return self.say()

    def write(self, number: int | None = None) -> int:
        """The shell has written the metadata, and nobody has said anything to that."""
        (pending,) = [
            each.pending
            for each in self.demands(WriteMetadata)
            if number is None or number == each.pending.checkpoint_id
        ]
        checkpoint = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            snapshot_type=pending.options.snapshot_type,
            uri=pending.options.directory,
            generation=pending.generation,
            size=sum(each.state.size for each in pending.subtasks()),
        )
        return self.tell(JOB, job_master.CheckpointCompleted(job_id="j", checkpoint=checkpoint))

    def not_written(self, reason: str = "disk full") -> list[OutgoingEvent]:
        """The shell could not."""
        pending = self.demanded(WriteMetadata).pending
        body = job_master.CheckpointAborted(
            job_id="j",
            checkpoint_id=pending.checkpoint_id,
            failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
            reason=reason,
        )
        self.tell(JOB, body)
        return self.say()

    def checkpoint(self) -> CompletedCheckpoint:
        """The next one that is due, from its beginning to its end, and what it lets go."""
        if self.state.options.checkpointing.interval is None:
            self.ask()
            self.say()
        else:
            self.tick(10)
        self.acknowledged_by_all()
        self.written()
        self.discarded()
        return self.checkpoints.completed[-1]

    def discarded(self) -> None:
        """The shell deletes what it is told to."""
        for number in sorted(self.checkpoints.discarding):
            self.tell(JOB, job_master.CheckpointDiscarded(job_id="j", checkpoint_id=number))

    def ends(
        self, *executions: Execution, state: ExecutionState = ExecutionState.CANCELED
    ) -> list[OutgoingEvent]:
        """Tasks have ended; all that were told to, if none are named."""
        for each in executions or self.executions():
            if each.state is ExecutionState.CANCELING or executions:
                self.report(each, state)
        return self.say()

    def restored(
        self,
        checkpoint: RestoredCheckpoint | None,
        passed_over: Mapping[str, str] | None = None,
        finished: Mapping[str, tuple[int, ...]] | None = None,
    ) -> list[OutgoingEvent]:
        """The shell has found a checkpoint; returns what follows."""
        body = job_master.CheckpointRestored(
            job_id="j", checkpoint=checkpoint, passed_over=passed_over or {}, finished=finished or {}
        )
        self.answer_search(body)
        said = self.say()
        if self.state.generation and self.demands(CreateChannels):
            # What is gone is made anew; until then nothing is submitted.
            assert not any(isinstance(owed.body, task_executor.SubmitTask) for owed in said)
            self.tell(JOB, job_master.ChannelsCreated(job_id="j"))
            said += self.say()
        return said

    def answer_search(self, body: job_master.CheckpointRestored | job_master.RestoreFailed) -> int:
        """What the shell says of the checkpoint that is looked for."""
        causes = [each.cause for each in self.demands(FindCheckpoint)]
        return self.tell(JOB, body, cause=causes[0] if causes else None)

    def demanded(self, kind: type[I]) -> I:
        """The one instruction of a kind."""
        (found,) = self.demands(kind)
        return found

    def demands(self, kind: type[I]) -> list[I]:
        return [each for each in self.role.instructions(self.state) if isinstance(each, kind)]


def running(
    configuration: Mapping[str, str] = PERIODIC,
    graph: JobGraph = GRAPH,
    resource_ids: tuple[str, ...] = ("te-1",),
) -> Checkpointed:
    """A job all of whose tasks run, and none of whose checkpoints is due."""
    job = Checkpointed(graph, configuration)
    job.assemble(resource_ids)
    job.runs()
    job.say()
    return job


__all__ = ["Checkpointed", "bodies", "running"]
