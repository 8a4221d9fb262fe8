"""The table of Flink's endpoints that only read."""

from __future__ import annotations

import re

import msgspec

from ..endpoint import Endpoint, Parameter, Parameters, View
from ..errors import NotFound, NotSupported
from ..moment import Moment
from . import (
    applications,
    checkpoint_configuration,
    checkpoint_subtasks,
    checkpoints,
    cluster,
    job_list,
    job_metrics,
    job_results,
    jobs,
    operations,
    plan,
    taskmanagers,
    vertex_metrics,
    vertices,
)
from .lookup import find_job

_GET = Parameter("get", str, "The names of metrics, with commas between.")
_AGGREGATION = Parameter("agg", str, "The aggregations, with commas between: min, max, avg, sum, skew.")
_JOBS = Parameter("jobs", str, "The ids of jobs, with commas between; all without it.")
_TASKMANAGERS = Parameter(
    "taskmanagers", str, "The ids of TaskExecutors, with commas between; all without it."
)
_SUBTASKS = Parameter("subtasks", str, "The numbers of subtasks, such as 0,2,4-7; all without it.")
PATH_PARAMETERS = {
    parameter.name: parameter
    for parameter in (
        Parameter("jobid", str, "The id of a job: Flink's 32 hexadecimal digits, or tailrace's."),
        Parameter("applicationid", str, "The id of an application: that of its job."),
        Parameter(
            "jarid", str, "The id of a program: the last part of `filename` in the answer to its upload."
        ),
        Parameter("vertexid", str, "The id of a vertex: Flink's 32 hexadecimal digits, or tailrace's."),
        Parameter("checkpointid", int, "The number of a checkpoint.", minimum=0, maximum=2**63 - 1),
        Parameter(
            "subtaskindex", int, "The number of a subtask; 0 is the first.", minimum=0, maximum=2**31 - 1
        ),
        Parameter("attempt", int, "The number of an attempt; 0 is the first.", minimum=0, maximum=2**31 - 1),
        Parameter("logname", str, "The name of a log file."),
        Parameter("taskmanagerid", str, "The resource id of a TaskExecutor."),
        Parameter(
            "triggerid",
            str,
            "The id that the request for a savepoint, checkpoint or disposal was answered with.",
        ),
    )
}


class LogUrl(msgspec.Struct, frozen=True):
    """Flink's LogUrlResponse."""

    url: str


def path_parameters(path: str) -> tuple[Parameter, ...]:
    """Returns the parameters that a path names."""
    return tuple(PATH_PARAMETERS[name] for name in re.findall(r"\{(\w+)\}", path))


def _read(path: str, view: View, *query: Parameter, is_live: bool = False) -> Endpoint:
    return Endpoint("GET", path, path_parameters(path), query, view=view, errors=(NotFound,), is_live=is_live)


def _live(path: str, view: View, *query: Parameter) -> Endpoint:
    return _read(path, view, *query, is_live=True)


def _unsupported(method: str, path: str, instead: str) -> Endpoint:
    return Endpoint(method, path, path_parameters(path), errors=(NotSupported,), instead=instead)


def log_url_endpoint(url: str) -> Endpoint:
    """Returns the endpoint of the page with the log files of the leading jobmanager. `url`: of the server."""

    def log_url(moment: Moment, parameters: Parameters) -> LogUrl:
        """GET /jobs/:jobid/jobmanager/log-url: the page with the log files of the leading jobmanager"""
        find_job(moment, parameters)
        return LogUrl(f"{url}/#/logs/jobmanager")

    return _read(f"{_JOB}/jobmanager/log-url", log_url)


_APPLICATION = "/applications/{applicationid}"
_JOB = "/jobs/{jobid}"
_VERTEX = f"{_JOB}/vertices/{{vertexid}}"
_SUBTASK = f"{_VERTEX}/subtasks/{{subtaskindex}}"
_TASKMANAGER = "/taskmanagers/{taskmanagerid}"

