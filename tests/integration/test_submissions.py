"""What clients may write into `<c>.submissions`, and the answer that each gets from a real jobmanager on real Kafka.

There is no TaskExecutor: jobs that are accepted wait for slots until they fail for want of them.
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
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.infra.kafka import EmbeddedKafka
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
    """A jobmanager process over a cluster id of its own, and what is written to and read from its topics."""

    def __init__(self, kafka: EmbeddedKafka, cluster: str, home: Path) -> None:
        self.servers, self.cluster, self.home = kafka.bootstrap_servers, cluster, home
        (home / "programs.py").write_text(PROGRAMS)
        create_cluster_topics(AdminClient({"bootstrap.servers": self.servers}), self.servers, cluster)
        topic = log_topic(cluster)
        self.log = KafkaEventLog(self.servers, topic, Codec(topic))
        self.codec = Codec(submissions_topic(cluster))
        self.process: subprocess.Popen[bytes] | None = None
        self._heard: list[Record] = []

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
        """Any bytes; returns their offset in the submissions topic."""
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
        """An event, said by a client unless the header says otherwise."""
        said = Header(event_id="e", time=1, sender=ME, sender_epoch=0, recipient="dispatcher")
        return self.write(self.codec.encode(Event(replace(said, **header), body)), partition=partition)

    def submit(
        self, job_id: str, target: str = WORD_COUNT, *arguments: str, parallelism: int | None = None
    ) -> int:
        entry_point = EntryPoint(target=target, arguments=arguments)
        return self.ask(dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point, parallelism=parallelism))

    def said(self, kind: type[Body]) -> list[Record]:
        """Each event of a kind that the log has by now; what has been read once is kept."""
        begin = self._heard[-1].offset + 1 if self._heard else 0
        for batch in read_to_end(self.log, begin):
            self._heard += batch
        return [record for record in self._heard if isinstance(record.body, kind)]

    def answer(self, kind: type[Body], job_id: str, count: int = 1) -> Any:
        """The body of the last of so many answers. Raises AssertionError when they don't come."""

        def answers() -> list[Any]:
            return [each.body for each in self.said(kind) if each.body.job_id == job_id]  # type: ignore[attr-defined]

        return self._wait(lambda: answers()[count - 1 :], f"{kind.__name__} of {job_id}")[-1]

    def letter(self, offset: int) -> DeadLetter:
        """The dead letter of a submission. Raises AssertionError when it does not come."""

        def letters() -> list[DeadLetter]:
            return [each for each in read_letters(self.servers, self.cluster) if each.source.offset == offset]

        letter: DeadLetter
        (letter, *_) = self._wait(letters, f"the dead letter of submission {offset}")
        assert (letter.source.topic, letter.source.partition) == (submissions_topic(self.cluster), 0)
        self._wait(
            lambda: [
                each
                for each in self.said(dispatcher.SubmissionRefused)
                if each.body.source == letter.source  # type: ignore[attr-defined]
            ],
            "SubmissionRefused",
        )
        return letter

    def _wait(self, ask: Callable[[], list[Any]], what: str) -> list[Any]:
        until = time.monotonic() + TIMEOUT_S
        while not (found := ask()):
            running = self.process is not None and self.process.poll() is None
            assert running and time.monotonic() < until, (  # noqa: PT018
                f"{what} does not come; the jobmanager {'runs' if running else 'has ended'}:\n"
                + (self.home / "jobmanager.log").read_text()[-2000:]
            )
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def cluster(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for the module: what one client does wrong must not matter to the next."""
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
    return build(WORD_COUNT, ["--port", "9"], 1)


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
def test_what_cannot_be_read_becomes_a_dead_letter(
    cluster: Cluster, value: bytes | None, reason: str
) -> None:
    letter = cluster.letter(cluster.write(value, b"its key"))
    assert reason in letter.reason
    assert (letter.key, letter.value) == (b"its key", value)


def test_an_event_that_is_cut_off_becomes_a_dead_letter(cluster: Cluster, graph: JobGraph) -> None:
    header = Header(event_id="e", time=1, sender=ME, sender_epoch=0, recipient="dispatcher")
    whole = cluster.codec.encode(Event(header, dispatcher.SubmitJob(job_id="cut", job_graph=graph)))
    assert "broken tailrace.dispatcher.SubmitJob" in cluster.letter(cluster.write(whole[:-100])).reason


def test_an_event_that_is_not_for_clients_becomes_a_dead_letter(cluster: Cluster, graph: JobGraph) -> None:
    letter = cluster.letter(cluster.ask(job_master.StartJob(job_id="mine", job_graph=graph)))
    assert "tailrace.job_master.StartJob is not for clients to say" in letter.reason
    claim = everyone.LeaderElected(role="dispatcher", epoch=99, address="me", session="me")
    assert "not for clients" in cluster.letter(cluster.ask(claim, recipient="*")).reason


@pytest.mark.parametrize("sender", ["dispatcher", "job_master/j", "", "clients/me"])
def test_a_forged_sender_becomes_a_dead_letter(cluster: Cluster, sender: str) -> None:
    letter = cluster.letter(cluster.ask(dispatcher.CancelJob(job_id="j"), sender=sender))
    assert "is no client" in letter.reason


def test_what_is_larger_than_it_was_allowed_to_be_becomes_a_dead_letter(cluster: Cluster) -> None:
    # Compressed it is small enough for the topic.
    value = b"\xc3\x01" + bytes(3 * LARGEST_SUBMISSION)
    assert len(zlib.compress(value)) < LARGEST_SUBMISSION
    letter = cluster.letter(cluster.write(value, **{"compression.type": "gzip"}))
    assert "bytes are too many" in letter.reason
    assert letter.value is not None
    assert value.startswith(letter.value)


def test_a_forged_epoch_recipient_and_origin_do_not_count(cluster: Cluster) -> None:
    offset = cluster.ask(
        dispatcher.CancelJob(job_id="forged"),
        recipient="resource_manager",
        sender_epoch=7,
        decided_at=1,
        cause=1,
    )
    assert "is unknown" in cluster.answer(client.CancelJobRejected, "forged").reason
    (admitted,) = [each for each in cluster.said(dispatcher.CancelJob) if each.body.job_id == "forged"]  # type: ignore[attr-defined]
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


def test_impossible_values_are_rejected(cluster: Cluster, graph: JobGraph) -> None:
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


def test_a_graph_that_is_wrong_everywhere_is_rejected_in_a_few_words(
    cluster: Cluster, graph: JobGraph
) -> None:
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


def test_a_program_that_is_no_good_is_rejected_with_what_is_wrong(cluster: Cluster) -> None:
    for number, target in enumerate(PROGRAM_FAULTS):
        cluster.submit(f"bad-{number}", target)
    for number, reason in enumerate(PROGRAM_FAULTS.values()):
        assert reason in cluster.answer(client.JobRejected, f"bad-{number}").reason


def test_what_a_program_builds_may_be_larger_than_an_event(cluster: Cluster) -> None:
    """Its function is a blob then (docs/blobs.md)."""
    cluster.submit("big", "programs:big")
    assert cluster.answer(client.JobAccepted, "big").name == "big"
    assert "no slot" in cluster.answer(client.JobFinished, "big").reason


def test_a_job_that_wants_more_slots_than_there_are_fails_for_want_of_them(cluster: Cluster) -> None:
    cluster.submit("wide", WORD_COUNT, "--port", "9", parallelism=4)
    assert cluster.answer(client.JobAccepted, "wide").name == "WindowWordCount"
    finished = cluster.answer(client.JobFinished, "wide")
    assert finished.status is JobStatus.FAILED
    assert "no slot within 1 s: the job wants 4, 0 are free" in finished.reason


def test_a_second_submission_with_the_same_job_id_is_rejected(cluster: Cluster, graph: JobGraph) -> None:
    cluster.ask(dispatcher.SubmitJob(job_id="twice", job_graph=graph))
    cluster.ask(dispatcher.SubmitJob(job_id="twice", job_graph=graph), sender="client/second")
    assert "was submitted before" in cluster.answer(client.JobRejected, "twice").reason
    (rejection,) = [each for each in cluster.said(client.JobRejected) if each.body.job_id == "twice"]  # type: ignore[attr-defined]
    assert rejection.header.recipient == "client/second"
    assert cluster.answer(client.JobFinished, "twice").status is JobStatus.FAILED


def test_a_large_graph_is_taken(cluster: Cluster, graph: JobGraph) -> None:
    head = graph.vertices[-1]
    operator = replace(head.operators[0], code=head.operators[0].code + bytes(LARGEST_SUBMISSION - 100_000))
    large = replace(
        graph, vertices=(*graph.vertices[:-1], replace(head, operators=(operator, *head.operators[1:])))
    )
    cluster.ask(dispatcher.SubmitJob(job_id="large", job_graph=large))
    assert cluster.answer(client.JobAccepted, "large").name == graph.name
    assert cluster.answer(client.JobFinished, "large").status is JobStatus.FAILED


def test_a_job_that_is_too_large_is_not_even_sent(cluster: Cluster, graph: JobGraph) -> None:
    # What could be made a blob would be: the key selectors of edges are not.
    large = replace(graph, edges=(replace(graph.edges[0], code=bytes(LARGEST_SUBMISSION)), *graph.edges[1:]))
    where = Configuration({"bootstrap.servers": cluster.servers, "cluster.id": cluster.cluster})
    with (
        Client(where) as asking,
        pytest.raises(JobRejectedError, match=f"at most {LARGEST_SUBMISSION:,} can be submitted"),
    ):
        asking.submit(large, job_id="too-large")
    assert not [each for each in cluster.said(dispatcher.SubmitJob) if each.body.job_id == "too-large"]  # type: ignore[attr-defined]


# Whatever happens to the jobmanager, each submission is admitted once.


def test_a_jobmanager_that_is_killed_admits_each_submission_exactly_once(
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
        assert [each.body.job_id for each in cluster.said(client.JobAccepted)] == submitted  # type: ignore[attr-defined]
        assert [each.body.job_id for each in cluster.said(dispatcher.SubmitJob)] == submitted  # type: ignore[attr-defined]
        assert cluster.said(client.JobRejected) == []
        assert len(cluster.said(dispatcher.SubmissionRefused)) == len(garbage)
        elected = [each.body for each in cluster.said(everyone.LeaderElected)]
        epochs = [each.epoch for each in elected if each.role == "dispatcher"]  # type: ignore[attr-defined]
        assert epochs == [1, 2, 3, 4]
        assert cluster.process is not None
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(TIMEOUT_S) == 0
    finally:
        cluster.kill()
        cluster.log.close()


def test_submissions_that_can_not_be_found_are_no_silence(kafka: EmbeddedKafka, cluster_id: str) -> None:
    topic = submissions_topic(cluster_id)
    consumer = Consumer(consumer_configuration(kafka.bootstrap_servers))
    try:
        with pytest.raises(LogUnavailable, match=topic):
            partitions_of(consumer, topic, 5)
        ensure_cluster_topics(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), cluster_id)
        assert partitions_of(consumer, topic, 30) == [0]
    finally:
        consumer.close()


def delete(admin: AdminClient, topic: str) -> None:
    """Returns when it is gone."""
    delete_topics(admin, [topic])
    until = time.monotonic() + TIMEOUT_S
    while describe_topics(admin, [topic])[topic] is not None:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_topics_that_are_created_again_lose_no_submission_and_run_none_again(
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
        cluster.log, cluster._heard = KafkaEventLog(cluster.servers, log, Codec(log)), []
        cluster.start()
        cluster._wait(lambda: [each for each in [describe_topics(admin, [log])[log]] if each], "the log")
        cluster._wait(lambda: list(cluster.said(dispatcher.SubmissionsTopicChanged)), "its first event")
        cluster.ask(dispatcher.CancelJob(job_id="behind-a-lost-log"))
        cluster.answer(client.CancelJobRejected, "behind-a-lost-log")
        assert [each.body.job_id for each in cluster.said(dispatcher.CancelJob)] == ["behind-a-lost-log"]  # type: ignore[attr-defined]
        assert "existed before: its submissions are not run" in (tmp_path / "jobmanager.log").read_text()
    finally:
        cluster.kill()
        cluster.log.close()


def test_an_unfit_log_and_a_second_home_are_refused_and_a_log_that_is_deleted_ends_its_processes(
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
    delete(admin, log)
    cluster = Cluster(kafka, cluster_id, tmp_path)
    check_topics(admin, cluster_id)
    try:
        cluster.start()
        cluster.ask(dispatcher.CancelJob(job_id="nothing"))
        cluster.answer(client.CancelJobRejected, "nothing")
        given = {"cluster.id": cluster_id, "bootstrap.servers": kafka.bootstrap_servers}
        cluster._wait(
            lambda: [each for each in [read_silence_s(Configuration(given))] if each is not None],
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
