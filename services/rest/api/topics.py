"""What a server reads from other topics than the log: GET /api/v1/topics and /api/v1/jobs/:jobid/output.

Topics are those of now, whatever `at` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import msgspec
from confluent_kafka.admin import AdminClient

from ...client.print_output import OutputPage, read_output_page
from ...configuration import Configuration
from ...history.cluster_view import find_started_job
from ...log import LogUnavailable
from ...log.clients import client_configuration
from ...log.topic_extents import ConsumedTopic, TopicExtent, read_consumed_topics, read_topic_extents
from ...log.topic_options import TopicOptions
from ...log.topics import new_cluster_topics
from ..cached_value import CachedValue
from ..endpoint import Answer, Endpoint, Parameter, Parameters
from ..errors import NotFound, Unavailable
from ..flink import ids
from ..flink.endpoints import path_parameters
from ..flink.lookup import dispatcher, find_job
from ..moment import Moment
from ..turns import Turns

_MAX_LINES: Final = 10_000
_DEFAULT_LINES: Final = 1_000
_MAX_BYTES: Final = 4 << 20
"""A page is complete when it has so many bytes."""
_MOST_READERS: Final = 4
_MOST_WAITING: Final = 16
_WAIT_S: Final = 5.0
_RETRY: Final = {"Retry-After": "5"}

Read = Callable[[], AbstractContextManager[Moment]]
"""Returns the present."""
ReadOutput = Callable[[str, int | None, int], OutputPage | None]
"""(job id, first offset, most records) -> records; None: the job has no topic of output."""
ReadTopics = Callable[[], tuple[Sequence[TopicExtent], Sequence[ConsumedTopic]]]


class OutputLine(msgspec.Struct, frozen=True):
    """A record that a job printed. `timestamp`: the record's, in milliseconds since the epoch. `subtask` counts from 1,
    as in Flink's output; it is 0 if another program wrote the record."""

    offset: int
    timestamp: int
    subtask: int
    identifier: str | None
    text: str


class JobOutput(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid/output. `next`: the offset to continue from."""

    lines: Sequence[OutputLine]
    next: int


class TopicReader(msgspec.Struct, frozen=True):
    """A vertex of a job that reads a topic. `vertex_id` is Flink's. `partitions`: the number of those whose position is
    known. `lag`: the offsets of these that are not read yet; marks of transactions count."""

    topic: str
    job_id: str
    job: str
    vertex_id: str
    vertex: str
    partitions: int
    lag: int


class TopicList(msgspec.Struct, frozen=True):
    """/api/v1/topics. `readers` also have topics of users that jobs read."""

    topics: Sequence[TopicExtent]
    readers: Sequence[TopicReader]


class ClusterTopics:
    """The topics of a cluster. Thread-safe."""

    def __init__(self, read: Read, read_output: ReadOutput, read_topics: ReadTopics) -> None:
        self._read = read
        self._read_output = read_output
        self._topics = CachedValue(lambda: self._list(read_topics))
        self._turns = Turns("read topics", at_once=_MOST_READERS, waiting=_MOST_WAITING, timeout_s=_WAIT_S)

    @classmethod
    def from_configuration(cls, configuration: Configuration, read: Read) -> ClusterTopics:
        """Returns the topics in the cluster's Kafka."""

        def read_topics() -> tuple[list[TopicExtent], list[ConsumedTopic]]:
            cluster, options = configuration.cluster_id, TopicOptions.from_configuration(configuration)
            own = {topic.topic for topic in new_cluster_topics(cluster, options)}
            kafka = configuration.kafka
            admin = AdminClient(client_configuration(kafka))
            topics = read_topic_extents(admin, cluster, own, is_secured=kafka.is_secured)
            return topics, read_consumed_topics(admin, cluster)

        return cls(
            read,
            lambda job_id, start, limit: read_output_page(
                configuration, job_id, start, limit=limit, most_bytes=_MAX_BYTES
            ),
            read_topics,
        )

    def output(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /jobs/:jobid/output: what print() of a job wrote, the last lines or those from an offset on"""
        with self._read() as moment:
            _, view = find_job(moment, parameters)
        with self._reader():
            page = self._read_output(
                view.job_id, parameters.get("from"), parameters.get("limit", _DEFAULT_LINES)
            )
        if page is None:
            raise NotFound(
                f"Job {parameters['jobid']} has no topic of output: it has no print(), it has not started yet, or it "
                "ended longer ago than job.output.retention."
            )
        lines = [
            OutputLine(each.offset, each.timestamp, each.subtask, each.identifier, each.text)
            for each in page.records
        ]
        return Answer(JobOutput(lines, page.next), 200)

    def topics(self, _parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /topics: the topics of the cluster and of its jobs with offsets and sizes, and how far jobs are behind"""
        return Answer(self._topics.get(), 200)

    def _list(self, read_topics: ReadTopics) -> TopicList:
        with self._reader():
            topics, consumed = read_topics()
        with self._read() as moment:
            return TopicList(topics, [_reader(moment, each) for each in consumed])

    @contextmanager
    def _reader(self) -> Iterator[None]:
        try:
            with self._turns.take():
                yield
        except LogUnavailable as error:
            raise Unavailable(f"{error}.", _RETRY) from None


def _reader(moment: Moment, consumed: ConsumedTopic) -> TopicReader:
    job = dispatcher(moment).jobs.get(consumed.job_id)
    state = find_started_job(moment.fold.replica.states, consumed.job_id)
    vertices = () if state is None else state.graph.vertices
    names = (each.name for each in vertices if each.vertex_id == consumed.vertex_id)
    return TopicReader(
        topic=consumed.name,
        job_id=consumed.job_id,
        job=consumed.job_id if job is None else job.name,
        vertex_id=ids.to_vertex_id(consumed.vertex_id),
        vertex=next(names, consumed.vertex_id),
        partitions=consumed.partitions,
        lag=consumed.lag,
    )


_OUTPUT: Final = "/jobs/{jobid}/output"


def topic_endpoints(topics: ClusterTopics) -> list[Endpoint]:
    """Returns the endpoints that read topics."""
    return [
        Endpoint("GET", "/topics", command=topics.topics, response=TopicList),
        Endpoint(
            "GET",
            _OUTPUT,
            path_parameters(_OUTPUT),
            (
                Parameter(
                    "from",
                    int,
                    "The first offset in the topic. Without it: the last lines.",
                    minimum=0,
                    maximum=2**63 - 1,
                ),
                Parameter("limit", int, "The most lines.", minimum=1, maximum=_MAX_LINES),
            ),
            command=topics.output,
            response=JobOutput,
            errors=(NotFound,),
        ),
    ]