READS: tuple[Endpoint, ...] = (
    _read("/overview", cluster.overview),
    _read("/config", cluster.configuration),
    _read("/applications/overview", applications.overview),
    _read(_APPLICATION, applications.application),
    _read(f"{_APPLICATION}/exceptions", applications.exceptions),
    _read(f"{_APPLICATION}/jobmanager/config", applications.configuration),
    _read("/datasets", cluster.data_sets),
    _read("/jobmanager/config", cluster.jobmanager_configuration),
    _read("/jobmanager/environment", cluster.environment),
    _read("/jobmanager/metrics", job_metrics.cluster_metrics, _GET),
    _read("/jobs", job_list.jobs),
    _read("/jobs/overview", job_list.overview),
    _read("/jobs/metrics", job_metrics.aggregated_metrics, _GET, _AGGREGATION, _JOBS),
    _live(_JOB, jobs.job),
    _read(f"{_JOB}/plan", plan.plan),
    _read(f"{_JOB}/config", jobs.configuration),
    _read(
        f"{_JOB}/exceptions",
        job_results.exceptions,
        Parameter("maxExceptions", int, "The number of failures to return.", minimum=0, maximum=1_000),
    ),
    _read(f"{_JOB}/status", jobs.status),
    _read(f"{_JOB}/accumulators", job_results.accumulators),
    _read(f"{_JOB}/execution-result", job_results.execution_result),
    _read(f"{_JOB}/resource-requirements", jobs.resource_requirements),
    _live(f"{_JOB}/metrics", job_metrics.metrics, _GET),
    _read(f"{_JOB}/checkpoints", checkpoints.checkpoints),
    _read(f"{_JOB}/checkpoints/{{triggerid}}", operations.checkpoint_result),
    _read(f"{_JOB}/savepoints/{{triggerid}}", operations.savepoint_result),
    _read(f"{_JOB}/checkpoints/config", checkpoint_configuration.configuration),
    _read(f"{_JOB}/checkpoints/details/{{checkpointid}}", checkpoints.details),
    _read(f"{_JOB}/checkpoints/details/{{checkpointid}}/subtasks/{{vertexid}}", checkpoint_subtasks.subtasks),
    _read(f"{_JOB}/jobmanager/config", cluster.job_jobmanager_configuration),
    _read(f"{_JOB}/jobmanager/environment", cluster.job_environment),
    _live(_VERTEX, vertices.vertex),
    _read(f"{_VERTEX}/accumulators", vertices.accumulators),
    _live(f"{_VERTEX}/backpressure", vertex_metrics.back_pressure),
    _live(f"{_VERTEX}/metrics", vertex_metrics.metrics, _GET),
    _read(f"{_VERTEX}/jm-operator-metrics", vertex_metrics.no_operator_metrics, _GET),
    _read(f"{_VERTEX}/subtasktimes", vertices.subtask_times),
    _live(f"{_VERTEX}/taskmanagers", vertices.taskmanagers),
    _live(f"{_VERTEX}/watermarks", vertex_metrics.watermarks),
    _read(f"{_VERTEX}/subtasks/accumulators", vertices.subtasks_accumulators),
    _live(f"{_VERTEX}/subtasks/metrics", vertex_metrics.aggregated_metrics, _GET, _AGGREGATION, _SUBTASKS),
    _live(_SUBTASK, vertices.subtask),
    _live(f"{_SUBTASK}/metrics", vertex_metrics.subtask_metrics, _GET),
    _live(f"{_SUBTASK}/attempts/{{attempt}}", vertices.subtask),
    _read(f"{_SUBTASK}/attempts/{{attempt}}/accumulators", vertices.attempt_accumulators),
    _read("/savepoint-disposal/{triggerid}", operations.disposal_result),
    _read("/taskmanagers", taskmanagers.taskmanagers),
    _live("/taskmanagers/metrics", taskmanagers.aggregated_metrics, _GET, _AGGREGATION, _TASKMANAGERS),
    _live(_TASKMANAGER, taskmanagers.taskmanager),
    _live(f"{_TASKMANAGER}/metrics", taskmanagers.metrics, _GET),
)
WITHOUT_PROGRAMS = (_read("/config", cluster.configuration_without_programs),)
"""Endpoints of a server that runs no programs: each replaces one of `READS`."""
_NO_RESCALING = (
    "Flink has not supported this request since 1.9. Change the parallelism of a job that runs with PUT "
    "/jobs/:jobid/resource-requirements, or POST /api/v1/jobs/:jobid/rescale"
)
UNSUPPORTED: tuple[Endpoint, ...] = (
    _unsupported(
        "POST",
        "/jobs",
        "it runs no job graphs of Flink. Submit a program with POST /api/v1/submissions, or upload one and run it with "
        "POST /jars/:jarid/run",
    ),
    _unsupported("PATCH", f"{_JOB}/rescaling", _NO_RESCALING),
)
"""Endpoints of Flink that tailrace does not have: they are answered with 501."""
