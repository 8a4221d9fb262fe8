"""What an upgrade reads from the log of a simulated cluster, at every offset, and the steps that follow."""

from __future__ import annotations

from itertools import groupby

from tailrace.schemas import dispatcher
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.cli.execution.upgrade.observation import (
    find_last_savepoint,
    find_upgraded_job,
    has_started_from,
    read_job_facts,
    read_upgrade,
)
from tailrace.services.cli.execution.upgrade.steps import (
    Limits,
    Step,
    Upgrade,
    decide,
    fallback_id,
    successor_id,
)
from tailrace.services.history import HistoryProjection
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES

from ... import scenarios_checkpoints
from ...simulated_cluster.cluster import Cluster, graph
from ...simulated_cluster.jobs import with_options

LIMITS = Limits(timeout=60_000_000, stabilization=10_000_000)


def fold_of(cluster: Cluster) -> HistoryProjection:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    return fold


def seen_in(cluster: Cluster) -> Upgrade:
    seen = read_upgrade(fold_of(cluster), "j1")
    assert seen is not None
    return seen


def step_in(cluster: Cluster, later: int = 0) -> Step:
    return decide(seen_in(cluster), cluster.now + later, LIMITS).step


def stopped() -> tuple[Cluster, str]:
    """Returns a cluster whose job j1 was stopped, and the savepoint of it."""
    cluster = scenarios_checkpoints.a_job_stops_with_a_savepoint()
    savepoint = find_last_savepoint(fold_of(cluster), "j1")
    assert savepoint is not None
    return cluster, savepoint


def submit(cluster: Cluster, job_id: str, savepoint: str) -> None:
    wanted = with_options(graph(), DIRECTORIES)
    cluster.submit(job_id, wanted, savepoint_path=savepoint)
    cluster.settle()


def test_steps_at_each_offset_come_in_order() -> None:
    cluster, savepoint = stopped()
    submit(cluster, successor_id("j1", savepoint), savepoint)
    fold, steps = HistoryProjection(), []
    for record in cluster.log:
        fold.apply(record)
        if (seen := read_upgrade(fold, "j1")) is not None:
            steps.append(decide(seen, record.header.time, LIMITS).step)
    assert [step for step, _ in groupby(steps)] == [Step.STOP, Step.AWAIT_END, Step.SUBMIT, Step.WATCH]
    assert step_in(cluster, LIMITS.stabilization) is Step.DONE
    assert find_upgraded_job(fold, successor_id("j1", savepoint)) == "j1"
    assert find_upgraded_job(fold, "j1") is None


def test_failure_of_new_job_is_answered_by_cancellation_and_old_program() -> None:
    cluster, savepoint = stopped()
    new_id, back_id = successor_id("j1", savepoint), fallback_id("j1")
    submit(cluster, new_id, savepoint)
    running = seen_in(cluster).successor
    assert running is not None
    assert (running.runs_now, running.has_run, running.failed_at) == (True, True, None)
    executed = fold_of(cluster).executions.graph(new_id)
    assert executed is not None
    task = executed.attempts[0].execution_attempt_id
    cluster.report("task_executor/te-1", task, ExecutionState.FAILED, "planted\n  at line 1")
    cluster.settle()
    decision = decide(seen_in(cluster), cluster.now, LIMITS)
    assert decision.step is Step.CANCEL
    assert decision.reason.endswith(": planted")
    cluster.send("client/test", "dispatcher", dispatcher.CancelJob(job_id=new_id))
    cluster.settle()
    assert step_in(cluster) is Step.ROLL_BACK
    submit(cluster, back_id, savepoint)
    assert step_in(cluster) is Step.ROLLED_BACK
    assert find_upgraded_job(fold_of(cluster), back_id) == "j1"


def test_job_without_slots_is_not_stable_after_timeout() -> None:
    cluster, savepoint = stopped()
    new_id = successor_id("j1", savepoint)
    wanted = with_options(graph(9), DIRECTORIES)
    cluster.submit(new_id, wanted, savepoint_path=savepoint)
    cluster.settle()
    facts = read_job_facts(fold_of(cluster), new_id)
    assert facts is not None
    assert (facts.running_since, facts.has_run) == (None, False)
    decision = decide(seen_in(cluster), cluster.now + LIMITS.timeout, LIMITS)
    assert decision.step in (Step.CANCEL, Step.ROLL_BACK)
    assert decision.reason


def test_other_job_from_same_savepoint_is_found() -> None:
    cluster, savepoint = stopped()
    own = frozenset({successor_id("j1", savepoint)})
    submit(cluster, successor_id("j1", savepoint), savepoint)
    assert has_started_from(fold_of(cluster), savepoint, own) is None
    submit(cluster, "j2", savepoint)
    assert has_started_from(fold_of(cluster), savepoint, own) == "j2"


def test_unknown_job_has_no_upgrade() -> None:
    cluster, _ = stopped()
    assert read_upgrade(fold_of(cluster), "j9") is None
    assert seen_in(cluster).old.status is JobStatus.FINISHED
