"""What `list` and `cluster status` say of jobs that restart, wait or are over, from the log."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Record
from tailrace.schemas.types import EntryPoint, ExecutionState, JobStatus
from tailrace.services.cli import main
from tailrace.services.cli.commands.cluster_status import _format_jobs, counts
from tailrace.services.cli.commands.jobs import failure_reason, find_job, is_listed, status_from_answer
from tailrace.services.cli.commands.show_job import job_to_data, rows_of
from tailrace.services.cli.execution.building_queue import wait_for_acceptance
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history import HistoryProjection
from tailrace.services.history.cluster_view import JobView, count_programs_before, jobs
from tailrace.services.history.subtask_view import describe_waiting, subtasks

from ...simulated_cluster.cluster import Cluster, graph
from ...simulated_cluster.jobs import with_options

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2"}


def running_cluster() -> Cluster:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j", with_options(graph(1), RESTARTS))
    cluster.settle()
    return cluster


def seen(cluster: Cluster) -> JobView:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    (job,) = jobs(fold)
    return job


def test_while_a_job_restarts_its_last_failure_is_told_and_not_after_that() -> None:
    cluster = running_cluster()
    assert seen(cluster).restarting is None
    for attempt in (1, 2):
        cluster.finish_all(ExecutionState.FAILED, f"it broke\n{attempt}")
        cluster.settle()
        job = seen(cluster)
        assert job.restarting is not None
        assert job.restarting.attempt_number == attempt
        assert job.restarting.at > 0
        assert failure_reason(job).startswith(f"restarting, attempt {attempt + 1}: ")
        assert ("with the same error for the 2nd time" in failure_reason(job)) == (attempt == 2)
        assert failure_reason(job).endswith("it broke")
        cluster.tick(2)
        assert seen(cluster).restarting is None
        assert failure_reason(seen(cluster)) == ""
    cluster.finish_all(ExecutionState.FAILED, "for good")
    cluster.settle()
    assert seen(cluster).restarting is None
    assert "for good" in failure_reason(seen(cluster))


def test_a_lost_task_executor_is_a_reason() -> None:
    cluster = running_cluster()
    cluster.kill("te-1")
    cluster.lose("te-1", "its process has ended")
    cluster.settle()
    assert (
        failure_reason(seen(cluster))
        == "restarting, attempt 2: TaskExecutor te-1 is lost: its process has ended"
    )


def test_a_job_that_is_suspended_says_so_and_its_old_failures_are_over_when_it_goes_on() -> None:
    cluster = running_cluster()
    cluster.finish_all(ExecutionState.FAILED, "it broke")
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="maintenance", suspend=True))
    cluster.settle()
    job = seen(cluster)
    assert job.status is JobStatus.SUSPENDED
    assert job.restarting is None
    assert failure_reason(job) == "the cluster is shutting down: maintenance"
    cluster.start_master()
    cluster.settle()
    assert seen(cluster).restarting is None


def test_a_job_that_waits_for_slots_says_for_how_many() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.submit("j", graph(3))
    cluster.settle()
    assert failure_reason(seen(cluster)) == "waits for 2 of 3 slots"


def test_to_cancel_a_job_whose_program_waits_to_be_built_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = with_programs(20)
    for job_id in ("j15", "j99"):
        cluster.say("client/other", "dispatcher", dispatcher.CancelJob(job_id=job_id))
    while owed := cluster.owed("dispatcher"):
        cluster.say("dispatcher", owed[0].recipient, owed[0].body, cause=owed[0].cause)
    answers = {
        each.body.job_id: each.body for each in cluster.log if isinstance(each.body, client.CancelJobRejected)
    }
    assert status_from_answer(answers["j15"]) is JobStatus.CANCELED
    assert capsys.readouterr().err == "the program of job j15 was not built yet, and will not be built\n"
    with pytest.raises(CommandFailure, match="job j99 is unknown"):
        status_from_answer(answers["j99"])


def test_jobs_are_listed_with_their_place_in_the_queue_of_programs() -> None:
    cluster = with_programs(1_010)
    reasons = {job.job_id: failure_reason(job) for job in jobs(told(cluster))}
    assert reasons["j0"] == reasons["j1"] == "is being built"
    assert reasons["j2"] == "waits to be built: 2 programs are before it"
    assert reasons["j1009"] == "waits to be built: 1,009 programs are before it"


def test_a_client_learns_its_place_when_half_of_the_programs_before_it_are_built() -> None:
    """Each look at the queue takes 10 s, and one more program is built before each."""
    cluster, lines, now = with_programs(41), list[str](), 0.0

    def accepted(seconds: float) -> Record | None:
        nonlocal now
        now += seconds
        return next((each for each in cluster.log if isinstance(each.body, client.JobAccepted)), None)

    def programs_before_j40() -> int | None:
        state = cluster.replica.states["dispatcher"]
        assert isinstance(state, DispatcherState)
        first = next(iter(state.building))
        built = dispatcher.JobGraphBuilt(job_id=first, job_graph=graph())
        cluster.say("dispatcher", "dispatcher", built, cause=state.jobs[first].cause)
        if first == "j40":
            cluster.say("dispatcher", "client/submitter", client.JobAccepted(job_id="j40", name="j"))
        return count_programs_before(state).get("j40")

    def wait(timeout: float) -> Record | None:
        return wait_for_acceptance(
            "j40", accepted, programs_before_j40, lines.append, timeout, clock=lambda: now
        )

    assert wait(20.0) is not None
    assert lines == [
        "job j40 waits to be built: 40 programs are before it",
        "job j40 waits to be built: 20 programs are before it",
        "job j40 waits to be built: 10 programs are before it",
        "job j40 waits to be built: 5 programs are before it",
        "job j40 waits to be built: 2 programs are before it",
        "job j40 is being built",
    ]


def test_a_client_whose_queue_does_not_move_gives_up() -> None:
    waited = list[float]()

    def accepted(seconds: float) -> None:
        waited.append(seconds)

    lines = list[str]()
    found = wait_for_acceptance("j", accepted, lambda: 9, lines.append, 60.0, clock=lambda: sum(waited))
    assert found is None
    assert sum(waited) == pytest.approx(63.0)
    assert lines == ["job j waits to be built: 9 programs are before it"]


def with_programs(count: int) -> Cluster:
    """A cluster in which nobody builds the programs that were submitted: j0, j1, ..."""
    cluster = Cluster()
    cluster.start_master()
    program = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())
    for number in range(count):
        submit = dispatcher.SubmitJob(job_id=f"j{number}", job_graph=None, entry_point=program)
        cluster.say("client/submitter", "dispatcher", submit)
    return cluster


def told(cluster: Cluster) -> HistoryProjection:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    return fold


def test_what_a_job_waits_for_and_where_its_subtasks_run() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.submit("j", graph(2))
    cluster.settle()
    fold = told(cluster)
    (job,) = jobs(fold)
    slots, *rest = describe_waiting(fold, job)
    assert slots == "1 of 2 slots"
    assert all("SCHEDULED now" in each for each in rest)
    cluster.start_task_executor("te-2", slots=1)
    cluster.settle()
    fold = told(cluster)
    (job,) = jobs(fold)
    assert describe_waiting(fold, job) == ()
    seen = subtasks(fold.replica, "j")
    assert Counter(each.state.value for each in seen) == job.tasks
    assert {each.resource_id for each in seen} == {"te-1", "te-2"}
    assert all(1 <= each.subtask <= each.parallelism for each in seen)
    metrics = {seen[0].execution_attempt_id: {"numRecordsIn": 1234.0, "map.late": 2.0}}
    headings, rows = rows_of(seen, metrics)
    assert rows[0] == (
        f"{seen[0].vertex} (1/{seen[0].parallelism})",
        "RUNNING",
        "1",
        seen[0].resource_id,
        "1,234",
        "",
        "map.late 2",
    )
    assert len(headings) == len(rows[0])
    assert job_to_data(job, seen, metrics)["subtasks"][0]["metrics"]["numRecordsIn"] == 1234.0


def view(job_id: str, name: str, status: JobStatus) -> JobView:
    return JobView(job_id, name, status, None, 1, None, {}, 1, 0, {}, None)


JOBS = [
    view("totals-1a", "totals", JobStatus.FINISHED),
    view("totals-2b", "totals", JobStatus.RUNNING),
    view("other-3c", "Total", JobStatus.FAILED),
    view("over-4d", "over", JobStatus.FAILED),
    view("over-5e", "over", JobStatus.CANCELED),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("totals", "totals-2b"),
        ("tot", "totals-2b"),
        ("totals-1", "totals-1a"),
        ("Total", "other-3c"),
        ("over-4d", "over-4d"),
    ],
)
def test_a_name_is_that_of_the_job_that_has_not_ended(wanted: str, found: str) -> None:
    assert find_job(JOBS, wanted).job_id == found


@pytest.mark.parametrize(("wanted", "code"), [("over", ExitCode.USAGE), ("none", ExitCode.NOT_FOUND)])
def test_a_name_of_no_job_or_several_is_refused(wanted: str, code: ExitCode) -> None:
    with pytest.raises(CommandFailure) as refused:
        find_job(JOBS, wanted)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("statuses", "name", "shown"),
    [
        ((), None, 5),
        (("RUNNING",), None, 1),
        (("RUNNING", "FAILED"), None, 3),
        ((), "TOTAL", 3),
        (("FAILED",), "total", 1),
        ((), "4d", 1),
    ],
)
def test_list_is_filtered_by_status_and_name(statuses: tuple[str, ...], name: str | None, shown: int) -> None:
    assert sum(is_listed(job, statuses, name) for job in JOBS) == shown


def test_a_status_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--status", "gone"]) == ExitCode.USAGE
    assert "'GONE' is no job status: use one of CANCELED" in capsys.readouterr().err


def test_a_long_reason_is_cut() -> None:
    view = JobView("j", "", JobStatus.FAILED, "x" * 1000, 1, 2, {}, 1, 0, {}, None)
    assert failure_reason(view) == "x" * 237 + "..."
    assert failure_reason(view, longest=None) == "x" * 1000


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ((), "0 jobs run, 0 have ended"),
        (("RUNNING",), "1 job runs, 0 have ended"),
        (("RUNNING", "CANCELLING", "FAILED"), "2 jobs run, 1 has ended"),
        (("SUSPENDED", "FINISHED", "CANCELED"), "0 jobs run, 1 is suspended, 2 have ended"),
        (("SUSPENDED", "SUSPENDED", "CREATED"), "1 job runs, 2 are suspended, 0 have ended"),
    ],
)
def test_suspended_jobs_are_neither_running_nor_over(statuses: tuple[str, ...], told: str) -> None:
    found = counts(JobStatus(each) for each in statuses)
    assert sum(found.values()) == len(statuses)
    assert _format_jobs(found) == told
