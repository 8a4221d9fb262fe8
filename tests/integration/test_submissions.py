"""What clients may write into `<c>.submissions`, and the answer of a real jobmanager on real Kafka to each.

There is no TaskExecutor: accepted jobs wait for slots until they fail.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until
from structlog.testing import capture_logs

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api.build import build
from tailrace.schemas import client, dispatcher, everyone, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.dead_letters import DeadLetter
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import EntryPoint, Header, JobGraph, JobStatus
from tailrace.services.cli.exit_codes import CommandFailure
from tailrace.services.cli.local.duplicate_cluster_check import check_no_other, read_silence_s
from tailrace.services.client import Client, JobRejectedError
from tailrace.services.configuration import Configuration
from tailrace.services.dispatcher.admission import partitions_of
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.clients import consumer_configuration
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.dead_letters import read_dead_letters as read_letters
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topic_options import TopicOptions
from tailrace.services.log.topic_validation import UnfitTopic, check_topics
from tailrace.services.log.topics import (
    LARGEST_SUBMISSION,
    create_topics,
    delete_topics,
    describe_topics,
    ensure_cluster_topics,
    log_topic,
    submissions_topic,
)

SLOT_REQUEST_TIMEOUT = "1 s"
WORD_COUNT = "tailrace.pipelines.examples.window_word_count:main"
ME = "client/test"
JOBMANAGER = """
from tailrace.services.configuration import load_configuration
from tailrace.infra.logging_setup import log_to_stderr
from tailrace.services.processes import jobmanager, process_lifecycle
log_to_stderr()
jobmanager.run(load_configuration(), process_lifecycle.stop_on_signals())
"""
PROGRAMS = """
def raises():
    raise ZeroDivisionError("in the program")

def never_executes():
    pass

def big():
    from tailrace import StreamExecutionEnvironment
    weight = bytes(range(256)) * 40_000
    env = StreamExecutionEnvironment.get_execution_environment()
    env.socket_text_stream("localhost", 9).map(lambda line: line + str(len(weight))).print()
    env.execute("big")
