"""A client distinguishes the answers to its own checkpoint request from all others."""

from __future__ import annotations

import pytest

from tailrace.schemas import client, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    ExecutionState,
    JobStatus,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskAcknowledgement,
    SubtaskState,
)
from tailrace.services.client import CheckpointFailedError, Incident, JobIncidentTracker
from tailrace.services.client.checkpoint_requests import CheckpointProgress, CheckpointRequest

from ..simulated_cluster.cluster import header

ME, OTHER = "client/me", "client/other"
DONE = CompletedCheckpoint(checkpoint_id=3, snapshot_type=SnapshotType.SAVEPOINT, uri="file:///s")


class Requester:
    """A request of `client/me` for a savepoint of job j, and the events that it receives."""

    def __init__(self) -> None:
        self.request = CheckpointRequest("j", ME)
        self.offset = -1

    def receive(self, body: Body, recipient: str = "job_master/j") -> CompletedCheckpoint | None:
        self.offset += 1
        return self.request.on_event(Record(self.offset, header("job_master/j", recipient), body))

    def ask(self, requester: str = ME, job_id: str = "j") -> int:
        self.receive(
            job_master.TriggerCheckpoint(
                job_id=job_id, snapshot_type=SnapshotType.SAVEPOINT, requester=requester
            )
        )
        return self.offset

    def trigger(self, *requests: int, checkpoint_id: int = 3, job_id: str = "j") -> None:
        self.receive(
            job_master.CheckpointTriggered(
                job_id=job_id,
                checkpoint_id=checkpoint_id,
                options=CheckpointOptions(
                    snapshot_type=SnapshotType.SAVEPOINT, directory="file:///s", shared="file:///s"
                ),
                to_trigger=("a",),
                to_acknowledge=("a", "b", "c"),
                requests=requests,
            )
        )

    def acknowledge(self, attempt: str, checkpoint_id: int = 3) -> None:
        self.receive(
            job_master.AcknowledgeCheckpoint(
                job_id="j",
                checkpoint_id=checkpoint_id,
                acknowledgements=(
                    SubtaskAcknowledgement(
                        execution_attempt_id=attempt,
                        metrics=CheckpointMetrics(),
                        subtask_state=SubtaskState(),
                    ),
                ),
            )
        )


def test_pending_tasks_are_known_from_trigger_to_answer() -> None:
    requester = Requester()
    assert not requester.request.is_acknowledged
    request = requester.ask()
    assert requester.request.is_acknowledged
    assert requester.request.progress is None
    requester.trigger(request)
    assert requester.request.progress == CheckpointProgress(3, 3, ("a", "b", "c"))
    requester.acknowledge("b")
    requester.acknowledge("b")
    requester.acknowledge("stranger")
    requester.acknowledge("a", checkpoint_id=2)
    assert requester.request.progress == CheckpointProgress(3, 3, ("a", "c"))
    requester.receive(
        job_master.UpdateTaskExecutionState(
            job_id="j", execution_attempt_id="c", execution_state=ExecutionState.FINISHED
        )
    )
    assert requester.request.progress == CheckpointProgress(3, 3, ("a",))
    assert requester.receive(client.CheckpointSucceeded(job_id="j", checkpoint=DONE), ME) == DONE


def test_requests_of_other_clients_are_ignored() -> None:
    requester = Requester()
    requester.trigger()
    requester.trigger(requester.ask(OTHER))
    requester.trigger(requester.ask(job_id="k"), job_id="k")
    assert not requester.request.is_acknowledged
    assert requester.request.progress is None
    assert requester.receive(client.CheckpointSucceeded(job_id="j", checkpoint=DONE), OTHER) is None
    assert requester.receive(client.CheckpointFailed(job_id="j", reason="no"), OTHER) is None
    assert requester.receive(client.CheckpointSucceeded(job_id="k", checkpoint=DONE), ME) is None


def test_rejection_is_error_with_reason() -> None:
    with pytest.raises(CheckpointFailedError, match="job j is being cancelled"):
        Requester().receive(client.CheckpointFailed(job_id="j", reason="job j is being cancelled"), ME)


def changed(job_id: str, status: JobStatus) -> client.JobStatusChanged:
    return client.JobStatusChanged(job_id=job_id, old_status=JobStatus.CREATED, status=status)


def test_end_of_job_is_recorded_whenever_it_arrives() -> None:
    requester = Requester()
    requester.receive(changed("j", JobStatus.RUNNING), "client")
    assert requester.request.ended is None
    requester.receive(changed("k", JobStatus.FINISHED), "client")
    assert requester.request.ended is None
    requester.receive(changed("j", JobStatus.FINISHED), "client")
    assert requester.request.ended is JobStatus.FINISHED


def incidents_of(*bodies: Body) -> list[Incident]:
    records = [
        Record(number, header("job_master/j", "job_master/j"), body) for number, body in enumerate(bodies)
    ]
    return JobIncidentTracker("j").on_event(records)


def aborted(failure: CheckpointFailureReason, job_id: str = "j") -> Body:
    return job_master.CheckpointAborted(
        job_id=job_id, checkpoint_id=4, failure=failure, reason="disk full\nat state.py:3"
    )


def test_submitter_learns_of_failed_checkpoints_and_restores() -> None:
    assert incidents_of(
        aborted(CheckpointFailureReason.CHECKPOINT_DECLINED),
        aborted(CheckpointFailureReason.TASK_FAILURE),
        aborted(CheckpointFailureReason.JOB_ENDED),
        aborted(CheckpointFailureReason.CHECKPOINT_EXPIRED, "k"),
        job_master.CheckpointRestored(
            job_id="j",
            checkpoint=RestoredCheckpoint(checkpoint_id=2, uri="file:///j/chk-2", generation=0),
            passed_over={"file:///j/chk-3": "file:///j/chk-3/0 is torn"},
        ),
        job_master.CheckpointRestored(job_id="j"),
        job_master.CheckpointRestored(job_id="k"),
    ) == [
        Incident("checkpoint 4 failed, CHECKPOINT_DECLINED: disk full", "at state.py:3"),
        Incident("file:///j/chk-3 is skipped: file:///j/chk-3/0 is torn"),
        Incident("all tasks restart from checkpoint 2, file:///j/chk-2"),
    ]
