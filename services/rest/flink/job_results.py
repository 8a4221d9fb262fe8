"""What becomes of a job: its failures, its accumulators, and its result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ..endpoint import Parameters
from ..moment import Moment
from . import ids
from .job_list import job_extent
from .lookup import find_graph, find_job
from .times import duration

_MAX_EXCEPTIONS = 20
"""The number of failures that Flink returns unless `maxExceptions` says another."""


class RootException(msgspec.Struct, frozen=True, rename="camel"):
    """A failure of a task."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: Mapping[str, str]
    task_name: str | None
    endpoint: str | None
    task_manager_id: str | None
    concurrent_exceptions: Sequence[str]


class ExceptionHistory(msgspec.Struct, frozen=True):
    """The failures, newest first."""

    entries: Sequence[RootException]
    truncated: bool


class JobExceptions(msgspec.Struct, frozen=True, rename="camel"):
    """/jobs/:jobid/exceptions"""

    exception_history: ExceptionHistory


class Accumulator(msgspec.Struct, frozen=True):
    """The sum of a counter over all subtasks that have ended."""

    name: str
    type: str
    value: str


class JobAccumulators(msgspec.Struct, frozen=True, rename="kebab"):
    """/jobs/:jobid/accumulators"""

    job_accumulators: Sequence[Accumulator]
    user_task_accumulators: Sequence[Accumulator]
    serialized_user_task_accumulators: Mapping[str, str]


class QueueStatus(msgspec.Struct, frozen=True):
    """IN_PROGRESS or COMPLETED."""

    id: str


class FailureCause(msgspec.Struct, frozen=True, rename="kebab"):
    """Why a job or an operation failed. `class` names Flink's exception, `stack_trace` is one sentence."""

    class_name: str = msgspec.field(name="class")
    stack_trace: str


class JobExecutionResult(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The result of a job that has ended. Flink's clients read JobResult's fields."""

    id: str
    application_status: str
    net_runtime: int
    accumulator_results: Mapping[str, str]
    failure_cause: FailureCause | None = None


class JobExecutionResultResponse(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """/jobs/:jobid/execution-result"""

    status: QueueStatus
    job_execution_result: JobExecutionResult | None = None


def exceptions(moment: Moment, parameters: Parameters) -> JobExceptions:
    """GET /jobs/:jobid/exceptions: the last failures of tasks, newest first"""
    _, view = find_job(moment, parameters)
    known = find_graph(moment, view).exceptions or view.failures
    most = parameters.get("maxExceptions")
    kept = list(reversed(known))[: _MAX_EXCEPTIONS if most is None else most]
    entries = [
        RootException(
            exception_name=_exception_name(each.text),
            stacktrace=each.text,
            timestamp=each.time // 1000,
            failure_labels={},
            task_name=each.task,
            endpoint=each.resource_id,
            task_manager_id=each.resource_id,
            concurrent_exceptions=(),
        )
        for each in kept
    ]
    return JobExceptions(ExceptionHistory(entries, len(kept) < len(known)))


def accumulators(moment: Moment, parameters: Parameters) -> JobAccumulators:
    """GET /jobs/:jobid/accumulators"""
    _, view = find_job(moment, parameters)
    counters = [
        Accumulator(name, "DoubleCounter", json.dumps(value))
        for name, value in sorted(view.accumulators.items())
    ]
    return JobAccumulators((), counters, {})


def execution_result(moment: Moment, parameters: Parameters) -> JobExecutionResultResponse:
    """GET /jobs/:jobid/execution-result: IN_PROGRESS until the job has ended"""
    _, view = find_job(moment, parameters)
    if view.status not in JOB_ENDS:
        return JobExecutionResultResponse(QueueStatus("IN_PROGRESS"))
    start, end = job_extent(view)
    names = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.CANCELED: "CANCELED", JobStatus.FAILED: "FAILED"}
    result = JobExecutionResult(
        id=ids.to_job_id(view.job_id),
        application_status=names[view.status],
        net_runtime=max(0, duration(start, end, moment.now)),
        accumulator_results={},
        failure_cause=None
        if view.status is JobStatus.FINISHED
        else FailureCause(
            "org.apache.flink.runtime.client.JobCancellationException"
            if view.status is JobStatus.CANCELED
            else "org.apache.flink.runtime.client.JobExecutionException",
            view.reason or f"the job is {view.status.value}",
        ),
    )
    return JobExecutionResultResponse(QueueStatus("COMPLETED"), result)


def _exception_name(text: str) -> str:
    """Returns the type of the exception: of a stack trace of Python, that in its last line."""
    lines = [line for line in text.strip().splitlines() if line and not line.startswith(" ")]
    name = (lines[-1] if lines else "").partition(":")[0].strip()
    return name if name and " " not in name else "TaskFailure"