"""


class Cluster:
    """A jobmanager process over a cluster id of its own, and its topics."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        cluster: str,
        home: Path,
        tenants: tuple[str, ...] = (),
        **environment: str,
    ) -> None:
        self.environment = environment
        self.servers, self.cluster, self.home = kafka.bootstrap_servers, cluster, home
        (home / "programs.py").write_text(PROGRAMS)
        create_cluster_topics(
            AdminClient({"bootstrap.servers": self.servers}),
            KafkaConnection(self.servers),
            cluster,
            options=TopicOptions(tenants=tenants),
        )
        topic = log_topic(cluster)
        self.log = KafkaEventLog(KafkaConnection(self.servers), topic, Codec(topic))
        self.codec = Codec(submissions_topic(cluster))
        self.process: subprocess.Popen[bytes] | None = None
        self._received: list[Record] = []

    def start(self) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")},
            "TAILRACE_HOME": str(self.home),
            "TAILRACE_CLUSTER_ID": self.cluster,
            "TAILRACE_BOOTSTRAP_SERVERS": self.servers,
            "TAILRACE_SLOT_REQUEST_TIMEOUT": SLOT_REQUEST_TIMEOUT,
            "TAILRACE_SLOT_REQUEST_UNFULFILLABLE_TIMEOUT": SLOT_REQUEST_TIMEOUT,
            "TAILRACE_RESOURCEMANAGER_STANDALONE_START_UP_TIME": "0 s",
            "PYTHONPATH": str(self.home),
            **self.environment,
        }
        with (self.home / "jobmanager.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-c", JOBMANAGER], env=environment, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def write(
        self, value: bytes | None, key: bytes | None = None, *, partition: int = 0, **settings: Any
    ) -> int:
        """Writes any bytes; returns their offset in the submissions topic."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 1 << 27, **settings})
        producer.produce(
            submissions_topic(self.cluster),
            value,
            key,
            partition,
            on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
        )
        assert producer.flush(30) == 0
        assert offsets[0] >= 0, "the topic does not take it"
        return offsets[0]

    def ask(self, body: Body, partition: int = 0, **header: Any) -> int:
        """Writes an event, as a client unless the header says otherwise."""
        output = Header(event_id="e", time=1, sender=ME, sender_epoch=0, recipient="dispatcher")
        return self.write(self.codec.encode(Event(replace(output, **header), body)), partition=partition)

    def submit(
        self, job_id: str, target: str = WORD_COUNT, *arguments: str, parallelism: int | None = None
    ) -> int:
        entry_point = EntryPoint(target=target, arguments=arguments)
        return self.ask(dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point, parallelism=parallelism))

    def events_of(self, kind: type[Body]) -> list[Record]:
        """Returns each event of a kind in the log so far; events are read once."""
        begin = self._received[-1].offset + 1 if self._received else 0
        for batch in read_to_end(self.log, begin):
            self._received += batch
        return [record for record in self._received if isinstance(record.body, kind)]

    def answer(self, kind: type[Body], job_id: str, count: int = 1) -> Any:
        """Returns the body of the last of so many answers. Raises AssertionError after a timeout."""

        def answers() -> list[Any]:
            return [record.body for record in self.events_of(kind) if record.body.job_id == job_id]  # type: ignore[attr-defined]

        return self._wait(lambda: answers()[count - 1 :], f"{kind.__name__} of {job_id}")[-1]

    def letter(self, offset: int) -> DeadLetter:
        """Returns the dead letter of a submission. Raises AssertionError after a timeout."""

        def letters() -> list[DeadLetter]:
            return [
                letter
                for letter in read_letters(KafkaConnection(self.servers), self.cluster)
                if letter.source.offset == offset
            ]

        letter: DeadLetter
        (letter, *_) = self._wait(letters, f"the dead letter of submission {offset}")
        assert (letter.source.topic, letter.source.partition) == (submissions_topic(self.cluster), 0)
        self._wait(
            lambda: [
                record
                for record in self.events_of(dispatcher.SubmissionRefused)
                if record.body.source == letter.source  # type: ignore[attr-defined]
            ],
            "SubmissionRefused",
        )
        return letter

    def _wait(self, ask: Callable[[], list[Any]], what: str) -> list[Any]:
        until = time.monotonic() + TIMEOUT_S
        while not (results := ask()):
            running = self.process is not None and self.process.poll() is None
            assert running and time.monotonic() < until, (  # noqa: PT018
                f"{what} does not come; the jobmanager {'runs' if running else 'has ended'}:\n"
                + (self.home / "jobmanager.log").read_text()[-2000:]
            )
            time.sleep(0.05)
        return results


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields one cluster for the module: invalid requests of one client must not affect the next."""
    running = Cluster(kafka, f"s{os.getpid()}-{time.time_ns()}", tmp_path_factory.mktemp("jobmanager"))
    running.start()
    try:
        yield running
        assert running.process is not None
        assert running.process.poll() is None, "the jobmanager has ended"
    finally:
        running.kill()
        running.log.close()


@pytest.fixture(scope="module")
def graph() -> JobGraph:
    """Returns a graph with an edge."""
    return build(WORD_COUNT, ["--port", "9"], 1, {"execution.isolation": "vertex"})


# What can't be read or is not allowed becomes a dead letter.

UNREADABLE: dict[str, tuple[bytes | None, str]] = {
    "garbage": (b"run my job!", "not an Avro event: 11 bytes that begin with 72 75 6e"),
    "nothing": (None, "the value is empty"),
    "an unknown fingerprint": (
        b"\xc3\x01" + b"\x07" * 8 + b"x",
        "unknown schema: fingerprint 0707070707070707",
    ),
    "a schema id without a registry": (b"\x00\x00\x00\x00\x05x", "no schema registry is configured"),
}


