"""What a client makes of the answers to a request for a checkpoint: its own are told from all others."""

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
    SubtaskState,
)
from tailrace.services.client import CheckpointFailedError, Incident, JobIncidentTracker
from tailrace.services.client.checkpoint_requests import CheckpointProgress, CheckpointRequest

from ..simulated_cluster.cluster import header

ME, OTHER = "client/me", "client/other"
DONE = CompletedCheckpoint(checkpoint_id=3, snapshot_type=SnapshotType.SAVEPOINT, uri="file:///s")


class Hearing:
    """A request of `client/me` for a savepoint of job j, and a log of what it hears."""

    def __init__(self) -> None:
        self.request = CheckpointRequest("j", ME)
        self.offset = -1

    def hear(self, body: Body, recipient: str = "job_master/j") -> CompletedCheckpoint | None:
        self.offset += 1
        return self.request.on_event(Record(self.offset, header("job_master/j", recipient), body))

    def ask(self, requester: str = ME, job_id: str = "j") -> int:
        self.hear(
            job_master.TriggerCheckpoint(
                job_id=job_id, snapshot_type=SnapshotType.SAVEPOINT, requester=requester
            )
        )
        return self.offset

    def trigger(self, *requests: int, checkpoint_id: int = 3, job_id: str = "j") -> None:
        self.hear(
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
        self.hear(
            job_master.AcknowledgeCheckpoint(
                job_id="j",
                execution_attempt_id=attempt,
                checkpoint_id=checkpoint_id,
                metrics=CheckpointMetrics(),
                subtask_state=SubtaskState(),
            )
        )


def test_who_is_awaited_is_known_from_the_trigger_to_the_answer() -> None:
    talk = Hearing()
    assert not talk.request.heard
    asked = talk.ask()
    assert talk.request.heard
    assert talk.request.progress is None
    talk.trigger(asked)
    assert talk.request.progress == CheckpointProgress(3, 3, ("a", "b", "c"))
    talk.acknowledge("b")
    talk.acknowledge("b")
    talk.acknowledge("stranger")
    talk.acknowledge("a", checkpoint_id=2)
    assert talk.request.progress == CheckpointProgress(3, 3, ("a", "c"))
    talk.hear(
        job_master.UpdateTaskExecutionState(
            job_id="j", execution_attempt_id="c", execution_state=ExecutionState.FINISHED
        )
    )
    assert talk.request.progress == CheckpointProgress(3, 3, ("a",))
    assert talk.hear(client.CheckpointSucceeded(job_id="j", checkpoint=DONE), ME) == DONE


def test_what_others_asked_for_is_not_taken_for_ones_own() -> None:
    talk = Hearing()
    talk.trigger()
    talk.trigger(talk.ask(OTHER))
    talk.trigger(talk.ask(job_id="k"), job_id="k")
    assert not talk.request.heard
    assert talk.request.progress is None
    assert talk.hear(client.CheckpointSucceeded(job_id="j", checkpoint=DONE), OTHER) is None
    assert talk.hear(client.CheckpointFailed(job_id="j", reason="no"), OTHER) is None
    assert talk.hear(client.CheckpointSucceeded(job_id="k", checkpoint=DONE), ME) is None


def test_a_refusal_is_an_error_with_its_reason() -> None:
    with pytest.raises(CheckpointFailedError, match="job j is being cancelled"):
        Hearing().hear(client.CheckpointFailed(job_id="j", reason="job j is being cancelled"), ME)


def test_the_end_of_the_job_is_kept_whenever_it_is_heard() -> None:
    talk = Hearing()
    talk.hear(client.JobStatusChanged(job_id="j", status=JobStatus.RUNNING), "client")
    assert talk.request.ended is None
    talk.hear(client.JobStatusChanged(job_id="k", status=JobStatus.FINISHED), "client")
    assert talk.request.ended is None
    talk.hear(client.JobStatusChanged(job_id="j", status=JobStatus.FINISHED), "client")
    assert talk.request.ended is JobStatus.FINISHED


def told(*bodies: Body) -> list[Incident]:
    records = [
        Record(number, header("job_master/j", "job_master/j"), body) for number, body in enumerate(bodies)
    ]
    return JobIncidentTracker("j").on_event(records)


def aborted(failure: CheckpointFailureReason, job_id: str = "j") -> Body:
    return job_master.CheckpointAborted(
        job_id=job_id, checkpoint_id=4, failure=failure, reason="disk full\nat state.py:3"
    )


def test_whoever_runs_a_job_is_told_of_checkpoints_that_fail_by_themselves_and_of_what_tasks_begin_with() -> (
    None
):
    assert told(
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
        Incident("file:///j/chk-3 is passed over: file:///j/chk-3/0 is torn"),
        Incident("all tasks begin with checkpoint 2, file:///j/chk-2"),
    ]
