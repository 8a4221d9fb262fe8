"""The checks of a submission. `decide` runs them once; the log has the result, and no replica repeats them.

A submission is judged by the log before it. So a cancellation or a shutdown that follows it changes nothing: the job is
accepted, and then cancelled or suspended as any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...infra.config.option_types import LOCATION
from ...infra.config.options import ConfigOption, shown
from ...pipelines.checkpoint.layout import METADATA
from ...pipelines.graph import job_options, limits, python_files
from ...pipelines.graph.execution_graph import required_slots
from ...pipelines.graph.validation import validate
from ...schemas.ids import is_id
from ...schemas.types import EntryPoint, JobGraph, JobStatus
from ..blobs import job_blobs
from ..configuration.options.jobs import (
    MAX_JOBS,
    MAX_JOBS_PER_CLIENT,
    MAX_WAITING_PROGRAMS,
    MAX_WAITING_PROGRAMS_PER_CLIENT,
)
from ..configuration.options.tenants import (
    TENANT_MAX_JOBS,
    TENANT_MAX_SLOTS,
    TENANTS,
    job_id_prefix,
    option_of,
)
from ..configuration.role_options import TenantOptions
from .state import DispatcherState, Job, Phase, Submission, submitter_of
from .turn import AcceptedSubmissions

MAX_DIRECTORY_LENGTH = 2_048
"""Characters of a directory."""
_REASONS = 5
_SHOWN_NAME = 100
_SHOWN = 1_000
"""The length of the shown reason why the cluster shuts down."""
_ENDED = {JobStatus.FINISHED: "finished", JobStatus.FAILED: "failed", JobStatus.CANCELED: "was cancelled"}


def find_submission_error(
    state: DispatcherState, offset: int, submission: Submission, accepted: AcceptedSubmissions
) -> str | None:
    """Returns why the submission at this offset is rejected, or None. `accepted`: those before it in the same turn."""
    return (
        _find_id_error(state, submission.job_id, submission.tenant)
        or _find_cluster_error(state, offset, submission)
        or _find_quota_error(state, submission, accepted)
        or _find_content_error(submission)
        or find_tenant_error(state, submission.tenant, submission.graph, accepted)
    )


def find_graph_error(graph: JobGraph, job_id: str) -> str | None:
    """Returns why a graph is rejected, or None."""
    return _guard(lambda: job_blobs.find_fault(graph, job_id) or _join_some(validate(graph)) or None)


def find_tenant_error(
    state: DispatcherState, tenant: str, graph: JobGraph | None, accepted: AcceptedSubmissions
) -> str | None:
    """Returns why a tenant may not run the graph, or None. `graph`: None if it is not built yet."""
    if not tenant:
        return None
    options = state.options.tenants.get(tenant)
    if options is None:
        return f"{TENANTS.key} does not name tenant {tenant} any more"
    if graph is None:
        return None
    if not graph.name.startswith(options.job_name_prefix):
        wanted = f"the names of jobs of tenant {tenant} begin with {options.job_name_prefix!r}"
        return f"{wanted}, and this one is {graph.name[:_SHOWN_NAME]!r}: rename the job"
    submitter, required = submitter_of(tenant, ""), required_slots(graph)
    used = state.slots_of.get(submitter, 0) + accepted.slots[submitter]
    if options.max_slots is None or used + required <= options.max_slots:
        return None
    option = option_of(TENANT_MAX_SLOTS, tenant)
    what = f"it requires {required:,} slots, and the jobs of tenant {tenant} have {used:,}"
    allowed = f"{options.max_slots:,} that {option.key} allows"
    return f"{what} of the {allowed}: submit it when some have ended, or raise the option"


def find_location_error(text: str, *, what: str) -> str | None:
    """Returns why a text from outside is not a location in storage; None if it is one."""
    try:
        if len(text) <= MAX_DIRECTORY_LENGTH:
            LOCATION.read(text)
            return None
    except ValueError:
        pass
    return f"{what} {shown(text)} is not possible: give {LOCATION.wanted}"


def savepoint_directory(location: str | None) -> str | None:
    """Returns the URI of a savepoint's directory; None if it is no location. A request may also name its metadata."""
    if location is None or find_location_error(location, what="") is not None:
        return None
    return LOCATION.read(location).removesuffix(f"/{METADATA}")