@pytest.mark.parametrize(("value", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_undecodable_submission_becomes_dead_letter(
    cluster: Cluster, value: bytes | None, reason: str
) -> None:
    letter = cluster.letter(cluster.write(value, b"its key"))
    assert reason in letter.reason
    assert (letter.key, letter.value) == (b"its key", value)


def test_truncated_event_becomes_dead_letter(cluster: Cluster, graph: JobGraph) -> None:
    header = Header(event_id="e", time=1, sender=ME, sender_epoch=0, recipient="dispatcher")
    whole = cluster.codec.encode(Event(header, dispatcher.SubmitJob(job_id="cut", job_graph=graph)))
    assert "broken tailrace.dispatcher.SubmitJob" in cluster.letter(cluster.write(whole[:-100])).reason


def test_event_that_clients_must_not_send_becomes_dead_letter(cluster: Cluster, graph: JobGraph) -> None:
    letter = cluster.letter(cluster.ask(job_master.StartJob(job_id="mine", job_graph=graph)))
    assert "tailrace.job_master.StartJob may not be sent by clients" in letter.reason
    claim = everyone.LeaderElected(role="dispatcher", epoch=99, address="me", session="me")
    assert "may not be sent by clients" in cluster.letter(cluster.ask(claim, recipient="*")).reason


@pytest.mark.parametrize("sender", ["dispatcher", "job_master/j", "", "clients/me"])
def test_forged_sender_becomes_dead_letter(cluster: Cluster, sender: str) -> None:
    letter = cluster.letter(cluster.ask(dispatcher.CancelJob(job_id="j"), sender=sender))
    assert "is not a client" in letter.reason


@pytest.fixture
def compressed(cluster: Cluster) -> Iterator[None]:
    """The topic stores batches as producers compress them, like one that was made with Kafka's defaults."""
    topic = submissions_topic(cluster.cluster)
    set_compression(cluster.servers, topic, "producer")
    yield
    set_compression(cluster.servers, topic, "uncompressed")


def set_compression(servers: str, topic: str, value: str) -> None:
    entry = ConfigEntry("compression.type", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(TIMEOUT_S)

    def has_value() -> bool:
        (described,) = admin.describe_configs([ConfigResource("topic", topic)]).values()
        return bool(described.result(TIMEOUT_S)["compression.type"].value == value)

    wait_until(has_value, f"{topic} has compression.type={value}")


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_kafka_refuses_batch_that_expands_beyond_limit(cluster: Cluster, codec: str) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "compression.type": codec,
            "message.max.bytes": 1 << 28,
        }
    )
    producer.produce(
        submissions_topic(cluster.cluster),
        bytes(2 * LARGEST_SUBMISSION),
        partition=0,
        on_delivery=lambda error, _: errors.append(error),
    )
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = errors
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


@pytest.mark.usefixtures("compressed")
def test_oversized_submission_becomes_dead_letter(cluster: Cluster) -> None:
    # Compressed it is small enough for the topic.
    value = b"\xc3\x01" + bytes(3 * LARGEST_SUBMISSION)
    assert len(zlib.compress(value)) < LARGEST_SUBMISSION
    letter = cluster.letter(cluster.write(value, **{"compression.type": "gzip"}))
    assert "bytes are too many" in letter.reason
    assert letter.value is not None
    assert value.startswith(letter.value)


@pytest.mark.usefixtures("compressed")
def test_batch_that_cannot_be_decompressed_is_rejected_and_blocks_nothing(cluster: Cluster) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "compression.type": "zstd",
            "linger.ms": 10_000,
            "batch.size": 1 << 30,
            "message.max.bytes": 1 << 28,
        }
    )
    bombs: list[int] = []
    for _ in range(3):
        producer.produce(
            submissions_topic(cluster.cluster),
            bytes(50 << 20),
            partition=0,
            on_delivery=lambda _, message: bombs.append(message.offset() or 0),
        )
    assert producer.flush(30) == 0
    cluster.submit("behind-the-bomb", "programs:never_executes")
    rejected: client.JobRejected = cluster.answer(client.JobRejected, "behind-the-bomb")
    assert "never_executes" in rejected.reason
    letter = cluster.letter(bombs[-1])
    assert f"the batch at offsets {bombs[0]} to {bombs[-1]} cannot be decompressed" in letter.reason
    assert letter.value is None


def test_forged_epoch_recipient_and_origin_are_ignored(cluster: Cluster) -> None:
    offset = cluster.ask(
        dispatcher.CancelJob(job_id="forged"),
        recipient="resource_manager",
        sender_epoch=7,
        decided_at=1,
        cause=1,
    )
    assert "is unknown" in cluster.answer(client.CancelJobRejected, "forged").reason
    (admitted,) = [
        record
        for record in cluster.events_of(dispatcher.CancelJob)
        if record.body.job_id == "forged"  # type: ignore[attr-defined]
    ]
    header = admitted.header
    assert (header.recipient, header.sender_epoch, header.decided_at, header.cause) == (
        "dispatcher",
        0,
        None,
        None,
    )
    assert header.origin is not None
    assert header.origin.offset == offset


