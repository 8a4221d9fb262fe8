"""What an outsider writes to the log of a real jobmanager: events that change nothing, and a claim that deposes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import client, everyone
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.types import Header, Origin
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log import Codec
from tailrace.services.log.dead_letters import read_dead_letters

from .test_submissions import Cluster

WITHIN_BOUND = 2**40


@pytest.fixture
def cluster(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(kafka, cluster_id, tmp_path)
    running.start()
    try:
        yield running
    finally:
        running.kill()
        running.log.close()


def forge(cluster: Cluster, epoch: int, body: Body, *, recipient_in_key: str = EVERYONE) -> int:
    """Writes an event in the name of the Dispatcher; returns its offset."""
    topic, offsets = cluster.log.topic, list[int]()
    header = Header(event_id="evil", time=1, sender="dispatcher", sender_epoch=epoch, recipient=EVERYONE)
    producer = Producer({"bootstrap.servers": cluster.servers})
    producer.produce(
        topic,
        Codec(topic).encode(Event(header, body)),
        partition=0,
        key=f"dispatcher>{recipient_in_key}".encode(),
        on_delivery=lambda _, message: offsets.append(message.offset() or 0),
    )
    assert producer.flush(TIMEOUT_S) == 0
    return offsets[0]


def claim(epoch: int) -> everyone.LeaderElected:
    return everyone.LeaderElected(role="dispatcher", epoch=epoch, address="evil:1", session="evil")


def answer(cluster: Cluster, job_id: str) -> client.JobRejected:
    """Submits a program that is rejected; returns the answer."""
    cluster.submit(job_id, "programs:never_executes")
    rejected: client.JobRejected = cluster.answer(client.JobRejected, job_id)
    return rejected


def reasons(cluster: Cluster, offset: int) -> list[str]:
    """Returns the reasons of the dead letters of a record of the log."""
    source = Origin(topic=cluster.log.topic, partition=0, offset=offset)
    letters = read_dead_letters(KafkaConnection(cluster.servers), cluster.cluster)
    return [letter.reason for letter in letters if letter.source == source]


def test_impossible_events_change_nothing_and_are_named_once(cluster: Cluster) -> None:
    answer(cluster, "before")
    beyond = forge(cluster, 2**63 - 1, claim(2**63 - 1))
    hidden = forge(cluster, 1, everyone.ClusterTerminated(reason="bye"), recipient_in_key="rest_server")
    (of_claim,) = wait_until(lambda: reasons(cluster, beyond), "the letter of the claim")
    (of_hidden,) = wait_until(lambda: reasons(cluster, hidden), "the letter of the hidden event")
    assert "claims epoch 9223372036854775807: more than 281474976710656 above" in of_claim
    assert "to '*', but the key of its message says from 'dispatcher' to 'rest_server'" in of_hidden
    answer(cluster, "after")


def test_forged_claim_within_bound_ends_jobmanager_and_next_start_recovers(cluster: Cluster) -> None:
    answer(cluster, "before")
    assert cluster.process is not None
    forge(cluster, WITHIN_BOUND, claim(WITHIN_BOUND))
    assert cluster.process.wait(TIMEOUT_S) != ExitCode.OK
    assert "evil:1 leads dispatcher" in (cluster.home / "jobmanager.log").read_text()
    cluster.start()
    answer(cluster, "after")
    elected = [record.body for record in cluster.events_of(everyone.LeaderElected)]
    epochs = [each.epoch for each in elected if each.role == "dispatcher"]  # type: ignore[attr-defined]
    assert epochs == [1, WITHIN_BOUND, WITHIN_BOUND + 1]
