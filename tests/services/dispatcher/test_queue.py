"""Programs that wait to be built: in order, a few at a time, at no cost to anybody else."""

from __future__ import annotations

import pytest
from instruction_count import count_instructions

from tailrace.schemas import client, dispatcher
from tailrace.schemas.types import EntryPoint
from tailrace.services.core.instruction_tracker import InstructionTracker
from tailrace.services.dispatcher import checkpoints, jobs
from tailrace.services.dispatcher.checkpoints import DisposeSavepoint
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.state import DispatcherState

from ..simulated_cluster.cluster import Cluster, graph

PROGRAM = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())


def waiting(count: int) -> Cluster:
    """A cluster in which nobody builds what was submitted."""
    cluster = Cluster()
    cluster.start_master()
    for number in range(count):
        submit(cluster, f"j{number}")
    return cluster


def submit(cluster: Cluster, job_id: str, sender: str = "client/submitter") -> int:
    return cluster.say(
        sender, "dispatcher", dispatcher.SubmitJob(job_id=job_id, job_graph=None, entry_point=PROGRAM)
    )


def state_of(cluster: Cluster) -> DispatcherState:
    state = cluster.replica.states["dispatcher"]
    assert isinstance(state, DispatcherState)
    return state


def asked_for(cluster: Cluster) -> list[str]:
    """The jobs whose programs the shell is to build now."""
    instructions = cluster.replica.role("dispatcher").instructions(state_of(cluster))
    return [each.job_id for each in instructions if isinstance(each, BuildJobGraph)]


def built(cluster: Cluster, job_id: str) -> None:
    cause = state_of(cluster).jobs[job_id].cause
    cluster.say(
        "dispatcher", "dispatcher", dispatcher.JobGraphBuilt(job_id=job_id, job_graph=graph()), cause=cause
    )


def test_programs_are_built_in_order_a_few_at_a_time() -> None:
    cluster = waiting(20)
    left = [f"j{number}" for number in range(20)]
    while left:
        assert asked_for(cluster) == left[: jobs.MAX_INSTRUCTED_BUILDS]
        built(cluster, left.pop(0))
    assert asked_for(cluster) == []


def test_an_event_costs_the_same_however_many_wait() -> None:
    def cost(count: int) -> int:
        cluster = waiting(count)
        begun, role = InstructionTracker(), cluster.replica.role("dispatcher")
        begun.take_new("dispatcher", role.instructions(state_of(cluster)))

        def turn() -> None:
            submit(cluster, "another")
            state = state_of(cluster)
            role.decide(state, cluster.now)
            begun.take_new("dispatcher", role.instructions(state))

        return count_instructions(turn)

    assert cost(2_000) < 1.2 * cost(200)


def test_a_program_that_waits_can_be_cancelled() -> None:
    cluster = waiting(20)
    asked = cluster.say("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    cluster.say("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    submitted = state_of(cluster).jobs["j15"].cause
    owed = cluster.owed("dispatcher")
    assert [(each.recipient, type(each.body), each.cause) for each in owed] == [
        ("client/submitter", client.JobRejected, submitted)
    ]
    while owed := cluster.owed("dispatcher"):
        cluster.say("dispatcher", owed[0].recipient, owed[0].body, cause=owed[0].cause)
    assert [each.header.cause for each in cluster.said("CancelJobRejected")] == [asked, asked + 1]
    assert "j15" not in state_of(cluster).jobs
    submit(cluster, "j15")
    for number in range(20):
        if number != 15:
            built(cluster, f"j{number}")
    assert asked_for(cluster) == ["j15"]


def test_a_program_that_is_being_built_is_cancelled_when_it_is() -> None:
    cluster = waiting(2)
    cluster.say("client/other", "dispatcher", dispatcher.CancelJob(job_id="j1"))
    assert cluster.owed("dispatcher") == []
    built(cluster, "j1")
    assert state_of(cluster).jobs["j1"].cancel


def test_what_was_built_before_the_rejection_was_said_is_a_job() -> None:
    """As in the log of a release that built it all the same."""
    cluster = waiting(20)
    cluster.say("client/other", "dispatcher", dispatcher.CancelJob(job_id="j15"))
    built(cluster, "j15")
    for _ in range(10):
        for each in cluster.owed("dispatcher"):
            cluster.say("dispatcher", each.recipient, each.body, cause=each.cause)
    assert (len(cluster.said("JobAccepted")), len(cluster.said("JobRejected"))) == (1, 0)
    assert [each.header.recipient for each in cluster.said("CancelJob")] == ["dispatcher", "job_master/j15"]


def test_a_full_queue_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_WAITING_BUILDS", 20)
    cluster = waiting(21)
    (owed,) = cluster.owed("dispatcher")
    assert owed.body == client.JobRejected(
        job_id="j20", reason="20 programs wait to be built already: submit again later"
    )
    cluster.submit("with a graph".replace(" ", "-"))
    assert len(cluster.owed("dispatcher")) == 3
    assert "j20" not in asked_for(cluster)


def test_few_savepoints_wait_to_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MAX_DISPOSALS", 3)
    cluster = waiting(0)
    for number in range(4):
        cluster.say("client/c", "dispatcher", dispatcher.DisposeSavepoint(path=f"/savepoint-{number}"))
    instructions = cluster.replica.role("dispatcher").instructions(state_of(cluster))
    assert len([each for each in instructions if isinstance(each, DisposeSavepoint)]) == 3
    (owed,) = cluster.owed("dispatcher")
    assert isinstance(owed.body, client.SavepointDisposed)
    assert owed.body.failure == "3 savepoints wait to be deleted already: ask again later"
