"""A REST server with the web page, over a log in a file: no cluster, no Kafka."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tailrace.services.client.print_output import OutputPage, OutputRecord
from tailrace.services.configuration import Configuration
from tailrace.services.diagnostics.client import DiagnosticsClient
from tailrace.services.election.candidates import Candidate
from tailrace.services.history.log_source import open_log_source
from tailrace.services.log.topic_extents import ConsumedTopic, PartitionExtent, TopicExtent
from tailrace.services.rest.api import masters
from tailrace.services.rest.api.topics import ClusterTopics, topic_endpoints
from tailrace.services.rest.application import Settings, create_application
from tailrace.services.rest.assembly import list_endpoints
from tailrace.services.rest.authenticator import Authenticator
from tailrace.services.rest.diagnostics import Diagnostics
from tailrace.services.rest.event_feed import EventFeed
from tailrace.services.rest.live_replica import LiveReplica
from tailrace.services.rest.moment import Moment
from tailrace.services.rest.page import create_routes
from tailrace.services.rest.past_moments import PastMoments
from tailrace.services.rest.program_store import ProgramStore
from tailrace.services.rest.programs import Programs
from tailrace.services.rest.requests import Requests
from tailrace.services.rest.server import HttpServer


def read_output(_job_id: str, start: int | None, _limit: int) -> OutputPage:
    """Returns what a job may have printed: there is no Kafka that has it."""
    records = (
        [] if start else [OutputRecord(number, 0, 1, None, f"line {number}", None) for number in range(9)]
    )
    return OutputPage(records, 9)


def read_topics() -> tuple[list[TopicExtent], list[ConsumedTopic]]:
    """Returns topics that a cluster may have, and what its jobs may read."""
    extent = PartitionExtent(0, 120)
    topics = [
        TopicExtent("file.log", None, [extent], 81_920),
        TopicExtent("file.job.a.b", "a", [extent, None, PartitionExtent(7, 80)]),
    ]
    return topics, [
        ConsumedTopic("file.job.a.b", "a", "v", 3, 12),
        ConsumedTopic("orders", "a", "w", 2, 4_500),
    ]


@contextmanager
def serve_log(file: Path, token_file: Path | None = None, *, programs: Path | None = None) -> Iterator[str]:
    """Yields the address of the server, http://host:port. `token_file`: its first line is the operator's token.
    `programs`: where uploaded programs are; None: the server takes none."""

    open_source = functools.partial(open_log_source, file)
    past = PastMoments(open_source)
    with closing(LiveReplica(open_source)) as live, closing(EventFeed(open_source, live)) as feed:

        @contextmanager
        def read(at: str | None, _: object) -> Iterator[Moment]:
            with live.read() if at is None else past.read(at) as moment:
                yield moment

        diagnostics = Diagnostics.from_moments(DiagnosticsClient(), live.read)
        requests = Requests(Configuration(), live)
        uploads = None if programs is None else Programs(ProgramStore(str(programs)), requests, live, "")
        of_now = topic_endpoints(ClusterTopics(live.read, read_output, read_topics))
        of_now.append(masters.create_endpoint(lambda: [Candidate("other:1", 1)]))
        endpoints = list_endpoints(open_source, requests, feed, diagnostics, of_now, uploads)
        configuration = Configuration({"rest.token-file": str(token_file)})
        settings = Settings(None if token_file is None else Authenticator(configuration))
        listening = socket.create_server(("127.0.0.1", 0))
        with closing(HttpServer(create_application(read, *endpoints, settings, create_routes()), listening)):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
