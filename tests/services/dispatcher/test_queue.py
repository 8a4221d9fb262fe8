"""The queue of programs to build: in order, a few at a time, without cost to other requests."""

from __future__ import annotations

import pytest
from instruction_count import count_instructions

from tailrace.schemas import client, dispatcher
from tailrace.schemas.types import EntryPoint
from tailrace.services.core.instruction_tracker import InstructionTracker
from tailrace.services.dispatcher import checkpoints
from tailrace.services.dispatcher.build_queue import MAX_CHOSEN
from tailrace.services.dispatcher.checkpoints import DisposeSavepoint
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.state import DispatcherState

from ..simulated_cluster.cluster import Cluster, graph, start_cluster

PROGRAM = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())


def waiting(count: int, configuration: dict[str, str] | None = None) -> Cluster:
    """Returns a cluster in which nobody builds the submitted programs."""
    cluster = Cluster(configuration=configuration)
    cluster.start_master()
    for number in range(count):
        submit(cluster, f"j{number}")
    send_owed(cluster)
    return cluster


def send_owed(cluster: Cluster) -> list[str]:
    """Sends what the Dispatcher owes until it owes nothing; returns the names of the events."""
    names = []
    while owed := cluster.owed("dispatcher"):
        for event in owed:
            cluster.send("dispatcher", event.recipient, event.body, cause=event.cause)
            names.append(type(event.body).__name__)
    return names


def submit(cluster: Cluster, job_id: str, sender: str = "client/submitter") -> int:
    return cluster.send(
        sender, "dispatcher", dispatcher.SubmitJob(job_id=job_id, job_graph=None, entry_point=PROGRAM)
    )


def state_of(cluster: Cluster) -> DispatcherState:
    state = cluster.replica.states["dispatcher"]
    assert isinstance(state, DispatcherState)
    return state


def asked_for(cluster: Cluster) -> list[str]:
    """Returns the jobs whose programs the shell has to build now."""
    instructions = cluster.replica.role("dispatcher").instructions(state_of(cluster))
    return [instruction.job_id for instruction in instructions if isinstance(instruction, BuildJobGraph)]


def built(cluster: Cluster, job_id: str) -> None:
    cause = state_of(cluster).jobs[job_id].submission
    cluster.send(
        "dispatcher", "dispatcher", dispatcher.JobGraphBuilt(job_id=job_id, job_graph=graph()), cause=cause
    )


def test_programs_are_built_in_order_a_few_at_a_time() -> None:
    cluster = waiting(20)
    rest = [f"j{number}" for number in range(20)]
    while rest:
        assert asked_for(cluster) == rest[:MAX_CHOSEN]
        built(cluster, rest.pop(0))
    assert asked_for(cluster) == []


def test_cost_of_event_is_independent_of_queue_length() -> None:
    def cost(count: int) -> int:
        cluster = waiting(count)
        tracker, role = InstructionTracker(), cluster.replica.role("dispatcher")
        tracker.take_new("dispatcher", role.instructions(state_of(cluster)))

        def turn() -> None:
            submit(cluster, "another")
            state = state_of(cluster)
            role.decide(state, cluster.now)
            tracker.take_new("dispatcher", role.instructions(state))

        return count_instructions(turn)

    assert cost(2_000) < 1.2 * cost(200)


