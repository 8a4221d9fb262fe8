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
from tailrace.services.log.topic_options import TopicOptions
from tailrace.services.log.topics import (
    answers_topics,
    delete_topics,
    describe_topics,
    ensure_cluster_topics,
    log_topic,
)

CLIENTS = ("client/a", "client/b")
TENANTS = ("", "pay", "search")


class Leaders:
    """A log that successive leaders write, and their publishers of answers for each tenant; a deposed one may go on for
    a while."""

    def __init__(self, kafka: EmbeddedKafka, cluster: str) -> None:
        self.kafka, self.cluster = kafka.connection, cluster
        self.topics = answers_topics(cluster, TENANTS[1:])
        self.topic = self.topics[""]
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        self.ensure_topics()
        self.log = KafkaEventLog(self.kafka, log_topic(cluster), Codec(log_topic(cluster)))
        self.epoch = self.count = 0
        self.running: list[tuple[list[AnswersPublisher], threading.Event]] = []

    def ensure_topics(self) -> frozenset[str]:
        return ensure_cluster_topics(self.admin, self.cluster, options=TopicOptions(tenants=TENANTS[1:]))

    def append(
        self,
        recipient: str,
        body: Body,
        epoch: int | None = None,
        sender: str = DISPATCHER,
        tenant: str = "",
    ) -> None:
        self.count += 1
        header = Header(
            event_id=f"{self.cluster}-{self.count}",
            time=self.count,
            sender=sender,
            sender_epoch=self.epoch if epoch is None else epoch,
            recipient=recipient,
            tenant=tenant,
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
        publishers = [
            AnswersPublisher(
                self.kafka,
                topic,
                Codec(topic),
                self.log,
                tenant=tenant,
                leads=leads.is_set,
                read_leadership=lambda _: (LeadershipState(), 0),
                find_log_id=self.find_log_id,
            )
            for tenant, topic in self.topics.items()
        ]
        for publisher in publishers:
            publisher.start()
        self.running.append((publishers, leads))

    def find_log_id(self) -> str:
        described = describe_topics(self.admin, [self.log.topic])[self.log.topic]
        assert described is not None
        return described.topic_id or ""

    def stop(self, index: int) -> None:
        publishers, leads = self.running.pop(index)
        leads.clear()
        for publisher in publishers:
            publisher.close()

    def answer(self, number: int, epoch: int | None = None, tenant: str = "") -> None:
        accepted = JobAccepted(job_id=f"j{number}", name="secret")
        self.append(CLIENTS[number % 2], accepted, epoch, tenant=tenant)

    def next_offset(self, tenant: str = "") -> int:
        return read_next_offset(self.kafka, self.topics[tenant], self.find_log_id())

    def await_answers(self) -> None:
        for tenant in TENANTS:
            if found := answers_in(self.log, tenant):
                wait_until(
                    lambda of=tenant, last=found[-1].offset: self.next_offset(of) > last,  # type: ignore[misc]
                    "the last answer",
                )


@pytest.fixture
def leaders(kafka: EmbeddedKafka, cluster_id: str) -> Iterator[Leaders]:
    made = Leaders(kafka, cluster_id)
    made.elect()
    yield made
    while made.running:
        made.stop(0)


@pytest.mark.parametrize("seed", range(3))
def test_each_answer_of_log_is_in_topic_of_its_tenant_only_after_any_changes_of_leader(
    leaders: Leaders, seed: int
) -> None:
    chance = random.Random(seed)
    subscriptions = {
        tenant: AnswersSubscription(leaders.kafka, topic, Codec(topic), CLIENTS[0])
        for tenant, topic in leaders.topics.items()
    }
    for number in range(60):
        match chance.choice(["answer", "answer", "answer", "deposed", "elect", "start", "stop", "stop"]):
            case "answer":
                leaders.answer(number, tenant=chance.choice(TENANTS))
            case "deposed":
                leaders.answer(number, leaders.epoch - 1, chance.choice(TENANTS))
            case "elect":
                leaders.elect()
            case "start" if len(leaders.running) < 3:
                leaders.start()
            case "stop" if leaders.running:
                if chance.random() < 0.7:
                    leaders.await_answers()
                leaders.stop(chance.randrange(len(leaders.running)))
            case _:
                pass
    for place, tenant in enumerate(TENANTS):
        leaders.answer(60 + 2 * place, tenant=tenant)
    leaders.start()
    leaders.await_answers()
    for tenant, subscription in subscriptions.items():
        check_answers(leaders, tenant, subscription)
        subscription.close()


def check_answers(leaders: Leaders, tenant: str, subscription: AnswersSubscription) -> None:
    """The topic has all answers to clients of the tenant and no others, in order; a client reads its own once."""
    topic = leaders.topics[tenant]
    expected = {record.offset: record for record in answers_in(leaders.log, tenant)}
    found = messages_in(leaders.kafka, topic)
    assert {offset for offset, _ in found} == expected.keys()
    seen: set[int] = set()
    for offset, message in found:
        seen.add(offset)
        assert {each for each in expected if each <= offset} <= seen
        event = Codec(topic).decode(message.value())
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
    wait_until(lambda: leaders.topic in leaders.ensure_topics(), "the new topic")
    leaders.start()
    leaders.await_answers()
    assert [offset for offset, _ in messages_in(leaders.kafka, leaders.topic)] == [
        record.offset for record in answers_in(leaders.log)
    ]
