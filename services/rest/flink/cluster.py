"""The cluster: /overview, /config, /jobmanager/config and /jobmanager/environment."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence

import msgspec

from ....infra.version import __version__
from ....schemas.types import JobStatus
from ...core.role import RESOURCE_MANAGER
from ...history import cluster_view
from ...resource_manager.state import ResourceManagerState
from ..endpoint import Parameters
from ..moment import Moment
from .lookup import dispatcher, find_job

_REFRESH_INTERVAL_MS = 3_000
_OVER = frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED})


class ClusterOverview(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's ClusterOverviewWithVersion. The version is tailrace's. Available slots are those that jobs can get. The
    numbers of blocked TaskExecutors, which are quarantined or drained, and of their free slots are absent if 0."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    taskmanagers_blocked: int | msgspec.UnsetType = msgspec.UNSET
    slots_free_and_blocked: int | msgspec.UnsetType = msgspec.UNSET


class Features(msgspec.Struct, frozen=True, rename="kebab"):
    """What the dashboard may offer."""

    web_submit: bool
    web_cancel: bool
    web_rescale: bool
    web_history: bool


class DashboardConfiguration(msgspec.Struct, frozen=True, rename="kebab"):
    """Flink's DashboardConfiguration. The version is tailrace's."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: Features


class ConfigurationEntry(msgspec.Struct, frozen=True):
    """One option."""

    key: str
    value: str


class Runtime(msgspec.Struct, frozen=True):
    """The Python of the process that answers."""

    version: str
    arch: str
    options: Sequence[str]


class DataSet(msgspec.Struct, frozen=True):
    """A data set that jobs share. There is none: tailrace has no batch jobs."""


class DataSets(msgspec.Struct, frozen=True, rename="camel"):
    """Flink's ClusterDataSetListResponseBody."""

    data_sets: Sequence[DataSet]


class Environment(msgspec.Struct, frozen=True):
    """Flink's EnvironmentInfo. `classpath` is empty: tailrace has none."""

    jvm: Runtime
    classpath: Sequence[str]


def overview(moment: Moment, _: Parameters) -> ClusterOverview:
    """GET /overview"""
    state = moment.fold.replica.states.get(RESOURCE_MANAGER)
    known = state if isinstance(state, ResourceManagerState) else ResourceManagerState()
    slots = known.slot_manager.slots
    blocked = sum(len(slots.workers[each].free) for each in slots.excluded)
    statuses = list(cluster_view.statuses(moment.fold.replica).values())
    return ClusterOverview(
        taskmanagers=len(known.workers),
        slots_total=slots.count,
        slots_available=slots.free_count - blocked,
        jobs_running=sum(status not in _OVER for status in statuses),
        jobs_finished=statuses.count(JobStatus.FINISHED),
        jobs_cancelled=statuses.count(JobStatus.CANCELED),
        jobs_failed=statuses.count(JobStatus.FAILED),
        flink_version=__version__,
        flink_commit="",
        taskmanagers_blocked=len(slots.excluded) or msgspec.UNSET,
        slots_free_and_blocked=blocked or msgspec.UNSET,
    )


def configuration(moment: Moment, _: Parameters) -> DashboardConfiguration:
    """GET /config"""
    return _configuration(moment, has_programs=True)


def configuration_without_programs(moment: Moment, _: Parameters) -> DashboardConfiguration:
    """GET /config: of a server that runs no programs"""
    return _configuration(moment, has_programs=False)


def _configuration(moment: Moment, *, has_programs: bool) -> DashboardConfiguration:
    zone = time.localtime(moment.now / 1000)
    return DashboardConfiguration(
        refresh_interval=_REFRESH_INTERVAL_MS,
        timezone_name=zone.tm_zone,
        timezone_offset=zone.tm_gmtoff * 1000,
        flink_version=__version__,
        flink_revision="",
        features=Features(web_submit=has_programs, web_cancel=True, web_rescale=False, web_history=False),
    )


def jobmanager_configuration(moment: Moment, _: Parameters) -> list[ConfigurationEntry]:
    """GET /jobmanager/config: the options that the leader has written into the log, which are no secrets"""
    known = dispatcher(moment).configuration or {}
    return [ConfigurationEntry(key, known[key]) for key in sorted(known)]


def data_sets(_moment: Moment, _: Parameters) -> DataSets:
    """GET /datasets: none"""
    return DataSets(())


def environment(_moment: Moment, _: Parameters) -> Environment:
    """GET /jobmanager/environment"""
    version = f"{platform.python_implementation()} {sys.version.split()[0]}"
    return Environment(Runtime(version, platform.machine(), ()), ())


def job_jobmanager_configuration(moment: Moment, parameters: Parameters) -> list[ConfigurationEntry]:
    """GET /jobs/:jobid/jobmanager/config: the same as /jobmanager/config"""
    find_job(moment, parameters)
    return jobmanager_configuration(moment, parameters)


def job_environment(moment: Moment, parameters: Parameters) -> Environment:
    """GET /jobs/:jobid/jobmanager/environment: the same as /jobmanager/environment"""
    find_job(moment, parameters)
    return environment(moment, parameters)
