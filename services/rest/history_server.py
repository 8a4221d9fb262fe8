"""The application of a history server: clusters that no longer run, from their logs alone, read only.

/clusters/<name>/ has everything that the server of that cluster had, of any moment. Paths without a cluster concern the
only cluster; if there are several, their jobs: lists are merged, and a job is found by its id.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NoReturn, cast

import msgspec
from starlette.applications import Starlette
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from ...infra.closing import Closeable
from ...infra.tls import ServerTls
from ...infra.version import __version__
from ..history import HistoryProjection
from ..history.past_logs import LogFinder
from . import page
from .api import all_jobs as all_jobs_endpoint
from .application import Settings, create_application
from .assembly import own_endpoints
from .commands import Commands, flink_commands
from .endpoint import Answer, Endpoint, Parameters
from .errors import BadRequest, MethodNotAllowed, NotFound
from .flink import ids
from .flink.cluster import ClusterOverview, DashboardConfiguration, configuration
from .flink.endpoints import READS, UNSUPPORTED
from .flink.job_list import JobDetails, JobIds, JobIdWithStatus, JobsOverview, all_jobs, all_jobs_overview
from .forgotten_job import read_with_job
from .moment import Moment
from .openapi import AT
from .past_clusters import ClusterSummary, PastCluster, PastClusters
from .rate_limiter import RateLimiter
from .server import HttpServer

_PREFIX = "/clusters/"
_OVERVIEW = "/api/v1/clusters"


class ClusterEntry(msgspec.Struct, frozen=True):
    """A cluster in /api/v1/clusters. `path`: the prefix of its own paths. Times in milliseconds since the epoch."""

    name: str
    path: str
    place: str
    last_offset: int | None
    """None until the log has been read."""
    last_time: int | None
    jobs: int
    error: str | None


class PlaceError(msgspec.Struct, frozen=True):
    """A place without a readable log."""

    place: str
    error: str


class ClustersOverview(msgspec.Struct, frozen=True):
    """GET /api/v1/clusters"""

    clusters: Sequence[ClusterEntry]
    unreadable: Sequence[PlaceError]


class HistoryServer(Closeable):
    """The server with its clusters. `interval_s`: the seconds between two searches for new logs."""

    def __init__(
        self,
        finder: LogFinder,
        interval_s: float,
        listening: socket.socket,
        settings: Settings,
        max_connections: int,
        tls: ServerTls | None = None,
    ) -> None:
        self.clusters = PastClusters(finder, interval_s)
        self._server = HttpServer(
            HistoryApplication(self.clusters, settings), listening, max_connections, tls
        )

    def close(self) -> None:
        """Ends all threads."""
        self._server.close()
        self.clusters.close()


class HistoryApplication:
    """The ASGI application: it passes a request to the application of its cluster, or to that of all clusters."""

    def __init__(self, clusters: PastClusters, settings: Settings) -> None:
        self._clusters = clusters
        self._settings = settings
        self._limiter = RateLimiter.up_to(settings.max_requests_per_second)
        """One for the applications of all clusters."""
        self._all = self._create_for_all()
        self._one: dict[PastCluster, Starlette] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._all(scope, receive, send)
            return
        path: str = scope["path"]
        name, slash, _ = path.removeprefix(_PREFIX).partition("/")
        cluster = self._clusters.get(name) if path.startswith(_PREFIX) else None
        if cluster is not None:
            if not slash:
                await RedirectResponse(f"{name}/")(scope, receive, send)
                return
            root = scope.get("root_path", "") + _PREFIX + name
            await self._application_of(cluster)({**scope, "root_path": root}, receive, send)
            return
        clusters = self._clusters.all()
        only = clusters[0] if len(clusters) == 1 and path != _OVERVIEW else None
        await (self._all if only is None else self._application_of(only))(scope, receive, send)

    def _application_of(self, cluster: PastCluster) -> Starlette:
        found = self._one.get(cluster)
        if found is None:
            known = set(self._clusters.all())
            self._one = {each: application for each, application in self._one.items() if each in known}
            found = self._one[cluster] = self._create_for_one(cluster)
        return found

    def _create_for_one(self, cluster: PastCluster) -> Starlette:
        def read(at: str | None, parameters: Parameters) -> AbstractContextManager[Moment]:
            return _read_moment(cluster, at, parameters)

        own = own_endpoints(cluster.log.open, _REFUSAL, cluster.feed)
        return create_application(
            read,
            [_adapt(each) for each in _FLINK],
            [_refuse_writes(each) for each in own],
            self._settings,
            page.create_routes(),
            limiter=self._limiter,
        )

    def _create_for_all(self) -> Starlette:
        merged = {
            "/jobs": self._jobs,
            "/jobs/overview": self._jobs_overview,
            "/overview": self._overview,
            "/config": _shared_configuration,
        }
        flink = [
            replace(each, view=None, command=merged[each.path], response=each.response_type, query=(AT,))
            if each.method == "GET" and each.path in merged
            else _adapt(each)
            for each in _FLINK
        ]
        own = [
            list_clusters_endpoint(self._list),
            replace(
                all_jobs_endpoint.READS[0],
                view=None,
                command=self._jobs_overview,
                response=JobsOverview,
                query=(AT,),
            ),
        ]
        return create_application(
            self._read, flink, own, self._settings, page.create_routes(), limiter=self._limiter
        )

    def _read(self, at: str | None, parameters: Parameters) -> AbstractContextManager[Moment]:
        return _read_moment(self._find(parameters), at, parameters)

    def _find(self, parameters: Parameters) -> PastCluster:
        """Returns the cluster that a request is about. Raises NotFound."""
        clusters = self._clusters.all()
        wanted = parameters.get("jobid") or parameters.get("applicationid")
        if wanted is not None:
            for each in clusters:
                if ids.to_job_id(wanted) in each.job_ids:
                    return each
            raise NotFound(f"Job {wanted[:128]} not found")
        names = ", ".join(each.name for each in clusters[:20]) or "none"
        raise NotFound(
            f"There are several clusters: the path begins with {_PREFIX}NAME. Their names: {names}."
        )

    def _summaries(self, parameters: Parameters) -> list[ClusterSummary]:
        """Returns the summaries of all clusters at a time. Raises BadRequest for an offset."""
        at = parameters.get(AT.name)
        if at is None:
            return [each.summary for each in self._clusters.all() if each.summary is not None]
        if at.lstrip("-").isdecimal():
            raise BadRequest(
                "An offset is of one cluster: the path begins with /clusters/NAME, or `at` is a time."
            )
        found = []
        for each in self._clusters.all():
            try:
                with each.moments.read(at) as moment:
                    found.append(ClusterSummary.of(moment))
            except NotFound:
                # It began later.
                continue
        return found

    def _jobs(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /jobs: the jobs of all clusters"""
        known = self._merge(parameters)
        return Answer(JobIds([JobIdWithStatus(job.jid, job.state) for job in known]), 200)

    def _jobs_overview(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /jobs/overview: the jobs of all clusters"""
        return Answer(JobsOverview(self._merge(parameters)), 200)

    def _merge(self, parameters: Parameters) -> list[JobDetails]:
        jobs = [job for each in self._summaries(parameters) for job in each.jobs]
        return sorted(jobs, key=lambda job: (job.start_time, job.jid))

    def _overview(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /overview: the sums over all clusters"""
        known = [each.overview for each in self._summaries(parameters)]
        sums = {
            name: sum(getattr(each, name) for each in known)
            for name, kind in ClusterOverview.__annotations__.items()
            if kind in (int, "int")
        }
        return Answer(ClusterOverview(**sums, flink_version=__version__, flink_commit=""), 200)

    def _list(self, _parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /clusters: the clusters, and the places without a readable log"""
        entries = [
            ClusterEntry(
                name=each.name,
                path=f"{_PREFIX}{each.name}",
                place=each.log.place,
                last_offset=None if each.summary is None else each.summary.offset,
                last_time=None if each.summary is None else each.summary.time,
                jobs=0 if each.summary is None else len(each.summary.jobs),
                error=each.error,
            )
            for each in self._clusters.all()
        ]
        return Answer(
            ClustersOverview(entries, [PlaceError(*item) for item in sorted(self._clusters.errors.items())]),
            200,
        )


def list_clusters_endpoint(command: Callable[..., Answer]) -> Endpoint:
    """Returns the endpoint of the list of clusters."""
    return Endpoint("GET", "/clusters", command=command, response=ClustersOverview)


def _read_moment(
    cluster: PastCluster, at: str | None, parameters: Parameters
) -> AbstractContextManager[Moment]:
    """Yields the moment of a cluster that has the job of the parameters, if they name one."""
    return read_with_job(cluster.moments.read(at), cluster.moments, parameters)


class _Refusal:
    """Commands that are all refused."""

    def __getattr__(self, name: str) -> Any:
        return _refuse


def _refuse(*_: object) -> NoReturn:
    raise MethodNotAllowed(
        "A history server only reads: send the request to a server of a cluster that runs.", {"Allow": "GET"}
    )


def _refuse_writes(endpoint: Endpoint) -> Endpoint:
    """Documents that writes are refused."""
    if endpoint.method == "GET":
        return endpoint
    return replace(endpoint, errors=(*endpoint.errors, MethodNotAllowed))


def _adapt(endpoint: Endpoint) -> Endpoint:
    """Lists forgotten jobs, too, among Flink's endpoints; documents that writes are refused."""
    if endpoint.method != "GET":
        return _refuse_writes(endpoint)
    views = {"/jobs": all_jobs, "/jobs/overview": all_jobs_overview, "/config": _configuration}
    return replace(endpoint, view=views[endpoint.path]) if endpoint.path in views else endpoint


def _configuration(moment: Moment, parameters: Parameters) -> DashboardConfiguration:
    """GET /config"""
    found = configuration(moment, parameters)
    features = msgspec.structs.replace(found.features, web_cancel=False, web_submit=False, web_history=True)
    return msgspec.structs.replace(found, features=features)


def _shared_configuration(_parameters: Parameters, _body: object, _key: str | None) -> Answer:
    """GET /config"""
    now = Moment(HistoryProjection(), time.time_ns() // 1_000_000)
    return Answer(_configuration(now, {}), 200)


_REFUSAL = cast("Commands", _Refusal())
_FLINK = (*READS, *flink_commands(_REFUSAL), *UNSUPPORTED)
