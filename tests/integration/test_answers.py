"""The topic of answers has what the log says to clients, whenever leaders are deposed or killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from answers_topic import answers_in, messages_in
from confluent_kafka.admin import AdminClient
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.body import Body
from tailrace.schemas.client import JobAccepted, JobFinished, JobStatusChanged
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import Header, JobStatus
from tailrace.services.client.answers_subscription import AnswersSubscription
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher import answers_publisher
from tailrace.services.dispatcher.answers_publisher import AnswersPublisher
from tailrace.services.log import Codec
from tailrace.services.log.answers import read_next_offset
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import (
    answers_topic,
    delete_topics,
    describe_topics,
    ensure_cluster_topics,
    log_topic,
)

CLIENTS = ("client/a", "client/b")


class Leaders:
    """A log that successive leaders write, and their publishers of answers; a deposed one may go on for a while."""

    def __init__(self, kafka: EmbeddedKafka, cluster: str) -> None:
        self.kafka, self.cluster, self.topic = kafka.connection, cluster, answers_topic(cluster)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        ensure_cluster_topics(self.admin, cluster)
        self.log = KafkaEventLog(self.kafka, log_topic(cluster), Codec(log_topic(cluster)))
        self.epoch = self.count = 0
        self.running: list[tuple[AnswersPublisher, threading.Event]] = []

    def append(self, recipient: str, body: Body, epoch: int | None = None, sender: str = DISPATCHER) -> None:
        self.count += 1
        header = Header(
            event_id=f"{self.cluster}-{self.count}",
            time=self.count,
            sender=sender,
            sender_epoch=self.epoch if epoch is None else epoch,
            recipient=recipient,
        )
        self.log.append([Event(header, body)])

    def elect(self) -> None:
        self.epoch += 1
        body = LeaderElected(
            role=DISPATCHER, epoch=self.epoch, address=f"a{self.epoch}", session=f"s{self.epoch}"
        )
        self.append(EVERYONE, body)

    def start(self) -> None:
        leads = threading.Event()
        leads.set()
        publisher = AnswersPublisher(
            self.kafka,
            self.topic,
            Codec(self.topic),
            self.log,
            leads=leads.is_set,
            read_leadership=lambda _: (LeadershipState(), 0),
            find_log_id=self.find_log_id,
        )
        publisher.start()
        self.running.append((publisher, leads))

    def find_log_id(self) -> str:
        described = describe_topics(self.admin, [self.log.topic])[self.log.topic]
        assert described is not None
        return described.topic_id or ""

    def stop(self, index: int) -> None:
        publisher, leads = self.running.pop(index)
        leads.clear()
        publisher.close()

    def answer(self, number: int, epoch: int | None = None) -> None:
        self.append(CLIENTS[number % 2], JobAccepted(job_id=f"j{number}", name="secret"), epoch)

    def next_offset(self) -> int:
        return read_next_offset(self.kafka, self.topic, self.find_log_id())

    def await_answers(self) -> None:
        last = answers_in(self.log)[-1].offset
        wait_until(lambda: self.next_offset() > last, "the last answer")


@pytest.fixture
def leaders(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[Leaders]:
    made = Leaders(kafka, cluster_id)
    made.elect()
    yield made
    while made.running:
        made.stop(0)


@pytest.mark.parametrize("seed", range(3))
def test_each_answer_of_log_is_in_topic_after_any_changes_of_leader(leaders: Leaders, seed: int) -> None:
    chance = random.Random(seed)
    subscription = AnswersSubscription(leaders.kafka, leaders.topic, Codec(leaders.topic), CLIENTS[0])
    for number in range(60):
        match chance.choice(["answer", "answer", "answer", "deposed", "elect", "start", "stop", "stop"]):
            case "answer":
                leaders.answer(number)
            case "deposed":
                leaders.answer(number, leaders.epoch - 1)
            case "elect":
                leaders.elect()
            case "start" if len(leaders.running) < 3:
                leaders.start()
            case "stop" if leaders.running:
                if answers_in(leaders.log) and chance.random() < 0.7:
                    leaders.await_answers()
                leaders.stop(chance.randrange(len(leaders.running)))
            case _:
                pass
    leaders.answer(60)
    leaders.start()
    leaders.await_answers()
    expected = {record.offset: record for record in answers_in(leaders.log)}
    found = messages_in(leaders.kafka, leaders.topic)
    assert {offset for offset, _ in found} == expected.keys()
    seen: set[int] = set()
    for offset, message in found:
        seen.add(offset)
        assert {each for each in expected if each <= offset} <= seen
        event = Codec(leaders.topic).decode(message.value())
        assert event.header == expected[offset].header
        assert message.key() == event.header.recipient.encode()
        assert event.body == JobAccepted(job_id=expected[offset].body.job_id, name="")  # type: ignore[attr-defined]
    own = [offset for offset, each in expected.items() if each.header.recipient == CLIENTS[0]]
    received: list[int] = []
    while len(received) < len(own):
        polled = subscription.poll(30)
        assert polled
        received += [record.offset for record in polled]
    assert received == own
    subscription.close()


def test_answer_has_one_line_of_reason_and_no_accumulators(leaders: Leaders) -> None:
    leaders.start()
    leaders.append(
        CLIENTS[0],
        JobFinished(
            job_id="j",
            status=JobStatus.FAILED,
            reason="boom\n  File secret.py",
            accumulators={"secret": 1.0},
        ),
    )
    changed = JobStatusChanged(
        job_id="j", old_status=JobStatus.RUNNING, status=JobStatus.FAILING, reason="x" * 400 + "\nsecret"
    )
    leaders.append("client", changed, sender="job_master/j")
    leaders.await_answers()
    values = [message.value() or b"" for _, message in messages_in(leaders.kafka, leaders.topic)]
    assert not any(b"secret" in value for value in values)
    finished, status = (Codec(leaders.topic).decode(value).body for value in values)
    assert finished == JobFinished(job_id="j", status=JobStatus.FAILED, reason="boom")
    assert isinstance(status, JobStatusChanged)
    assert status.reason == "x" * 297 + "..."


def test_position_of_leader_with_nothing_to_answer_is_in_topic(
    leaders: Leaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_publisher, "_MOST_EVENTS_UNMARKED", 5)
    leaders.start()
    for _ in range(12):
        leaders.elect()
    wait_until(lambda: leaders.next_offset() > 5, "the position")
    assert {message.value() for _, message in messages_in(leaders.kafka, leaders.topic)} == {None}
    leaders.answer(1)
    leaders.await_answers()


def test_answers_are_complete_again_after_topic_was_created_again(leaders: Leaders) -> None:
    leaders.start()
    for number in range(4):
        leaders.answer(number)
    leaders.await_answers()
    leaders.stop(0)
    delete_topics(leaders.admin, [leaders.topic])
    wait_until(
        lambda: leaders.topic in ensure_cluster_topics(leaders.admin, leaders.cluster), "the new topic"
    )
    leaders.start()
    leaders.await_answers()
    assert [offset for offset, _ in messages_in(leaders.kafka, leaders.topic)] == [
        record.offset for record in answers_in(leaders.log)
    ]