# What can be read but not be done is rejected, with the reason.


def test_invalid_values_are_rejected(cluster: Cluster, graph: JobGraph) -> None:
    entry_point = EntryPoint(target=WORD_COUNT, arguments=())
    wrong = {
        "p0": (dispatcher.SubmitJob(job_id="p0", entry_point=entry_point, parallelism=0), "parallelism 0"),
        "both": (
            dispatcher.SubmitJob(job_id="both", job_graph=graph, entry_point=entry_point),
            "exactly one of",
        ),
        "neither": (dispatcher.SubmitJob(job_id="neither"), "exactly one of"),
        "no/id": (dispatcher.SubmitJob(job_id="no/id", job_graph=graph), "'no/id' is not 1 to 64 letters"),
        "": (dispatcher.SubmitJob(job_id="", job_graph=graph), "'' is not 1 to 64 letters"),
        "empty": (dispatcher.SubmitJob(job_id="empty", job_graph=replace(graph, vertices=())), "no vertices"),
    }
    for body, _ in wrong.values():
        cluster.ask(body)
    for job_id, (_, reason) in wrong.items():
        assert reason in cluster.answer(client.JobRejected, job_id).reason


def test_graph_with_many_errors_is_rejected_in_few_words(cluster: Cluster, graph: JobGraph) -> None:
    broken = replace(graph.vertices[0], parallelism=0, max_parallelism=0, operators=(), slot_sharing_group="")
    cluster.ask(dispatcher.SubmitJob(job_id="broken", job_graph=replace(graph, vertices=(broken,) * 5_000)))
    reason = cluster.answer(client.JobRejected, "broken").reason
    assert len(reason) < 2_000
    assert reason.endswith(" more")


PROGRAM_FAULTS = {
    "nowhere:main": "does not exist",
    "programs:absent": "does not exist",
    "programs:raises": "ZeroDivisionError: in the program",
    "programs:never_executes": "call env.execute()",
    "not an entry point": "module:function",
}


def test_invalid_program_is_rejected_with_reason(cluster: Cluster) -> None:
    for number, target in enumerate(PROGRAM_FAULTS):
        cluster.submit(f"bad-{number}", target)
    for number, reason in enumerate(PROGRAM_FAULTS.values()):
        assert reason in cluster.answer(client.JobRejected, f"bad-{number}").reason


def test_program_may_build_graph_larger_than_event(cluster: Cluster) -> None:
    """Its function is then a blob (docs/blobs.md)."""
    cluster.submit("big", "programs:big")
    assert cluster.answer(client.JobAccepted, "big").name == "big"
    assert "no slot" in cluster.answer(client.JobFinished, "big").reason


def test_job_that_needs_more_slots_than_exist_fails_with_reason(cluster: Cluster) -> None:
    cluster.submit("wide", WORD_COUNT, "--port", "9", parallelism=4)
    assert cluster.answer(client.JobAccepted, "wide").name == "WindowWordCount"
    finished = cluster.answer(client.JobFinished, "wide")
    assert finished.status is JobStatus.FAILED
    assert "no slot within 1 s: the job wants 4, 0 are free" in finished.reason


def test_second_submission_with_same_job_id_is_rejected(cluster: Cluster, graph: JobGraph) -> None:
    cluster.ask(dispatcher.SubmitJob(job_id="twice", job_graph=graph))
    cluster.ask(dispatcher.SubmitJob(job_id="twice", job_graph=graph), sender="client/second")
    assert "was submitted before" in cluster.answer(client.JobRejected, "twice").reason
    (rejection,) = [
        record
        for record in cluster.events_of(client.JobRejected)
        if record.body.job_id == "twice"  # type: ignore[attr-defined]
    ]
    assert rejection.header.recipient == "client/second"
    assert cluster.answer(client.JobFinished, "twice").status is JobStatus.FAILED