def _find_id_error(state: DispatcherState, job_id: str, tenant: str) -> str | None:
    if not is_id(job_id):
        return f"job id {job_id[:80]!r} is not 1 to 64 letters, digits, '-' or '_': choose another"
    for name in state.options.tenants:
        if name != tenant and job_id.startswith(job_id_prefix(name)):
            prefix = job_id_prefix(name)
            return (
                f"job id {job_id} begins with {prefix!r}, as those of tenant {name} only do: choose another"
            )
    if job_id in state.jobs:
        return f"job {job_id} {_describe_outcome(state.jobs[job_id])}: choose another job id"
    return None


def _describe_outcome(job: Job) -> str:
    """Returns a hint for a repeated job id: an ended job is never run again, and its end is in the log."""
    if job.phase in (Phase.TERMINATED, Phase.ENDED):
        return f"{_ENDED[job.status]} at offset {job.cause}"
    return f"was submitted before and is {job.phase.value}"


def _find_cluster_error(state: DispatcherState, offset: int, submission: Submission) -> str | None:
    if state.ending is not None and state.ending.cause < offset:
        return f"the cluster is shutting down ({state.ending.reason[:_SHOWN]}): submit again when it has been started"
    return None


def _find_quota_error(
    state: DispatcherState, submission: Submission, accepted: AcceptedSubmissions
) -> str | None:
    options, submitter = state.options, submission.submitter
    who = submission.requester
    max_jobs, of_whom = options.max_jobs_per_client, MAX_JOBS_PER_CLIENT
    if submission.tenant:
        who = f"tenant {submission.tenant}"
        tenant = options.tenants.get(submission.tenant, TenantOptions())
        if tenant.max_jobs is not None:
            max_jobs, of_whom = tenant.max_jobs, option_of(TENANT_MAX_JOBS, submission.tenant)
    jobs = len(state.live) + len(state.suspended) + accepted.jobs.total()
    own = state.jobs_of.get(submitter, 0) + accepted.jobs[submitter]
    if jobs >= options.max_jobs:
        return _over(f"the cluster has {jobs:,} jobs", MAX_JOBS, options.max_jobs)
    if own >= max_jobs:
        return _over(f"{who} has {own:,} jobs", of_whom, max_jobs)
    if submission.graph is not None:
        return None
    programs = len(state.building) + accepted.programs.total()
    own = state.building.count_of(submitter) + accepted.programs[submitter]
    if programs >= options.max_programs:
        return _over(f"{programs:,} programs wait to be built", MAX_WAITING_PROGRAMS, options.max_programs)
    if own >= options.max_programs_per_client:
        what = f"{own:,} programs of {who} wait to be built"
        return _over(what, MAX_WAITING_PROGRAMS_PER_CLIENT, options.max_programs_per_client)
    return None


def _over(what: str, option: ConfigOption[Any], most: int) -> str:
    return f"{what}, and {option.key} allows {most:,}: submit again when some have ended, or raise the option"


def _find_content_error(submission: Submission) -> str | None:
    graph, entry_point = submission.graph, submission.entry_point
    if (graph is None) == (entry_point is None):
        return "exactly one of job_graph and entry_point must be given"
    if submission.parallelism is not None and submission.parallelism < 1:
        return f"parallelism {submission.parallelism} is impossible: give 1 or more"
    path = submission.savepoint_path
    if path is not None and (error := find_location_error(path, what="the savepoint")) is not None:
        return error
    if graph is not None:
        return find_graph_error(graph, submission.job_id)
    return (
        None if entry_point is None else _guard(lambda: _find_program_error(entry_point, submission.job_id))
    )


def _find_program_error(entry_point: EntryPoint, job_id: str) -> str | None:
    if (error := job_blobs.find_fault(entry_point, job_id)) is not None:
        return error
    if faults := job_options.faults(entry_point.configuration):
        return f"configuration: {'; '.join(faults)}"
    faults = [
        *limits.entry_point_errors(entry_point),
        *python_files.validation_errors(entry_point.python_files),
    ]
    return _join_some(faults) or None


def _guard(find_error: Callable[[], str | None]) -> str | None:
    """A fault of the checks themselves rejects the one submission. Without this it would end every leader."""
    try:
        return find_error()
    except Exception as error:
        return f"it cannot be checked: {type(error).__name__}: {error}"


def _join_some(reasons: list[str]) -> str:
    """Joins the first few reasons: a graph may have more errors than an answer can hold."""
    left = len(reasons) - _REASONS
    return "; ".join(reasons[:_REASONS]) + (f"; and {left} more" if left > 0 else "")
