"""Puts a REST server together: the replicas that it reads, its endpoints, and the HTTP server."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from ...infra.closing import Closeable
from ...infra.config.option_types import SECOND
from ...infra.tls import ServerTls
from ..configuration import Configuration
from ..configuration.options.diagnostics import METRICS_UPDATE_INTERVAL
from ..configuration.options.rest import (
    MAX_PROGRAM_BYTES,
    MAX_PROGRAMS,
    REST_MAX_CONNECTIONS,
    WEB_SUBMIT_ENABLE,
    WEB_UPLOAD_DIR,
)
from ..diagnostics.client import DiagnosticsClient
from ..history.job_history_store import JobHistoryStore
from ..history.log_source import OpenSource, open_log_source
from . import page
from .api import (
    all_jobs,
    attempts,
    blobs,
    cluster,
    job_configuration,
    jobs,
    masters,
    quarantines,
    state,
    subtasks,
)
from .api.job_offsets import JobOffsets, job_offset_endpoints
from .api.topics import ClusterTopics, Read, topic_endpoints
from .application import Settings, create_application
from .commands import Commands, flink_commands, own_commands, program_commands
from .diagnostics import Diagnostics, diagnostics_endpoints
from .endpoint import Endpoint, Parameters
from .event_feed import EventFeed
from .flink.endpoints import READS, UNSUPPORTED, WITHOUT_PROGRAMS, log_url_endpoint
from .flink.taskmanagers import diagnostics_addresses
from .forgotten_job import find_last_offset, read_with_job
from .live_replica import LiveReplica
from .log_endpoints import log_endpoints
from .metric_fetcher import MetricFetcher
from .moment import Moment
from .past_moments import PastMoments
from .program_store import ProgramStore
from .programs import Programs
from .requests import Requests
from .server import HttpServer


def list_endpoints(
    open_source: OpenSource,
    requests: Commands,
    feed: EventFeed,
    diagnostics: Diagnostics,
    of_now: Sequence[Endpoint],
    programs: Programs | None = None,
    url: str = "",
) -> tuple[list[Endpoint], list[Endpoint]]:
    """Returns Flink's endpoints, and tailrace's own. `of_now`: what the log does not have.
    `programs`: None if the server runs no programs. `url`: of the server, for links to its page."""
    of_programs = WITHOUT_PROGRAMS if programs is None else program_commands(programs)
    flink = [
        *of_programs,
        *READS,
        log_url_endpoint(url),
        *flink_commands(requests),
        *diagnostics_endpoints(diagnostics),
        *UNSUPPORTED,
    ]
    own = [*own_endpoints(open_source, requests, feed), *of_now]
    return flink, own


def own_endpoints(open_source: OpenSource, requests: Commands, feed: EventFeed) -> list[Endpoint]:
    """Returns tailrace's own endpoints that need the log only."""
    of_jobs = [*jobs.READS, *all_jobs.READS, *attempts.READS, *subtasks.READS]
    reads = [
        *state.READS,
        *blobs.READS,
        *cluster.READS,
        *quarantines.READS,
        *job_configuration.READS,
        *of_jobs,
    ]
    return [*reads, *log_endpoints(open_source, feed), *own_commands(requests)]


def create_endpoints_of_now(configuration: Configuration, read: Read, requests: Requests) -> list[Endpoint]:
    """Returns the endpoints that ask Kafka, ZooKeeper and BlobServers for what the log does not have."""
    topics = ClusterTopics.from_configuration(configuration, read)
    contents = blobs.BlobContents.from_configuration(configuration, read)
    return [
        *topic_endpoints(topics),
        *job_offset_endpoints(JobOffsets.from_configuration(configuration, read, requests)),
        blobs.create_endpoint(contents),
        masters.create_endpoint(lambda: masters.read_candidates(configuration)),
    ]


def _create_programs(
    configuration: Configuration, requests: Requests, replica: LiveReplica, url: str
) -> Programs | None:
    if not configuration.get(WEB_SUBMIT_ENABLE):
        return None
    directory = configuration.get(WEB_UPLOAD_DIR)
    if directory is None:
        directory = f"{configuration.ha_storage.rstrip('/')}/{configuration.ha_cluster_id}/uploads"
    store = ProgramStore(directory, configuration.get(MAX_PROGRAMS), configuration.get(MAX_PROGRAM_BYTES))
    return Programs(store, requests, replica, url)


class ReplicaServer(Closeable):
    """The server with its replicas."""

    def __init__(
        self,
        configuration: Configuration,
        listening: socket.socket,
        settings: Settings,
        tls: ServerTls | None = None,
        *,
        address: str = "",
    ) -> None:
        """`address`: host:port, as clients are told."""
        open_source = functools.partial(open_log_source, configuration)
        histories = JobHistoryStore.from_configuration(configuration)
        self._live = LiveReplica(open_source, histories)
        self._past = PastMoments(open_source, histories)
        self._requests = Requests(configuration, self._live, address)
        client = DiagnosticsClient.from_configuration(configuration)
        self._fetcher = MetricFetcher(client, configuration.get(METRICS_UPDATE_INTERVAL) / SECOND)
        diagnostics = Diagnostics.from_moments(client, self._live.read)
        self._feed = EventFeed(open_source, self._live)
        url = f"{'http' if tls is None else 'https'}://{address}"
        flink, own = list_endpoints(
            open_source,
            self._requests,
            self._feed,
            diagnostics,
            create_endpoints_of_now(configuration, self._live.read, self._requests),
            _create_programs(configuration, self._requests, self._live, url),
            url,
        )
        application = create_application(
            self._read, flink, own, settings, page.create_routes(), read_live=self._read_live
        )
        self._server = HttpServer(application, listening, configuration.get(REST_MAX_CONNECTIONS), tls)

    def _read(self, at: str | None, parameters: Parameters) -> AbstractContextManager[Moment]:
        wanted = self._live.read() if at is None else self._past.read(at)
        return read_with_job(wanted, self._past, parameters)

    @contextmanager
    def _read_live(self, parameters: Parameters) -> Iterator[Moment]:
        with self._live.read() as moment:
            last, addresses = find_last_offset(moment, parameters), diagnostics_addresses(moment)
        if last is not None:
            with self._past.read(str(last)) as moment:
                yield moment
            return
        # TaskExecutors are asked while the fold goes on.
        metrics = self._fetcher.fetch(addresses)
        with self._live.read() as moment:
            yield replace(moment, live=metrics)

    def close(self) -> None:
        """Ends all threads."""
        self._feed.close()
        self._server.close()
        self._fetcher.close()
        self._requests.close()
        self._live.close()
