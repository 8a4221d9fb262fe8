"""Cancelled and suspended jobs, clusters that end and restart, and messages that cross."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tailrace.schemas import client, dispatcher, everyone, job_master, resource_manager
from tailrace.schemas.types import JobStatus
from tailrace.services.dispatcher.state import Phase
from tailrace.services.job_master.state import StartedJob

from ..simulated_cluster.cluster import graph, start_cluster
from .log_builder import CLIENT, OWN, Driver, in_phase, names

CANCELED, FINISHED, SUSPENDED = JobStatus.CANCELED, JobStatus.FINISHED, JobStatus.SUSPENDED


def ended(*, suspend: bool) -> Driver:
    """Returns a cluster that has ended, with a suspended or cancelled job."""
    driver = in_phase(Phase.RUNNING)
    driver.shut_down(suspend=suspend)
    driver.settle()
    driver.reach(SUSPENDED if suspend else CANCELED)
    driver.settle()
    driver.terminate()
    return driver


@pytest.mark.parametrize("has_read_the_end", [False, True])
def test_suspended_job_is_resumed_only_by_leader_that_has_read_the_end(has_read_the_end: bool) -> None:
    driver = ended(suspend=True)
    driver.lead(driver.offset if has_read_the_end else driver.offset - 1)
    assert names(driver.settle()) == (["ResumeJob"] if has_read_the_end else [])
    assert (driver.state.ending is None) is has_read_the_end


# The end of a cluster


@pytest.mark.parametrize("suspend", [True, False])
def test_resource_manager_is_notified_when_no_job_runs(suspend: bool) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.shut_down(suspend=suspend)
    assert names(driver.settle()) == ["SuspendJob" if suspend else "CancelJob"]
    driver.reach(SUSPENDED if suspend else CANCELED)
    assert names(driver.settle()) == (["ShutDownCluster"] if suspend else ["JobFinished", "ShutDownCluster"])


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_shutdown_continues_with_next_leader(turns: int) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.shut_down()
    reports = []
    for _ in range(turns):
        reports += names(driver.settle())
        if reports == ["CancelJob"]:
            driver.reach(CANCELED)
    driver.lead()
    reports += names(driver.settle())
    if reports == ["CancelJob"]:
        driver.reach(CANCELED)
        reports += names(driver.settle())
    assert reports == ["CancelJob", "JobFinished", "ShutDownCluster"]
    driver.submit("late")
    assert names(driver.settle()) == ["JobRejected"]


def test_ended_cluster_restarts_with_next_leader() -> None:
    driver = ended(suspend=False)
    driver.lead()
    assert driver.settle() == []
    driver.submit("next")
    assert names(driver.settle()) == ["JobAccepted", "StartJob"]


# Suspension


def test_suspended_jobs_resume_with_next_leader_after_cluster_has_ended() -> None:
    driver = ended(suspend=True)
    assert driver.settle() == []
    driver.lead()
    assert names(driver.settle()) == ["ResumeJob"]
    assert driver.phase() is Phase.RUNNING
    assert driver.state.jobs["j"].reason is None
    driver.reach(FINISHED)
    assert names(driver.settle()) == ["JobFinished"]


def test_next_leader_resumes_job_if_leader_dies_before() -> None:
    driver = ended(suspend=True)
    driver.lead()
    driver.lead()
    assert names(driver.settle()) == ["ResumeJob"]


def test_jobs_stay_suspended_until_cluster_has_ended() -> None:
    driver = in_phase(Phase.SUSPENDED)
    driver.lead()
    assert names(driver.settle()) == ["ShutDownCluster"]
    assert driver.phase() is Phase.SUSPENDED


@pytest.mark.parametrize("phase", [Phase.BUILDING, Phase.BUILT, Phase.ACCEPTED])
@pytest.mark.parametrize("suspend", [True, False])
def test_job_that_does_not_run_yet_is_ended_as_soon_as_it_runs(phase: Phase, suspend: bool) -> None:
    driver = in_phase(phase)
    driver.shut_down(suspend=suspend)
    if phase is Phase.BUILDING:
        driver.built()
    assert names(driver.settle())[-2:] == ["StartJob", "SuspendJob" if suspend else "CancelJob"]


def test_program_is_not_built_any_more_when_cluster_is_shut_down() -> None:
    driver = in_phase(Phase.BUILDING)
    driver.shut_down()
    assert driver.role.instructions(driver.state) == []
    assert names(driver.settle()) == ["JobGraphFailed", "JobRejected", "ShutDownCluster"]


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("is_sent", [True, False])
def test_shutdown_ends_job_that_is_resumed(suspend: bool, is_sent: bool) -> None:
    driver = ended(suspend=True)
    driver.lead()
    owed = driver.owed()
    driver.shut_down(suspend=suspend)
    if is_sent:
        driver.send(*owed)
    commands = ["SuspendJob"] if suspend and is_sent else [] if suspend else ["CancelJob"]
    reports = names(driver.settle())
    assert [name for name in reports if name != "ShutDownCluster"] == commands
    assert ("ShutDownCluster" in reports) is (suspend and not is_sent)


def test_suspended_job_can_be_cancelled() -> None:
    driver = ended(suspend=True)
    driver.lead()
    driver.cancel()
    assert names(driver.settle()) == ["CancelJob"]
    driver.reach(CANCELED)
    assert names(driver.settle()) == ["JobFinished"]
    assert driver.phase() is Phase.ENDED


def test_job_cancelled_while_suspended_is_waited_for() -> None:
    driver = in_phase(Phase.SUSPENDED)
    driver.cancel()
    assert names(driver.settle()) == ["CancelJob"]
    driver.reach(CANCELED)
    assert names(driver.settle()) == ["JobFinished", "ShutDownCluster"]


@pytest.mark.parametrize("is_sent", [True, False])
def test_job_suspended_while_canceling_is_cancelled(is_sent: bool) -> None:
    driver = in_phase(Phase.SUSPENDING)
    driver.cancel()
    if is_sent:
        driver.settle()
    driver.reach(SUSPENDED)
    assert names(driver.settle()) == ([] if is_sent else ["CancelJob"])
    driver.reach(CANCELED)
    assert driver.state.jobs["j"].status is CANCELED


@pytest.mark.parametrize("status", [FINISHED, JobStatus.FAILED])
def test_job_may_end_before_it_receives_suspension(status: JobStatus) -> None:
    driver = in_phase(Phase.RUNNING)
    driver.shut_down(suspend=True)
    late = driver.owed()
    driver.reach(status)
    for event in late:
        driver.send(event)
    assert names(driver.settle()) == ["JobFinished", "ShutDownCluster"]


# An end that suspends becomes one that cancels


@pytest.mark.parametrize(
    "phase",
    [Phase.BUILDING, Phase.BUILT, Phase.ACCEPTED, Phase.RUNNING, Phase.SUSPENDING, Phase.SUSPENDED],
)
@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("reached", [False, True])
def test_stronger_request_wins_in_every_phase(phase: Phase, turns: int, reached: bool) -> None:
    driver = in_phase(phase)
    driver.shut_down(suspend=True)
    if phase is Phase.BUILDING:
        driver.built()
    reports = ["SuspendJob"] if phase in (Phase.SUSPENDING, Phase.SUSPENDED) else []
    for _ in range(turns):
        owed = driver.owed()
        for event in owed:
            driver.send(event)
        reports += names([event.body for event in owed])
    if reached and "SuspendJob" in reports and phase is not Phase.SUSPENDED:
        driver.reach(SUSPENDED)
        reports += names(driver.settle())
    driver.shut_down()
    reports += names(driver.settle())
    driver.shut_down(suspend=True)
    assert reports.count("CancelJob") == 1
    assert "SuspendJob" not in reports[reports.index("CancelJob") :]
    if not reached and "SuspendJob" in reports:
        driver.reach(SUSPENDED)
    driver.reach(CANCELED)
    reports += names(driver.settle())
    assert reports.count("ShutDownCluster") == reports.count("JobFinished") == 1
    assert driver.state.jobs["j"].status is CANCELED


def test_end_of_cluster_cancels_suspended_job_while_it_waits_for_others() -> None:
    driver = Driver()
    for job_id in ("j", "k"):
        driver.submit(job_id)
    driver.settle()
    driver.shut_down(suspend=True)
    driver.settle()
    driver.reach(SUSPENDED, "j")
    driver.shut_down()
    assert names(driver.settle()) == ["CancelJob", "CancelJob"]
    driver.reach(CANCELED, "j")
    driver.reach(CANCELED, "k")
    assert names(driver.settle()) == ["JobFinished", "JobFinished", "ShutDownCluster"]


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8, 16, 32])
def test_suspension_can_become_cancellation_at_any_time_with_all_roles(steps: int) -> None:
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for now", suspend=True))
    for _ in range(steps):
        cluster.step()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for good"))
    cluster.settle()
    if not cluster.events_of("JobFinished"):
        # The cluster was over before the request came: whoever leads next goes on with it.
        cluster.start_master()
        cluster.start_task_executor("te-1", slots=2)
        cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is CANCELED
    (finished,) = cluster.events_of("JobFinished")
    assert finished.body.status is CANCELED  # type: ignore[attr-defined]
    assert cluster.events_of("ClusterTerminated")


# Requests that are refused


def test_cancellation_of_rejected_job_is_answered() -> None:
    driver = in_phase(Phase.BUILDING)
    first, second = driver.cancel(sender="client/one"), driver.cancel(sender="client/two")
    driver.built(failure="it raised")
    answers = {(event.recipient, event.cause): event.body for event in driver.owed()}
    rejected = client.CancelJobRejected(job_id="j", reason="job j was rejected: it raised")
    assert answers == {
        (CLIENT, driver.offset): client.JobRejected(job_id="j", reason="it raised"),
        ("client/one", first): rejected,
        ("client/two", second): rejected,
    }
    driver.settle()
    assert not driver.state.requests
    assert not driver.state.jobs


# Configuration


def test_job_options_override_cluster_options() -> None:
    driver = Driver()
    ours = {"restart-strategy.type": "none", "slot.idle.timeout": "7 s", "taskmanager.numberOfTaskSlots": "9"}
    driver.receive(everyone.ConfigurationChanged(configuration=ours), OWN, "*")
    own = {**graph().configuration, "restart-strategy.type": "fixed-delay"}
    driver.submit(job_graph=replace(graph(), configuration=own))
    (start,) = [event for event in driver.settle() if isinstance(event, job_master.StartJob)]
    assert start.configuration["restart-strategy.type"] == "fixed-delay"
    assert start.configuration["slot.idle.timeout"] == "7 s"
    assert "taskmanager.numberOfTaskSlots" not in start.configuration


# With all the other roles


def test_suspended_job_resumes_in_restarted_cluster() -> None:
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="for now", suspend=True))
    cluster.settle()
    job: StartedJob = cluster.replica.states["job_master/j1"]
    assert job.status is SUSPENDED
    assert cluster.events_of("ClusterTerminated")
    assert not cluster.events_of("JobFinished")
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    assert cluster.replica.states["job_master/j1"].status is JobStatus.RUNNING
    cluster.finish_all()
    cluster.settle()
    (finished,) = cluster.events_of("JobFinished")
    assert finished.body.status is FINISHED  # type: ignore[attr-defined]


# The cluster of one job


def of_one_job(driver: Driver) -> Driver:
    driver.receive(everyone.ConfigurationChanged(configuration={"application.job-id": "j"}), OWN, "*")
    return driver


@pytest.mark.parametrize("status", [FINISHED, CANCELED, JobStatus.FAILED])
def test_cluster_of_one_job_ends_with_it(status: JobStatus) -> None:
    driver = of_one_job(in_phase(Phase.RUNNING))
    driver.submit("other")
    driver.settle()
    driver.reach(status)
    assert names(driver.settle()) == ["JobFinished", "CancelJob"]
    driver.reach(CANCELED, "other")
    *_, last = driver.settle()
    assert isinstance(last, resource_manager.ShutDownCluster)
    assert last.reason == f"job j is {status.value}"


def test_cluster_of_one_job_ends_when_its_program_fails() -> None:
    driver = of_one_job(in_phase(Phase.BUILD_FAILED))
    rejected, shut_down = driver.settle()
    assert isinstance(rejected, client.JobRejected)
    assert isinstance(shut_down, resource_manager.ShutDownCluster)
    assert shut_down.reason == "job j is rejected: it raised"


def test_second_submission_of_its_id_does_not_end_cluster_of_one_job() -> None:
    driver = of_one_job(in_phase(Phase.RUNNING))
    driver.submit("j")
    assert names(driver.settle()) == ["JobRejected"]
    assert driver.state.ending is None