def test_queued_program_can_be_cancelled() -> None:
    cluster = waiting(20)
    request = cluster.send("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    cluster.send("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    assert send_owed(cluster) == ["JobGraphFailed", "CancelJobRejected", "CancelJobRejected", "JobRejected"]
    (rejected,) = cluster.events_of("JobRejected")
    assert rejected.header.recipient == "client/submitter"
    assert [record.header.cause for record in cluster.events_of("CancelJobRejected")] == [
        request,
        request + 1,
    ]
    assert "j15" not in state_of(cluster).jobs
    submit(cluster, "j15")
    send_owed(cluster)
    for number in range(20):
        if number != 15:
            built(cluster, f"j{number}")
    assert asked_for(cluster) == ["j15"]


def test_cancellation_during_build_takes_effect_at_once() -> None:
    cluster = waiting(2)
    submitted = state_of(cluster).jobs["j1"].submission
    cluster.send("client/other", "dispatcher", dispatcher.CancelJob(job_id="j1"))
    assert send_owed(cluster) == ["JobGraphFailed", "CancelJobRejected", "JobRejected"]
    result = dispatcher.JobGraphBuilt(job_id="j1", job_graph=graph())
    submit(cluster, "j1")
    send_owed(cluster)
    cluster.send("dispatcher", "dispatcher", result, cause=submitted)
    assert asked_for(cluster) == ["j0", "j1"], "the result of the first job is not that of the second"


@pytest.mark.parametrize("is_decided", [True, False])
def test_program_built_before_its_cancellation_becomes_cancelled_job(is_decided: bool) -> None:
    cluster = waiting(20)
    cluster.send("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    decided = cluster.owed("dispatcher") if is_decided else []
    built(cluster, "j15")
    for event in decided:
        assert isinstance(event.body, dispatcher.JobGraphFailed)
        cluster.send("dispatcher", event.recipient, event.body, cause=event.cause)
    assert send_owed(cluster) == ["JobAccepted", "StartJob", "CancelJob"]


LIMITS = {
    "dispatcher.max-jobs": ("client/submitter has 20 jobs", "the cluster has 20 jobs"),
    "dispatcher.max-jobs-per-client": ("client/submitter has 20 jobs", None),
    "dispatcher.max-waiting-programs": ("20 programs wait to be built", "20 programs wait to be built"),
    "dispatcher.max-waiting-programs-per-client": ("20 programs of client/submitter wait to be built", None),
}
"""Option -> the reason of the rejection of one more program of the same client, and of another one."""


@pytest.mark.parametrize("in_one_turn", [False, True])
@pytest.mark.parametrize("key", LIMITS)
def test_submission_above_limit_is_rejected(key: str, in_one_turn: bool) -> None:
    cluster = waiting(0, {key: "20"})
    for number in range(20):
        submit(cluster, f"j{number}")
        if not in_one_turn:
            send_owed(cluster)
    submit(cluster, "same")
    submit(cluster, "other", "client/other")
    send_owed(cluster)
    found = {record.body.job_id: record.body.reason for record in cluster.events_of("JobRejected")}  # type: ignore[attr-defined]
    same, other = LIMITS[key]
    same = other if key == "dispatcher.max-jobs" else same
    rest = f", and {key} allows 20: submit again when some have ended, or raise the option"
    wanted = {"same": f"{same}{rest}", "other": f"{other}{rest}"}
    assert found == {job_id: reason for job_id, reason in wanted.items() if not reason.startswith("None")}
    # A job with a graph does not wait to be built.
    before = len(found)
    cluster.submit("with-a-graph", client="client/submitter")
    send_owed(cluster)
    assert len(cluster.events_of("JobRejected")) == before + ("programs" not in key)


def test_ended_jobs_do_not_count() -> None:
    cluster = start_cluster("te", configuration={"dispatcher.max-jobs": "1"})
    for number in range(3):
        cluster.submit(f"j{number}")
        cluster.settle()
        cluster.send("client/c", "dispatcher", dispatcher.CancelJob(job_id=f"j{number}"))
        cluster.settle()
    assert not cluster.events_of("JobRejected")
    assert not state_of(cluster).jobs_of


def test_clients_take_turns() -> None:
    cluster = waiting(20)
    submit(cluster, "other", "client/other")
    send_owed(cluster)
    assert "other" not in asked_for(cluster)
    built(cluster, "j0")
    built(cluster, "j1")
    assert "other" in asked_for(cluster)


def test_queue_of_savepoint_deletions_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_DISPOSALS", 3)
    cluster = waiting(0)
    for number in range(4):
        cluster.send("client/c", "dispatcher", dispatcher.DisposeSavepoint(path=f"/savepoint-{number}"))
    send_owed(cluster)
    instructions = cluster.replica.role("dispatcher").instructions(state_of(cluster))
    assert (
        len([instruction for instruction in instructions if isinstance(instruction, DisposeSavepoint)]) == 3
    )
    (rejected,) = cluster.events_of("client.SavepointDisposed")
    assert isinstance(rejected.body, client.SavepointDisposed)
    assert rejected.body.failure == "3 savepoints wait to be deleted already: ask again later"
