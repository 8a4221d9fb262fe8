"""The accumulators of a job: all that its subtasks have committed counts once, whatever happens to their attempts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.accumulators import MAX_ACCUMULATORS, total
from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import ExecutionState, JobStatus, RestoredCheckpoint, SnapshotType
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.instructions import WriteMetadata

from ...graphs import edge, job_graph, source, vertex
from . import checkpointed
from .checkpointed import Checkpointed
from .driver import JOB, Job, bodies, running

GRAPH = job_graph(source(), vertex("sink", parallelism=2), edge("source", "sink"))
FOR_EVER = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0 s",
}
SUBTASKS = [("source", 0), ("sink", 0), ("sink", 1)]
FAILED, FINISHED, RUNNING = ExecutionState.FAILED, ExecutionState.FINISHED, ExecutionState.RUNNING

counts = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 5), max_size=2)
moves = st.lists(
    st.tuples(st.sampled_from(["fail", "fail untold", "lose"]), st.sampled_from(SUBTASKS), counts),
    max_size=12,
)


def reached(job: Job) -> dict[str, float]:
    """Returns the accumulators that the JobMaster reports at the end."""
    (end,) = bodies(job.send(), dispatcher.JobReachedTerminalState)
    return dict(end.accumulators)


def again(job: Job) -> None:
    """Restarts failed and lost tasks, in new slots if needed."""
    job.tick(1)
    job.give("te-1")
    job.runs()
    job.send()


@given(moves)
def test_committed_values_count_once(story: list[tuple[str, tuple[str, int], dict[str, int]]]) -> None:
    job = running(GRAPH, FOR_EVER)
    committed: dict[tuple[str, int], Counter[str]] = {subtask: Counter() for subtask in SUBTASKS}
    for move, subtask, counted in story:
        committed[subtask].update(counted)
        match move:
            case "fail":
                job.report(job.execution(*subtask), FAILED, "broken", committed[subtask])
            case "fail untold":
                job.report(job.execution(*subtask), FAILED, "the process of its StreamTask died")
            case _:
                job.lose("te-1")
        again(job)
    for subtask in SUBTASKS:
        job.report(job.execution(*subtask), FINISHED, None, committed[subtask])
    assert reached(job) == sum(committed.values(), Counter[str]())


def test_attempt_before_restore_reduces_no_value() -> None:
    job = running(GRAPH, FOR_EVER)
    job.report(job.execution("sink"), FAILED, "broken", {"a": 3, "b": 1})
    again(job)
    job.report(job.execution("sink"), FAILED, "it can't be started")
    again(job)
    job.report(job.execution("sink"), FAILED, "broken", {"a": 4})
    again(job)
    for subtask in SUBTASKS:
        job.report(job.execution(*subtask), FINISHED)
    assert reached(job) == {"a": 4, "b": 1}


def test_failed_job_reports_accumulators() -> None:
    job = running(GRAPH, {"restart-strategy.type": "none"})
    job.report(job.execution("sink"), FAILED, "broken", {"a": 3})
    job.send()
    for subtask in (("source", 0), ("sink", 1)):
        job.report(job.execution(*subtask), ExecutionState.CANCELED, None, {"a": 1})
    assert reached(job) == {"a": 5}


@pytest.mark.parametrize("sent", range(4))
def test_failure_of_job_master_after_end_of_job_keeps_result(sent: int) -> None:
    """Whichever events of the end are in the log by then."""
    job = running(GRAPH, FOR_EVER)
    for subtask in SUBTASKS:
        job.report(job.execution(*subtask), FINISHED, None, {"a": 2})
    job.change_status()
    ends = job.owed()[:sent]
    for event in ends:
        job.receive(JOB, event.body, recipient=event.recipient, cause=event.cause)
    job.receive(JOB, job_master.JobMasterFailed(job_id="j", reason="a fault in its code"))
    (end,) = bodies([*ends, *job.send()], dispatcher.JobReachedTerminalState)
    assert (end.status, end.accumulators) == (JobStatus.FINISHED, {"a": 6})


def test_report_of_ended_attempt_does_not_count() -> None:
    job = running(GRAPH, FOR_EVER)
    old = job.execution("sink")
    job.report(old, FAILED, "broken", {"a": 1})
    again(job)
    before = job.state
    with pytest.raises(IllegalEvent):
        job.report(old, FINISHED, None, {"a": 100})
    assert job.state == before


def test_invalid_parts_of_report_are_ignored() -> None:
    job = running(GRAPH, FOR_EVER)
    many = {f"{number:04}": 1.0 for number in range(2 * MAX_ACCUMULATORS)}
    wrong = {"": 1.0, "x" * 999: 1.0, "n": float("inf"), "m": float("nan")}
    for subtask, output in zip(SUBTASKS, (many, wrong, {"0000": 1.0, "zzz": 1.0}), strict=True):
        job.report(job.execution(*subtask), FINISHED, None, output)
    result = reached(job)
    assert list(result) == sorted(many)[:MAX_ACCUMULATORS]
    assert result["0000"] == 2


def test_running_attempt_counts_when_it_ends() -> None:
    job = running(GRAPH, FOR_EVER)
    job.report(job.execution("sink"), RUNNING, None, {"a": 100})
    for subtask in SUBTASKS:
        job.report(job.execution(*subtask), FINISHED, None, {"a": 1})
    assert reached(job) == {"a": 3}


def test_values_of_finished_subtasks_in_savepoint_count_in_restored_jobs() -> None:
    first = checkpointed.running()
    for index in (0, 1):
        first.report(first.execution("source", index), FINISHED, None, {"a": 2})
    values: dict[str, float] = {}
    job: Checkpointed = first
    for start in range(3):
        if start:
            job = begins_with(values)
        job.ask(SnapshotType.SAVEPOINT)
        job.send()
        job.acknowledged_by_all()
        demand = job.demanded(WriteMetadata)
        values = total(
            subtask.state.accumulators
            for subtask in demand.pending.subtasks(demand.counted)
            if subtask.finished
        )
        assert values == {"a": 4}
        job.written()
    for execution in job.executions():
        if execution.state is RUNNING:
            job.report(execution, FINISHED, None, {"a": 1})
    assert reached(job) == {"a": 6}


def begins_with(counted: dict[str, float]) -> Checkpointed:
    """Returns another job, which starts from a savepoint in which the sources had finished."""
    job = Checkpointed(checkpointed.GRAPH, checkpointed.PERIODIC, savepoint_path="file:///s/savepoint-1")
    job.assemble()
    event = job_master.CheckpointRestored(
        job_id="j",
        checkpoint=RestoredCheckpoint(checkpoint_id=7, uri="file:///s/savepoint-1", generation=-1),
        finished={"source": (0, 1)},
        accumulators=counted,
    )
    job.answer_search(event)
    job.send()
    job.runs()
    for index in (0, 1):
        job.report(job.execution("source", index), FINISHED)
    job.send()
    return job
