"""Jobs that are cancelled or suspended, clusters that end and start again, and words that cross on the way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, everyone, job_master
from tailrace.schemas.types import JobStatus
from tailrace.services.dispatcher.state import Phase
from tailrace.services.job_master.state import JobMasterState

from ..simulated_cluster.cluster import Cluster, graph
from .log_builder import CLIENT, OWN, Talk, in_phase, names

CANCELED, FINISHED, SUSPENDED = JobStatus.CANCELED, JobStatus.FINISHED, JobStatus.SUSPENDED


def ended(*, suspend: bool) -> Talk:
    """A cluster that has ended, with a job that was suspended or cancelled."""
    talk = in_phase(Phase.RUNNING)
    talk.shut_down(suspend=suspend)
    talk.settle()
    talk.reach(SUSPENDED if suspend else CANCELED)
    talk.settle()
    talk.terminate()
    return talk


# The end of a cluster


@pytest.mark.parametrize("suspend", [True, False])
def test_the_resource_manager_is_told_when_no_job_runs_any_more(suspend: bool) -> None:
    talk = in_phase(Phase.RUNNING)
    talk.shut_down(suspend=suspend)
    assert names(talk.settle()) == ["SuspendJob" if suspend else "CancelJob"]
    talk.reach(SUSPENDED if suspend else CANCELED)
    assert names(talk.settle()) == (["ShutDownCluster"] if suspend else ["JobFinished", "ShutDownCluster"])


@pytest.mark.parametrize("said", [0, 1, 2])
def test_an_end_outlives_the_leader_under_which_it_began(said: int) -> None:
    talk = in_phase(Phase.RUNNING)
    talk.shut_down()
    told = []
    for _ in range(said):
        told += names(talk.settle())
        if told == ["CancelJob"]:
            talk.reach(CANCELED)
    talk.lead()
    told += names(talk.settle())
    if told == ["CancelJob"]:
        talk.reach(CANCELED)
        told += names(talk.settle())
    assert told == ["CancelJob", "JobFinished", "ShutDownCluster"]
    talk.submit("late")
    assert names(talk.settle()) == ["JobRejected"]


def test_a_cluster_that_is_over_starts_again_with_its_next_leader() -> None:
    talk = ended(suspend=False)
    talk.lead()
    assert talk.settle() == []
    talk.submit("next")
    assert names(talk.settle()) == ["JobAccepted", "StartJob"]


# Suspension


def test_jobs_that_were_suspended_go_on_with_the_next_leader_once_the_cluster_is_over() -> None:
    talk = ended(suspend=True)
    assert talk.settle() == []
    talk.lead()
    assert names(talk.settle()) == ["ResumeJob"]
    assert (talk.phase(), talk.state.jobs["j"].status) == (Phase.RUNNING, JobStatus.RUNNING)
    assert talk.state.jobs["j"].reason is None
    talk.reach(FINISHED)
    assert names(talk.settle()) == ["JobFinished"]


def test_a_leader_that_dies_before_it_resumes_a_job_leaves_that_to_the_next() -> None:
    talk = ended(suspend=True)
    talk.lead()
    talk.lead()
    assert names(talk.settle()) == ["ResumeJob"]


def test_jobs_stay_suspended_for_as_long_as_the_cluster_is_not_over() -> None:
    talk = in_phase(Phase.SUSPENDED)
    talk.lead()
    assert names(talk.settle()) == ["ShutDownCluster"]
    assert talk.phase() is Phase.SUSPENDED


@pytest.mark.parametrize("phase", [Phase.BUILDING, Phase.ADMITTED, Phase.ACCEPTED, Phase.RESUME_REQUESTED])
@pytest.mark.parametrize("suspend", [True, False])
def test_a_job_that_its_job_master_does_not_run_yet_is_ended_as_soon_as_it_does(
    phase: Phase, suspend: bool
) -> None:
    talk = in_phase(phase)
    talk.shut_down(suspend=suspend)
    if phase is Phase.BUILDING:
        talk.hear(dispatcher.JobGraphBuilt(job_id="j", job_graph=graph()), OWN, OWN)
    assert names(talk.settle())[-2:] == [
        "ResumeJob" if phase is Phase.RESUME_REQUESTED else "StartJob",
        "SuspendJob" if suspend else "CancelJob",
    ]


def test_a_job_that_was_suspended_can_be_cancelled() -> None:
    talk = ended(suspend=True)
    talk.lead()
    talk.cancel()
    assert names(talk.settle()) == ["ResumeJob", "CancelJob"]
    talk.reach(CANCELED)
    assert names(talk.settle()) == ["JobFinished"]
    assert talk.phase() is Phase.ENDED


def test_a_job_that_is_cancelled_while_it_is_suspended_is_waited_for() -> None:
    talk = in_phase(Phase.SUSPENDED)
    talk.cancel()
    assert names(talk.settle()) == ["CancelJob"]
    talk.reach(CANCELED)
    assert names(talk.settle()) == ["JobFinished", "ShutDownCluster"]


@pytest.mark.parametrize("said", [True, False])
def test_a_job_that_is_suspended_while_it_is_cancelled_is_cancelled(said: bool) -> None:
    talk = in_phase(Phase.SUSPEND_REQUESTED)
    talk.settle()
    talk.cancel()
    if said:
        talk.settle()
    talk.reach(SUSPENDED)
    assert names(talk.settle()) == ([] if said else ["CancelJob"])
    talk.reach(CANCELED)
    assert talk.state.jobs["j"].status is CANCELED


@pytest.mark.parametrize("status", [FINISHED, JobStatus.FAILED])
def test_a_job_may_end_before_it_hears_that_it_is_suspended(status: JobStatus) -> None:
    talk = in_phase(Phase.SUSPEND_REQUESTED)
    late = talk.owed()
    talk.reach(status)
    for each in late:
        talk.say(each)
    assert names(talk.settle()) == ["JobFinished", "ShutDownCluster"]


# An end that suspends becomes one that cancels


@pytest.mark.parametrize("phase", [each for each in Phase if each not in (Phase.TERMINATED, Phase.ENDED)])
@pytest.mark.parametrize("said", [0, 1, 2])
@pytest.mark.parametrize("reached", [False, True])
def test_the_stronger_request_wins_in_every_phase_and_whatever_was_said(
    phase: Phase, said: int, reached: bool
) -> None:
    talk = in_phase(phase)
    talk.shut_down(suspend=True)
    if phase is Phase.BUILDING:
        talk.hear(dispatcher.JobGraphBuilt(job_id="j", job_graph=graph()), OWN, OWN)
    told: list[str] = []
    for _ in range(said):
        owed = talk.owed()
        for each in owed:
            talk.say(each)
        told += names([each.body for each in owed])
    if reached and "SuspendJob" in told:
        talk.reach(SUSPENDED)
        told += names(talk.settle())
    talk.shut_down()
    told += names(talk.settle())
    talk.shut_down(suspend=True)
    assert told.count("CancelJob") == 1
    assert "SuspendJob" not in told[told.index("CancelJob") :]
    talk.reach(SUSPENDED) if not reached and "SuspendJob" in told else None
    talk.reach(CANCELED)
    told += names(talk.settle())
    assert told.count("ShutDownCluster") == told.count("JobFinished") == 1
    assert talk.state.jobs["j"].status is CANCELED


def test_a_suspended_job_is_cancelled_by_the_end_of_a_cluster_that_waits_for_others() -> None:
    talk = Talk()
    for job_id in ("j", "k"):
        talk.submit(job_id)
    talk.settle()
    talk.shut_down(suspend=True)
    talk.settle()
    talk.reach(SUSPENDED, "j")
    talk.shut_down()
    assert names(talk.settle()) == ["CancelJob", "CancelJob"]
    talk.reach(CANCELED, "j")
    talk.reach(CANCELED, "k")
    assert names(talk.settle()) == ["JobFinished", "JobFinished", "ShutDownCluster"]


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8, 16, 32])
def test_with_all_the_other_roles_a_suspension_becomes_a_cancellation_at_any_time(steps: int) -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for now", suspend=True))
    for _ in range(steps):
        cluster.step()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for good"))
    cluster.settle()
    if not cluster.said("JobFinished"):
        # The cluster was over before the request came: whoever leads next goes on with it.
        cluster.start_master()
        cluster.start_task_executor("te-1", slots=2)
        cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is CANCELED
    (finished,) = cluster.said("JobFinished")
    assert finished.body.status is CANCELED  # type: ignore[attr-defined]
    assert cluster.said("ClusterTerminated")


# Requests that are refused


def test_who_cancels_a_job_that_turns_out_to_be_none_is_told() -> None:
    talk = in_phase(Phase.BUILDING)
    first, second = talk.cancel(sender="client/one"), talk.cancel(sender="client/two")
    talk.hear(dispatcher.JobGraphFailed(job_id="j", reason="it raised"), OWN, OWN)
    answers = {(each.recipient, each.cause): each.body for each in talk.owed()}
    rejected = client.CancelJobRejected(job_id="j", reason="job j was rejected: it raised")
    assert answers == {
        (CLIENT, talk.offset): client.JobRejected(job_id="j", reason="it raised"),
        ("client/one", first): rejected,
        ("client/two", second): rejected,
    }
    talk.settle()
    assert not talk.state.refusals
    assert not talk.state.jobs


# Configuration


def test_a_job_goes_by_its_own_options_over_those_of_the_cluster() -> None:
    talk = Talk()
    ours = {"restart-strategy.type": "none", "slot.idle.timeout": "7 s", "taskmanager.numberOfTaskSlots": "9"}
    talk.hear(everyone.ConfigurationChanged(configuration=ours), OWN, "*")
    own = {**graph().configuration, "restart-strategy.type": "fixed-delay"}
    talk.submit(job_graph=replace(graph(), configuration=own))
    (start,) = [each for each in talk.settle() if isinstance(each, job_master.StartJob)]
    assert start.configuration["restart-strategy.type"] == "fixed-delay"
    assert start.configuration["slot.idle.timeout"] == "7 s"
    assert "taskmanager.numberOfTaskSlots" not in start.configuration


# With all the other roles


def test_a_suspended_job_goes_on_in_a_cluster_that_starts_again() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for now", suspend=True))
    cluster.settle()
    job: JobMasterState = cluster.replica.states["job_master/j1"]
    assert job.status is SUSPENDED
    assert cluster.said("ClusterTerminated")
    assert not cluster.said("JobFinished")
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is JobStatus.RUNNING
    cluster.finish_all()
    cluster.settle()
    (finished,) = cluster.said("JobFinished")
    assert finished.body.status is FINISHED  # type: ignore[attr-defined]
