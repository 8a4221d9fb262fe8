"""The checkpoints in the log: acknowledgements, results, and what storage still has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    ExecutionState,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskAcknowledgement,
    SubtaskState,
)
from tailrace.services.history import HistoryProjection
from tailrace.services.history.checkpoint_history import CheckpointHistory, CheckpointStatus, CheckpointView
from tailrace.services.history.cluster_view import checkpoints
from tailrace.services.job_master.state import StartedJob

from .. import scenarios_checkpoints
from ..simulated_cluster.cluster import Cluster, header

STORIES = [item for name, item in vars(scenarios_checkpoints).items() if name.startswith("a_")]

NAMES = {"a": "Source (1/1)", "b": "Count (1/2)", "c": "Count (2/2)"}


class Story:
    """The checkpoints of job j; each event is a millisecond after the one before."""

    def __init__(self) -> None:
        self.checkpoints = CheckpointHistory()
        self.time = 0

    def receive(self, body: Body) -> None:
        self.time += 1_000
        record = Record(self.time, header("job_master/j", "job_master/j", time=self.time), body)
        self.checkpoints.on_event(record, lambda attempt: NAMES[attempt])

    def trigger(
        self, number: int, *, awaited: tuple[str, ...] = ("a", "b"), finished: tuple[str, ...] = ()
    ) -> None:
        options = CheckpointOptions(
            snapshot_type=SnapshotType.CHECKPOINT, directory=f"file:///j/chk-{number}", shared="file:///s"
        )
        self.receive(
            job_master.CheckpointTriggered(
                job_id="j",
                checkpoint_id=number,
                options=options,
                to_trigger=awaited[:1],
                to_acknowledge=awaited,
                finished=finished,
            )
        )

    def acknowledge(self, number: int, attempt: str, size: int = 10) -> None:
        self.receive(
            job_master.AcknowledgeCheckpoint(
                job_id="j",
                checkpoint_id=number,
                acknowledgements=(
                    SubtaskAcknowledgement(
                        execution_attempt_id=attempt,
                        metrics=CheckpointMetrics(bytes_written=size),
                        subtask_state=SubtaskState(size=2 * size),
                    ),
                ),
            )
        )

    def complete(self, number: int) -> None:
        checkpoint = CompletedCheckpoint(
            checkpoint_id=number,
            snapshot_type=SnapshotType.CHECKPOINT,
            uri=f"file:///j/chk-{number}",
            size=99,
        )
        self.receive(job_master.CheckpointCompleted(job_id="j", checkpoint=checkpoint))

    def abort(self, number: int, reason: str = "too late") -> None:
        kind = CheckpointFailureReason.CHECKPOINT_EXPIRED
        self.receive(
            job_master.CheckpointAborted(job_id="j", checkpoint_id=number, failure=kind, reason=reason)
        )

    def only(self) -> CheckpointView:
        (view,) = self.checkpoints.for_job("j").checkpoints
        return view


def test_checkpoint_is_followed_from_trigger_to_end() -> None:
    story = Story()
    story.trigger(1, awaited=("a", "b"), finished=("c",))
    view = story.only()
    assert (view.status, view.triggered, view.ended) == (CheckpointStatus.IN_PROGRESS, 1_000, None)
    assert view.waiting_for == ["Source (1/1)", "Count (1/2)"]
    assert (view.acknowledged, len(view.subtasks)) == (1, 3)
    story.acknowledge(1, "b")
    story.acknowledge(1, "b", size=1_000)
    assert story.only().waiting_for == ["Source (1/1)"]
    assert story.only().bytes_written == 10
    story.acknowledge(1, "a")
    assert story.only().waiting_for == []
    story.complete(1)
    view = story.only()
    assert (view.status, view.ended, view.size) == (CheckpointStatus.COMPLETED, 5_000, 99)
    assert not view.discarded
    assert story.checkpoints.summary("j").last == CheckpointView(
        1, SnapshotType.CHECKPOINT, CheckpointStatus.COMPLETED, "file:///j/chk-1", 1_000, 5_000, size=99
    )
    story.receive(job_master.CheckpointDiscarded(job_id="j", checkpoint_id=1))
    assert story.only().discarded


def test_late_and_foreign_events_change_nothing() -> None:
    story = Story()
    story.trigger(1)
    story.acknowledge(1, "a")
    story.abort(1)
    ended = story.checkpoints.for_job("j")
    story.acknowledge(1, "b")
    story.acknowledge(7, "b")
    story.complete(1)
    story.complete(7)
    story.abort(1, "again")
    story.receive(job_master.CheckpointDiscarded(job_id="k", checkpoint_id=1))
    assert story.checkpoints.for_job("j") == ended
    assert (ended.completed, ended.failed) == (0, 1)
    assert ended.checkpoints[0].waiting_for == ["Count (1/2)"]
    assert (ended.checkpoints[0].failure, ended.checkpoints[0].reason) == ("CHECKPOINT_EXPIRED", "too late")
    assert story.checkpoints.for_job("k").checkpoints == ()


def test_finished_task_is_not_expected_and_decline_has_reason() -> None:
    story = Story()
    story.trigger(1)
    story.receive(
        job_master.UpdateTaskExecutionState(
            job_id="j", execution_attempt_id="a", execution_state=ExecutionState.FINISHED
        )
    )
    assert story.only().waiting_for == ["Count (1/2)"]
    story.receive(
        job_master.DeclineCheckpoint(
            job_id="j", execution_attempt_id="b", checkpoint_id=1, reason="no space left"
        )
    )
    assert story.only().subtasks[1].declined == "no space left"


def test_restored_checkpoint_is_last_one_reported() -> None:
    story = Story()
    assert story.checkpoints.for_job("j").restored is None
    checkpoint = RestoredCheckpoint(checkpoint_id=3, uri="file:///j/chk-3", generation=0)
    story.receive(
        job_master.CheckpointRestored(
            job_id="j", checkpoint=checkpoint, passed_over={"file:///j/chk-4": "is torn"}
        )
    )
    restored = story.checkpoints.for_job("j").restored
    assert restored is not None
    assert (restored.uri, restored.passed_over) == ("file:///j/chk-3", {"file:///j/chk-4": "is torn"})
    story.receive(job_master.RestoreFailed(job_id="j", reason="nothing is left"))
    restored = story.checkpoints.for_job("j").restored
    assert restored is not None
    assert restored.failure == "nothing is left"


def test_history_keeps_counts_last_thousand_and_stored_checkpoints() -> None:
    story = Story()
    for number in range(1, 1_502):
        story.trigger(number, awaited=("a",))
        story.acknowledge(number, "a")
        story.complete(number)
        if number > 5:
            story.receive(job_master.CheckpointDiscarded(job_id="j", checkpoint_id=number - 1))
    view = story.checkpoints.for_job("j")
    assert view.completed == 1_501
    numbers = [checkpoint.checkpoint_id for checkpoint in view.checkpoints]
    assert numbers[:4] == [1, 2, 3, 4]
    assert numbers[-990:] == list(range(512, 1_502))
    assert len(numbers) <= 1_010


@pytest.mark.parametrize("story", STORIES, ids=lambda story: str(story.__name__))
def test_history_agrees_with_job_masters_at_every_offset(story: Callable[[], Cluster]) -> None:
    fold = HistoryProjection()
    for record in story().log:
        fold.apply(record)
        for address, state in fold.replica.states.items():
            if isinstance(state, StartedJob):
                agree(fold, address.partition("/")[2], state)


def test_event_ignored_by_job_master_is_not_in_history() -> None:
    cluster = scenarios_checkpoints.a_job_goes_back_to_a_checkpoint()
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    before = checkpoints(fold, "j1")
    assert before.restored is not None
    me = "job_master/j1"
    stray = RestoredCheckpoint(checkpoint_id=9, uri="file:///j/chk-9", generation=0)
    for body in (
        job_master.CheckpointRestored(job_id="j1", checkpoint=stray),
        job_master.RestoreFailed(job_id="j1", reason="nothing is left"),
        job_master.CheckpointDiscarded(job_id="j1", checkpoint_id=1_000),
    ):
        for cause in (None, 0, len(cluster.log) - 1):
            cluster.send(me, me, body, cause=cause)
            fold.apply(cluster.log[-1])
            assert checkpoints(fold, "j1") == before


def agree(fold: HistoryProjection, job_id: str, state: StartedJob) -> None:
    view, known = checkpoints(fold, job_id), state.checkpoints
    under_way = [
        checkpoint for checkpoint in view.checkpoints if checkpoint.status is CheckpointStatus.IN_PROGRESS
    ]
    assert {checkpoint.checkpoint_id for checkpoint in under_way} == set(known.pending)
    for checkpoint_view in under_way:
        awaited = {part.execution_attempt_id for part in checkpoint_view.subtasks if part.awaited}
        assert awaited == set(known.pending[checkpoint_view.checkpoint_id].awaited)
    complete = [
        checkpoint for checkpoint in view.checkpoints if checkpoint.status is CheckpointStatus.COMPLETED
    ]
    savepoints = [
        checkpoint.uri for checkpoint in complete if checkpoint.snapshot_type is SnapshotType.SAVEPOINT
    ]
    assert savepoints == [savepoint.uri for savepoint in known.savepoints]
    in_storage = {item.uri for item in complete if not item.discarded}
    assert {completed_checkpoint.uri for completed_checkpoint in known.completed} <= in_storage