def test_large_graph_is_accepted(cluster: Cluster, graph: JobGraph) -> None:
    head = graph.vertices[-1]
    operator = replace(head.operators[0], code=head.operators[0].code + bytes(LARGEST_SUBMISSION - 100_000))
    large = replace(
        graph, vertices=(*graph.vertices[:-1], replace(head, operators=(operator, *head.operators[1:])))
    )
    cluster.ask(dispatcher.SubmitJob(job_id="large", job_graph=large))
    assert cluster.answer(client.JobAccepted, "large").name == graph.name
    assert cluster.answer(client.JobFinished, "large").status is JobStatus.FAILED


def test_oversized_job_is_not_sent(cluster: Cluster, graph: JobGraph) -> None:
    # What could be made a blob would be: the key selectors of edges are not.
    large = replace(graph, edges=(replace(graph.edges[0], code=bytes(LARGEST_SUBMISSION)), *graph.edges[1:]))
    where = Configuration({"bootstrap.servers": cluster.servers, "cluster.id": cluster.cluster})
    with (
        Client(where) as asking,
        pytest.raises(JobRejectedError, match=f"at most {LARGEST_SUBMISSION:,} can be submitted"),
    ):
        asking.submit(large, job_id="too-large")
    assert not [
        record
        for record in cluster.events_of(dispatcher.SubmitJob)
        if record.body.job_id == "too-large"  # type: ignore[attr-defined]
    ]


# Whatever happens to the jobmanager, each submission is admitted once.


def test_killed_jobmanager_admits_each_submission_exactly_once(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, graph: JobGraph
) -> None:
    cluster = Cluster(kafka, cluster_id, tmp_path)
    submitted, garbage = [], []
    try:
        for life in range(3):
            garbage.append(cluster.write(b"garbage"))
            for number in range(5):
                submitted.append(f"j{life}-{number}")
                cluster.ask(dispatcher.SubmitJob(job_id=submitted[-1], job_graph=graph))
            cluster.start()
            cluster.answer(client.JobAccepted, submitted[-1 - life])
            cluster.kill()
        cluster.start()
        for job_id in submitted:
            assert cluster.answer(client.JobFinished, job_id).status is JobStatus.FAILED
        for offset in garbage:
            cluster.letter(offset)
        assert [record.body.job_id for record in cluster.events_of(client.JobAccepted)] == submitted  # type: ignore[attr-defined]
        assert [event.body.job_id for event in cluster.events_of(dispatcher.SubmitJob)] == submitted  # type: ignore[attr-defined]
        assert cluster.events_of(client.JobRejected) == []
        assert len(cluster.events_of(dispatcher.SubmissionRefused)) == len(garbage)
        elected = [record.body for record in cluster.events_of(everyone.LeaderElected)]
        epochs = [event.epoch for event in elected if event.role == "dispatcher"]  # type: ignore[attr-defined]
        assert epochs == [1, 2, 3, 4]
        assert cluster.process is not None
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(TIMEOUT_S) == 0
    finally:
        cluster.kill()
        cluster.log.close()


def test_unreachable_topic_of_submissions_is_reported(kafka: EmbeddedKafka, cluster_id: str) -> None:
    topic = submissions_topic(cluster_id)
    consumer = Consumer(consumer_configuration(kafka.connection))
    try:
        with pytest.raises(LogUnavailable, match=topic):
            partitions_of(consumer, topic, 5)
        ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
        assert partitions_of(consumer, topic, 30) == [0]
    finally:
        consumer.close()


def delete(admin: AdminClient, topic: str) -> None:
    """Deletes a topic, and returns when it is gone."""
    delete_topics(admin, [topic])
    until = time.monotonic() + TIMEOUT_S
    while describe_topics(admin, [topic])[topic] is not None:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_client_reports_deleted_topic_of_submissions(kafka: EmbeddedKafka, cluster_id: str) -> None:
    servers = kafka.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    create_cluster_topics(admin, KafkaConnection(servers), cluster_id)
    delete(admin, submissions_topic(cluster_id))
    configuration = Configuration({"cluster.id": cluster_id, "bootstrap.servers": servers})
    with (
        Client(configuration, timeout_s=2.0) as asker,
        pytest.raises(
            LogUnavailable, match=r"no such topic: was it deleted\? `tailrace cluster start` creates"
        ),
    ):
        asker.raise_feature_level(1)


