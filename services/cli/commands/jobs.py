"""`tailrace list`, `cancel` and `output`: list jobs, cancel a job, print a job's output."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import format_time, print_progress, print_result, print_table, print_verbatim

if TYPE_CHECKING:
    from ....schemas.client import CancelJobRejected, JobStatusChanged
    from ...client import OutputRecord
    from ...configuration import Configuration
    from ...history.cluster_view import JobView

_MAX_REASON_LENGTH = 240

JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's id, a unique prefix of it, or its name. If several jobs match, the one that has not ended.",
    ),
]


def list_jobs(
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only jobs with this status, such as RUNNING or failed; may be given several times.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="Only jobs whose name or id contains this.")
    ] = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """List all jobs, oldest first, with their status and their tasks by state. JSON: one object per line."""
    wanted = _statuses(status or [])
    found = read_jobs(find_cluster(home, bootstrap_servers, cluster_id))
    found = [job for job in found if is_listed(job, wanted, name)]
    if output is Format.JSON:
        import msgspec

        for job in found:
            print_result(msgspec.json.encode(job).decode())
        return ExitCode.OK
    rows = []
    for job in found:
        tasks = ", ".join(f"{count} {state}" for state, count in job.tasks.items())
        times = format_time(job.submitted), format_time(job.ended)
        rows.append((job.job_id, job.name, job.status.value, *times, tasks, failure_reason(job)))
    print_table("Jobs", ("JOB", "NAME", "STATUS", "SUBMITTED", "ENDED", "TASKS", "WHY"), rows)
    return ExitCode.OK


def is_listed(job: JobView, statuses: Collection[str], name: str | None) -> bool:
    """Whether `list` shows a job. An empty `statuses` allows all; `name` must be in the job's name or id."""
    if statuses and job.status.value not in statuses:
        return False
    return name is None or any(name.lower() in text.lower() for text in (job.name, job.job_id))


def _statuses(given: Sequence[str]) -> set[str]:
    known = {status.value for status in JobStatus}
    found = {text.upper() for text in given}
    if wrong := sorted(found - known):
        raise CommandFailure(
            ExitCode.USAGE, f"{wrong[0]!r} is no job status: use one of {', '.join(sorted(known))}"
        )
    return found


def failure_reason(job: JobView, longest: int | None = _MAX_REASON_LENGTH) -> str:
    """Returns why a job restarts, waits, or is in its state, as one line without a stack trace.

    The line has at most `longest` characters. It is empty if there is no reason.
    """
    text = job.reason or ""
    if job.restarting is not None:
        text = f"restarting, attempt {job.restarting.attempt_number + 1}: {job.restarting.reason}"
    elif job.missing_slots and not text:
        text = f"waits for {job.missing_slots} of {job.required_slots} slots"
    elif job.programs_before is not None and not text:
        from ..execution.building_queue import describe_position

        text = describe_position(job.programs_before)
    text = " ".join(text.partition("\n")[0].split())
    return text if longest is None or len(text) <= longest else f"{text[: longest - 3]}..."


