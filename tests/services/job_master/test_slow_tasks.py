"""Slow tasks of a stage move to slots that other tasks have left, on another TaskExecutor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailrace.schemas import job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus

from .driver import Job, bodies, submissions
from .test_stages import BATCH, NO_DELAY, RESTARTS, finish, line

OPTIONS = {
    **BATCH,
    **RESTARTS,
    **NO_DELAY,
    "execution.batch.speculative.enabled": "true",
    "slow-task-detector.execution-time.baseline-lower-bound": "1 s",
}


def with_slow_task(
    options: Mapping[str, str] = OPTIONS, finished: int = 3, executors: tuple[str, ...] = ("te-1", "te-2")
) -> Job:
    """Returns a job of which all sources run, and so many have finished after 10 s; the first is slow."""
    job = Job(line(4), options)
    job.assemble(executors)
    job.runs()
    job.tick(10)
    for index in range(4 - finished, 4):
        job.report(job.execution("source", index), ExecutionState.FINISHED)
    job.send()
    return job


def test_slow_task_continues_on_another_task_executor() -> None:
    job = with_slow_task()
    slow = job.execution("source")
    assert job.role.deadline(job.state) == slow.since + 15_000_000
    assert not submissions(job.tick(4.9))
    events = job.tick(0.2)
    (move,) = bodies(events, job_master.SlowTaskDetected)
    assert move.execution_attempt_id == slow.execution_attempt_id
    assert "runs for 15.1 s, and others for 10.0 s" in move.reason
    (task,) = submissions(events)
    assert (task.vertex_id, task.subtask_index, task.attempt_number) == ("source", 0, 1)
    assert [each.allocation_id for each in bodies(events, task_executor.FreeSlot)] == [slow.allocation_id]
    again = job.execution("source")
    assert slow.resource_id != again.resource_id
    for _ in ("source", "middle", "sink"):
        finish(job)
        job.send()
        job.give("te-1", "te-2")
    assert job.state.status is JobStatus.FINISHED


def test_task_moves_once() -> None:
    job = with_slow_task()
    job.tick(6)
    job.runs()
    assert not bodies(job.tick(1_000), job_master.SlowTaskDetected)


@pytest.mark.parametrize(
    ("changes", "finished", "executors"),
    [
        ({"execution.batch.speculative.enabled": "false"}, 3, ("te-1", "te-2")),
        ({"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED"}, 3, ("te-1", "te-2")),
        ({"slow-task-detector.execution-time.baseline-lower-bound": "1 h"}, 3, ("te-1", "te-2")),
        ({}, 2, ("te-1", "te-2")),
        ({}, 3, ("te-1",)),
    ],
    ids=["disabled", "not in stages", "too early", "too few have finished", "no other TaskExecutor"],
)
def test_task_stays(changes: dict[str, str], finished: int, executors: tuple[str, ...]) -> None:
    job = with_slow_task({**OPTIONS, **changes}, finished, executors)
    assert not bodies(job.tick(40), job_master.SlowTaskDetected)


def test_job_keeps_as_many_available_slots_as_tasks_run() -> None:
    options = {**OPTIONS, "slow-task-detector.execution-time.baseline-lower-bound": "1 h"}
    job = with_slow_task(options)
    freed = bodies(job.tick(1_000), task_executor.FreeSlot)
    assert len(freed) == 2
    assert len(job.state.slots.idle) == 1
    assert job.role.deadline(job.state) is None or job.role.deadline(job.state) > job.now


def test_decision_is_void_if_slot_was_lost_since() -> None:
    job = with_slow_task()
    slow = job.execution("source")
    job.now += 6_000_000
    (move,) = bodies(job.owed(), job_master.SlowTaskDetected)
    target = job.state.slots.slots[move.allocation_id]
    job.lose(target.resource_id)
    job.receive("job_master/j", move)
    assert job.execution("source") == slow


def test_moved_task_fails_like_any_other() -> None:
    job = with_slow_task()
    job.tick(6)
    job.runs()
    job.report(job.execution("source"), ExecutionState.FAILED, "it failed")
    (task,) = submissions(job.send())
    assert task.attempt_number == 2
