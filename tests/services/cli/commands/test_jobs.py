"""The output of `list` and `cluster status` about jobs that restart, wait or are over, from the log."""

from __future__ import annotations

from collections import Counter

import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Record
from tailrace.schemas.types import EntryPoint, ExecutionState, JobStatus
from tailrace.services.cli import main
from tailrace.services.cli.commands.cluster_status import _format_jobs, counts
from tailrace.services.cli.commands.jobs import is_listed
from tailrace.services.cli.execution.building_queue import wait_for_acceptance
from tailrace.services.cli.execution.job_control import find_job, status_from_answer
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.cli.render.job import failure_reason, job_to_data, rows_of
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history import HistoryProjection
from tailrace.services.history.cluster_view import (
    JobView,
    count_programs_before,
    describe_waiting,
    jobs,
    subtasks,
)

from ...simulated_cluster.cluster import Cluster, graph, start_cluster
from ...simulated_cluster.jobs import with_options

RESTARTS = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "2"}


def running_cluster() -> Cluster:
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j", with_options(graph(1), RESTARTS))
    cluster.settle()
    return cluster


def seen(cluster: Cluster) -> JobView:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    (job,) = jobs(fold)
    return job


def test_last_failure_is_shown_only_while_job_restarts() -> None:
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


def test_lost_task_executor_is_shown_as_reason() -> None:
    cluster = running_cluster()
    cluster.kill("te-1")
    cluster.lose("te-1", "its process has ended")
    cluster.settle()
    assert (
        failure_reason(seen(cluster))
        == "restarting, attempt 2: TaskExecutor te-1 is lost: its process has ended"
    )


def test_suspended_job_is_marked_and_resumed_job_shows_no_old_failures() -> None:
    cluster = running_cluster()
    cluster.finish_all(ExecutionState.FAILED, "it broke")
    cluster.settle()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="maintenance", suspend=True))
    cluster.settle()
    job = seen(cluster)
    assert job.status is JobStatus.SUSPENDED
    assert job.restarting is None
    assert failure_reason(job) == "the cluster is shutting down: maintenance"
    cluster.start_master()
    cluster.settle()
    assert seen(cluster).restarting is None


def test_waiting_job_shows_number_of_missing_slots() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.submit("j", graph(3))
    cluster.settle()
    assert failure_reason(seen(cluster)) == "waits for 2 of 3 slots"


def test_cancellation_of_queued_program_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = with_programs(20)
    for job_id in ("j15", "j99"):
        cluster.send("client/other", "dispatcher", dispatcher.CancelJob(job_id=job_id))
    while owed := cluster.owed("dispatcher"):
        cluster.send("dispatcher", owed[0].recipient, owed[0].body, cause=owed[0].cause)
    answers = {
        record.body.job_id: record.body
        for record in cluster.log
        if isinstance(record.body, client.CancelJobRejected)
    }
    assert status_from_answer(answers["j15"]) is JobStatus.CANCELED
    assert capsys.readouterr().err == "the program of job j15 was not built yet, and will not be built\n"
    with pytest.raises(CommandFailure, match="job j99 is unknown"):
        status_from_answer(answers["j99"])


def test_list_shows_position_in_queue_of_programs() -> None:
    cluster = with_programs(1_010)
    reasons = {job.job_id: failure_reason(job) for job in jobs(projection_of(cluster))}
    assert reasons["j0"] == reasons["j1"] == "is being built"
    assert reasons["j2"] == "waits to be built: 2 programs are before it"
    assert reasons["j1009"] == "waits to be built: 1,009 programs are before it"


def test_client_is_notified_when_half_of_queue_before_it_is_built() -> None:
    """Each look at the queue takes 10 s, and one more program is built before each."""
    cluster, lines, now = with_programs(41), list[str](), 0.0

    def accepted(seconds: float) -> Record | None:
        nonlocal now
        now += seconds
        return next((record for record in cluster.log if isinstance(record.body, client.JobAccepted)), None)

    def programs_before_j40() -> int | None:
        state = cluster.replica.states["dispatcher"]
        assert isinstance(state, DispatcherState)
        first = next(iter(state.building))
        built = dispatcher.JobGraphBuilt(job_id=first, job_graph=graph())
        cluster.send("dispatcher", "dispatcher", built, cause=state.jobs[first].submission)
        if first == "j40":
            answer = client.JobAccepted(job_id="j40", name="j")
            cluster.send("dispatcher", "client/submitter", answer, cause=cluster.replica.offset)
        return count_programs_before(state).get("j40")

    def wait(timeout_s: float) -> Record | None:
        return wait_for_acceptance(
            "j40", accepted, programs_before_j40, lines.append, timeout_s, clock=lambda: now
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


def test_client_gives_up_if_queue_does_not_move() -> None:
    waited = list[float]()

    def accepted(seconds: float) -> None:
        waited.append(seconds)

    lines = list[str]()
    record = wait_for_acceptance("j", accepted, lambda: 9, lines.append, 60.0, clock=lambda: sum(waited))
    assert record is None
    assert sum(waited) == pytest.approx(63.0)
    assert lines == ["job j waits to be built: 9 programs are before it"]


def with_programs(count: int) -> Cluster:
    """Returns a cluster in which nobody builds the submitted programs: j0, j1, ..."""
    cluster = Cluster()
    cluster.start_master()
    program = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())
    for number in range(count):
        submit = dispatcher.SubmitJob(job_id=f"j{number}", job_graph=None, entry_point=program)
        cluster.send("client/submitter", "dispatcher", submit)
    while owed := cluster.owed("dispatcher"):
        for event in owed:
            cluster.send("dispatcher", event.recipient, event.body, cause=event.cause)
    return cluster