def cancel(
    job: JobId,
    detached: Annotated[
        bool, typer.Option("--detached", "-d", help="Do not wait until the job has ended.")
    ] = False,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Cancel a job and wait until it has ended."""
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    found = find_job(read_jobs(configuration), job)
    if found.status in JOB_ENDS:
        raise CommandFailure(
            ExitCode.JOB, f"job {found.job_id} is already {found.status.value}: there is nothing to cancel"
        )
    if detached:
        from ...client import Client

        with Client(configuration, name="cancel", timeout=10.0) as client:
            client.cancel(found.job_id)
        print_progress(f"job {found.job_id}: cancellation is requested")
        return ExitCode.OK
    status = cancel_and_wait(configuration, found.job_id)
    print_progress(f"job {found.job_id} is {status.value}")
    return ExitCode.OK if status is JobStatus.CANCELED else ExitCode.JOB


def cancel_and_wait(
    configuration: Configuration, job_id: str, *, keep_checkpoints: bool = False
) -> JobStatus:
    """Cancels a job and returns its final status. Raises CommandFailure if rejected or not ended in time."""
    from ....schemas.client import CancelJobRejected, JobStatusChanged
    from ....schemas.event import Record
    from ...client import Client

    def answer(record: Record) -> CancelJobRejected | JobStatusChanged | None:
        match record.body:
            case CancelJobRejected() as rejected if rejected.job_id == job_id:
                return rejected
            case JobStatusChanged(status=status) as ended if ended.job_id == job_id and status in JOB_ENDS:
                return ended
            case _:
                return None

    with Client(configuration, name="cancel", timeout=10.0) as client, client.subscribe() as conversation:
        client.cancel(job_id, keep_checkpoints=keep_checkpoints)
        found = conversation.wait_for(answer, _CANCEL_TIMEOUT_S)
    if isinstance(found, CancelJobRejected | JobStatusChanged):
        return status_from_answer(found)
    raise CommandFailure(
        ExitCode.UNREACHABLE,
        f"job {job_id} did not end within {_CANCEL_TIMEOUT_S:g} s after the cancel request: see "
        f"`tailrace log --job {job_id}`, and check that a jobmanager runs",
    )


def status_from_answer(answer: CancelJobRejected | JobStatusChanged) -> JobStatus:
    """Returns the final status from the answer to a cancel request. Raises CommandFailure if it was rejected."""
    from ....schemas.client import JobStatusChanged
    from ...dispatcher.state import CANCELLED_BEFORE_BUILT, rejection_reason

    if isinstance(answer, JobStatusChanged):
        return answer.status
    if answer.reason != rejection_reason(answer.job_id, CANCELLED_BEFORE_BUILT):
        raise CommandFailure(ExitCode.JOB, answer.reason)
    # The program was not built yet, so no job existed. For the user the result is the same: the job is cancelled.
    print_progress(f"the program of job {answer.job_id} was not built yet, and will not be built")
    return JobStatus.CANCELED


_CANCEL_TIMEOUT_S = 60.0


def output(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has ended.")] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Print what a job's print sinks wrote. JSON: one object per line."""
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    found = find_job(read_jobs(configuration), job)
    from ....schemas.client import JobStatusChanged
    from ...client import Client, read_output

    if not follow or found.status in JOB_ENDS:
        for record in read_output(configuration, found.job_id):
            print_verbatim(format_output(record, output))
        return ExitCode.OK
    with Client(configuration, name="output", timeout=10.0) as client, client.subscribe() as conversation:
        # The job may have ended between the first read and the start of the subscription.
        ended = find_job(read_jobs(configuration), found.job_id).status in JOB_ENDS

        def over() -> bool:
            nonlocal ended
            for record in conversation.poll(0):
                body = record.body
                if isinstance(body, JobStatusChanged) and body.job_id == found.job_id:
                    ended = ended or body.status in JOB_ENDS
            return ended

        for record in read_output(configuration, found.job_id, over=over):
            print_verbatim(format_output(record, output))
    return ExitCode.OK


def read_jobs(configuration: Configuration) -> list[JobView]:
    """Returns all jobs from the log. Raises LogUnavailable."""
    from ...history.cluster_view import jobs
    from ..readers.cluster_state import replay_log

    return jobs(replay_log(configuration))


def find_job(jobs: list[JobView], wanted: str) -> JobView:
    """Returns the job with this id, name or id prefix. If several match, the only one of them that has not ended.

    Raises CommandFailure if no job or several jobs match.
    """
    exact = [job for job in jobs if job.job_id == wanted]
    named = [job for job in jobs if job.name == wanted or job.job_id.startswith(wanted)]
    live = [job for job in named if job.status not in JOB_ENDS]
    found = exact or (live if len(live) == 1 else named)
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"there is no job {wanted!r}: `tailrace list` shows all jobs"
        )
    some = ", ".join(job.job_id for job in found[:5])
    raise CommandFailure(
        ExitCode.USAGE,
        f"{wanted!r} is the name or id prefix of {len(found)} jobs ({some}): give a longer id prefix",
    )


def format_output(record: OutputRecord, output: Format) -> str:
    """Returns a printed record as `SUBTASK> TEXT` or `IDENTIFIER:SUBTASK> TEXT`, or all its fields as JSON."""
    if output is Format.JSON:
        import msgspec

        return msgspec.json.encode(record).decode()
    name = f"{record.identifier}:{record.subtask}" if record.identifier else str(record.subtask)
    return f"{name}> {record.text}"
