"""A job with checkpoints: the test sends the events of its tasks and of its shell."""

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
    SubtaskAcknowledgement,
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
    """TaskExecutors send nothing by themselves: the test sends their events."""

    @property
    def checkpoints(self) -> Checkpoints:
        result: Checkpoints = self.state.checkpoints
        return result

    @property
    def pending(self) -> PendingCheckpoint:
        """Returns the pending checkpoint."""
        (checkpoint,) = self.checkpoints.pending.values()
        return checkpoint

    def ask(self, snapshot_type: SnapshotType = SnapshotType.CHECKPOINT, **how: object) -> int:
        """Sends a client's request; returns its offset."""
        body = job_master.TriggerCheckpoint(
            job_id="j",
            snapshot_type=snapshot_type,
            requester="client/me",
            **how,  # type: ignore[arg-type]
        )
        return self.receive("dispatcher", body)

    def acknowledge(
        self,
        execution: Execution,
        number: int | None = None,
        size: int = 7,
        accumulators: Mapping[str, float] | None = None,
    ) -> int:
        body = job_master.AcknowledgeCheckpoint(
            job_id="j",
            checkpoint_id=self.pending.checkpoint_id if number is None else number,
            acknowledgements=(
                SubtaskAcknowledgement(
                    execution_attempt_id=execution.execution_attempt_id,
                    metrics=CheckpointMetrics(),
                    subtask_state=SubtaskState(
                        changelog_offset=execution.subtask_index, size=size, accumulators=accumulators or {}
                    ),
                ),
            ),
        )
        return self.receive(f"task_executor/{execution.resource_id}", body)

    def decline(self, execution: Execution, reason: str = "no space left") -> int:
        body = job_master.DeclineCheckpoint(
            job_id="j",
            execution_attempt_id=execution.execution_attempt_id,
            checkpoint_id=self.pending.checkpoint_id,
            reason=reason,
        )
        return self.receive(f"task_executor/{execution.resource_id}", body)

    def acknowledged_by_all(self) -> None:
        """All expected tasks acknowledge the checkpoint."""
        for execution in self.executions():
            if execution.execution_attempt_id in self.pending.awaited:
                self.acknowledge(execution)

    def written(self) -> list[OutgoingEvent]:
        """The shell reports that the metadata is written; returns the events that follow."""
        self.write()
        return self.send()

    def write(self, number: int | None = None) -> int:
        """The shell reports that the metadata is written; nothing is sent in response yet."""
        (pending,) = [
            demand.pending
            for demand in self.demands(WriteMetadata)
            if number is None or number == demand.pending.checkpoint_id
        ]
        checkpoint = CompletedCheckpoint(
            checkpoint_id=pending.checkpoint_id,
            snapshot_type=pending.options.snapshot_type,
            uri=pending.options.directory,
            generation=pending.generation,
            size=sum(subtask.state.size for subtask in pending.subtasks()),
        )
        return self.receive(JOB, job_master.CheckpointCompleted(job_id="j", checkpoint=checkpoint))

    def not_written(self, reason: str = "disk full") -> list[OutgoingEvent]:
        """The shell reports that it could not write the metadata."""
        pending = self.demanded(WriteMetadata).pending
        body = job_master.CheckpointAborted(
            job_id="j",
            checkpoint_id=pending.checkpoint_id,
            failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
            reason=reason,
        )
        self.receive(JOB, body)
        return self.send()

    def checkpoint(self) -> CompletedCheckpoint:
        """Runs the next checkpoint from trigger to completion, and discards what it subsumes."""
        if self.state.options.checkpointing.interval is None:
            self.ask()
            self.send()
        else:
            self.tick(10)
        self.acknowledged_by_all()
        self.written()
        self.discarded()
        return self.checkpoints.completed[-1]

    def discarded(self) -> None:
        """The shell deletes the checkpoints that it has to discard."""
        for number in sorted(self.checkpoints.discarding):
            self.receive(JOB, job_master.CheckpointDiscarded(job_id="j", checkpoint_id=number))

    def ends(
        self, *executions: Execution, state: ExecutionState = ExecutionState.CANCELED
    ) -> list[OutgoingEvent]:
        """Tasks end: by default all that were told to."""
        for execution in executions or self.executions():
            if execution.state is ExecutionState.CANCELING or executions:
                self.report(execution, state)
        return self.send()

    def restored(
        self,
        checkpoint: RestoredCheckpoint | None,
        passed_over: Mapping[str, str] | None = None,
        finished: Mapping[str, tuple[int, ...]] | None = None,
    ) -> list[OutgoingEvent]:
        """The shell finds a checkpoint; returns the events that follow."""
        body = job_master.CheckpointRestored(
            job_id="j", checkpoint=checkpoint, passed_over=passed_over or {}, finished=finished or {}
        )
        self.answer_search(body)
        events = self.send()
        if self.state.generation and self.demands(CreateChannels):
            # What is gone is made anew; until then nothing is submitted.
            assert not any(isinstance(owed.body, task_executor.SubmitTask) for owed in events)
            self.receive(JOB, job_master.ChannelsCreated(job_id="j"))
            events += self.send()
        return events

    def answer_search(self, body: job_master.CheckpointRestored | job_master.RestoreFailed) -> int:
        """The shell reports the result of its search for a checkpoint."""
        causes = [demand.cause for demand in self.demands(FindCheckpoint)]
        return self.receive(JOB, body, cause=causes[0] if causes else None)

    def demanded(self, kind: type[I]) -> I:
        """Returns the only instruction of a kind."""
        (result,) = self.demands(kind)
        return result

    def demands(self, kind: type[I]) -> list[I]:
        return [
            instruction for instruction in self.role.instructions(self.state) if isinstance(instruction, kind)
        ]


def running(
    configuration: Mapping[str, str] = PERIODIC,
    graph: JobGraph = GRAPH,
    resource_ids: tuple[str, ...] = ("te-1",),
) -> Checkpointed:
    """Returns a job whose tasks all run, and with no checkpoint due."""
    job = Checkpointed(graph, configuration)
    job.assemble(resource_ids)
    job.runs()
    job.send()
    return job


__all__ = ["Checkpointed", "bodies", "running"]