def projection_of(cluster: Cluster) -> HistoryProjection:
    fold = HistoryProjection()
    for record in cluster.log:
        fold.apply(record)
    return fold


def test_show_has_reason_of_waiting_and_places_of_subtasks() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.submit("j", graph(2))
    cluster.settle()
    fold = projection_of(cluster)
    (job,) = jobs(fold)
    slots, *rest = describe_waiting(fold, job)
    assert slots == "1 of 2 slots"
    assert all("SCHEDULED now" in item for item in rest)
    cluster.start_task_executor("te-2", slots=1)
    cluster.settle()
    fold = projection_of(cluster)
    (job,) = jobs(fold)
    assert describe_waiting(fold, job) == ()
    subtask_states = subtasks(fold.replica, "j")
    assert Counter(subtask_state.state.value for subtask_state in subtask_states) == job.tasks
    assert {state.resource_id for state in subtask_states} == {"te-1", "te-2"}
    assert all(1 <= subtask_state.subtask <= subtask_state.parallelism for subtask_state in subtask_states)
    metrics = {subtask_states[0].execution_attempt_id: {"numRecordsIn": 1234.0, "map.late": 2.0}}
    headings, rows = rows_of(subtask_states, metrics)
    assert rows[0] == (
        f"{subtask_states[0].vertex} (1/{subtask_states[0].parallelism})",
        "RUNNING",
        "1",
        subtask_states[0].resource_id,
        "1,234",
        "",
        "map.late 2",
    )
    assert len(headings) == len(rows[0])
    assert job_to_data(job, subtask_states, metrics)["subtasks"][0]["metrics"]["numRecordsIn"] == 1234.0


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
def test_name_means_job_that_has_not_ended(wanted: str, found: str) -> None:
    assert find_job(JOBS, wanted).job_id == found


@pytest.mark.parametrize(("wanted", "code"), [("over", ExitCode.USAGE), ("none", ExitCode.NOT_FOUND)])
def test_name_of_no_job_or_several_is_rejected(wanted: str, code: ExitCode) -> None:
    with pytest.raises(CommandFailure) as refused:
        find_job(JOBS, wanted)
    assert refused.value.code == code


def test_forgotten_job_is_named_with_the_commands_that_know_it() -> None:
    ended = {"forgotten-0123": 1_000_000, JOBS[0].job_id: 2_000_000}
    with pytest.raises(CommandFailure, match=r"forgotten-0123 ended at .* `tailrace story forgotten-0123`"):
        find_job(JOBS, "forgotten", ended)
    assert find_job(JOBS, JOBS[0].job_id, ended) is JOBS[0]


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


def test_unknown_status_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--status", "gone"]) == ExitCode.USAGE
    assert "'GONE' is no job status: use one of CANCELED" in capsys.readouterr().err


def test_long_reason_is_cut() -> None:
    view = JobView("j", "", JobStatus.FAILED, "x" * 1000, 1, 2, {}, 1, 0, {}, None)
    assert failure_reason(view) == "x" * 237 + "..."
    assert failure_reason(view, longest=None) == "x" * 1000


@pytest.mark.parametrize(
    ("statuses", "line"),
    [
        ((), "0 jobs run, 0 have ended"),
        (("RUNNING",), "1 job runs, 0 have ended"),
        (("RUNNING", "CANCELLING", "FAILED"), "2 jobs run, 1 has ended"),
        (("SUSPENDED", "FINISHED", "CANCELED"), "0 jobs run, 1 is suspended, 2 have ended"),
        (("SUSPENDED", "SUSPENDED", "CREATED"), "1 job runs, 2 are suspended, 0 have ended"),
    ],
)
def test_suspended_job_is_neither_running_nor_over(statuses: tuple[str, ...], line: str) -> None:
    result = counts(JobStatus(status) for status in statuses)
    assert sum(result.values()) == len(statuses)
    assert _format_jobs(result) == line