def test_recreated_topics_lose_no_submission_and_repeat_none(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    cluster = Cluster(kafka, cluster_id, tmp_path)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    submissions, log = submissions_topic(cluster_id), log_topic(cluster_id)
    try:
        cluster.start()
        for name in ("early", "later"):
            cluster.ask(dispatcher.CancelJob(job_id=name))
            cluster.answer(client.CancelJobRejected, name)
        delete(admin, submissions)
        ensure_cluster_topics(admin, cluster_id)
        assert cluster.ask(dispatcher.CancelJob(job_id="anew")) == 0
        cluster.answer(client.CancelJobRejected, "anew")
        (future,) = admin.create_partitions([NewPartitions(submissions, 2)]).values()
        future.result(TIMEOUT_S)
        cluster.ask(dispatcher.CancelJob(job_id="in-another-partition"), partition=1)
        cluster.answer(client.CancelJobRejected, "in-another-partition")
        cluster.kill()
        cluster.log.close()

        delete(admin, log)
        cluster.log, cluster._received = KafkaEventLog(KafkaConnection(cluster.servers), log, Codec(log)), []
        cluster.start()
        cluster._wait(
            lambda: [description for description in [describe_topics(admin, [log])[log]] if description],
            "the log",
        )
        cluster._wait(lambda: list(cluster.events_of(dispatcher.SubmissionsTopicChanged)), "its first event")
        cluster.ask(dispatcher.CancelJob(job_id="behind-a-lost-log"))
        cluster.answer(client.CancelJobRejected, "behind-a-lost-log")
        assert [record.body.job_id for record in cluster.events_of(dispatcher.CancelJob)] == [  # type: ignore[attr-defined]
            "behind-a-lost-log"
        ]
        assert "existed before: its submissions are not run" in (tmp_path / "jobmanager.log").read_text()
    finally:
        cluster.kill()
        cluster.log.close()


def test_unfit_log_and_second_home_are_rejected_and_deleted_log_ends_processes(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path
) -> None:
    admin, log = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), log_topic(cluster_id)
    create_topics(
        admin, [NewTopic(log, 2, 1, config={"retention.ms": "604800000", "cleanup.policy": "compact"})]
    )
    with pytest.raises(
        UnfitTopic,
        match=r"has 2 partitions instead of 1; cleanup\.policy is compact .* retention\.ms is 604800000",
    ) as refused:
        check_topics(admin, cluster_id)
    assert "\n" not in str(refused.value)
    names = str(refused.value).rpartition("topics.accepted-settings=")[2].split(",")
    assert names == ["partitions", "cleanup.policy", "retention.ms"]
    with pytest.raises(UnfitTopic, match=r"retention\.ms is 604800000 .*accepted-settings=retention\.ms$"):
        check_topics(admin, cluster_id, names[:2])
    with capture_logs() as lines:
        check_topics(admin, cluster_id, names)
    # A broker's default size of records is too small for large events: a warning.
    told = [line["event"].partition(":")[0] for line in lines]
    assert told == ["Kafka refuses large records of a topic", *["accepted a setting of a topic"] * 3]
    delete(admin, log)
    cluster = Cluster(kafka, cluster_id, tmp_path)
    check_topics(admin, cluster_id)
    try:
        cluster.start()
        cluster.ask(dispatcher.CancelJob(job_id="nothing"))
        cluster.answer(client.CancelJobRejected, "nothing")
        given = {"cluster.id": cluster_id, "bootstrap.servers": kafka.bootstrap_servers}
        cluster._wait(
            lambda: [value for value in [read_silence_s(Configuration(given))] if value is not None],
            "a heartbeat",
        )
        with pytest.raises(CommandFailure, match="started from another home"):
            check_no_other(Configuration(given))
        check_no_other(Configuration({**given, "high-availability.take-over": "true"}))
        check_no_other(Configuration({**given, "heartbeat.interval": "1 ms"}))
        delete(admin, log)
        assert cluster.process is not None
        assert cluster.process.wait(TIMEOUT_S) != 0
        assert f"{log} was deleted" in (tmp_path / "jobmanager.log").read_text()
    finally:
        cluster.kill()
        cluster.log.close()
