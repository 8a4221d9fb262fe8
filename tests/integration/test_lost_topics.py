"""Topics, snapshots and the archive are deleted at random between restarts of a real jobmanager. Each request is
admitted at most once, into whatever log. A master refuses a log as long as anything shows that the cluster had another
one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event
from tailrace.schemas.types import Header
from tailrace.services.configuration import Configuration
from tailrace.services.history.log_position import first_offset
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import open_event_log
from tailrace.services.log.topics import delete_topics, describe_topics, log_topic, submissions_topic
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.log_id import read_log_id

from .test_retention import RetainingCluster

LOSSES = int(os.environ.get("LOSSES", "0"))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32) if LOSSES else 1))
FIXED = ("log and snapshots", "log and everything")
ALL = (*FIXED, "log", "submissions", "snapshots", "archive", "log and archive", "nothing")
pytestmark = [pytest.mark.timeout(300 + 60 * LOSSES), *([pytest.mark.soak] if LOSSES else [])]


class LosingCluster(RetainingCluster):
    """A cluster that loses what it stores."""

    def __init__(self, servers: str, cluster: str, home: Path) -> None:
        super().__init__(servers, cluster, home, log_retention_time="1 min")
        self.asked = 0
        self.admitted: dict[str, Counter[str]] = {}
        """Id of a log -> request -> how often it was admitted into that log."""

    def ask_once(self) -> str:
        """Writes a request; returns its job id, which no other request has."""
        self.asked += 1
        topic, job_id = submissions_topic(self.configuration.cluster_id), f"request-{self.asked}"
        header = Header(event_id="e", time=1, sender="client/t", sender_epoch=0, recipient="dispatcher")
        producer = Producer({"bootstrap.servers": self.configuration.bootstrap_servers})
        producer.produce(topic, Codec(topic).encode(Event(header, dispatcher.CancelJob(job_id=job_id))))
        assert producer.flush(30) == 0
        return job_id

    def is_answered(self, job_id: str) -> bool:
        return any(
            isinstance(record.body, client.CancelJobRejected) and record.body.job_id == job_id
            for record in self.records()
        )

    def has_log(self) -> bool:
        # A client that has not found the topic does not look for it again for a while.
        self.log.close()
        self.log = open_event_log(self.configuration)
        try:
            return self.log.end() > 0
        except LogUnavailable:
            return False

    def records(self) -> list:  # type: ignore[type-arg]
        return [record for batch in read_to_end(self.archived) for record in batch]

    def start(self, *, accept: bool = False) -> subprocess.Popen[bytes]:
        configured = self.configuration
        if accept:
            self.configuration = Configuration({**self.settings, "high-availability.accept-new-log": "true"})
        try:
            return self.start_jobmanager()
        finally:
            self.configuration = configured

    def stop(self, master: subprocess.Popen[bytes]) -> None:
        master.kill()
        master.wait()
        log_id = read_log_id(self.archived)
        assert log_id is not None
        self.admitted[log_id] = Counter(
            record.body.job_id
            for record in self.records()
            if isinstance(record.body, dispatcher.CancelJob) and record.header.origin is not None
        )

    def lose(self, what: str) -> None:
        cluster = self.configuration.cluster_id
        topics = {"log": log_topic(cluster), "submissions": submissions_topic(cluster)}
        everything = "everything" in what
        lost = [topic for name, topic in topics.items() if name in what]
        if lost:
            delete_topics(self.admin, lost)
            wait_until(lambda: not any(describe_topics(self.admin, lost).values()), "the topics are deleted")
        storage = self.home / "ha" / cluster
        for name in ("snapshots", "archive", "history"):
            if (everything or name in what) and (storage / name).exists():
                shutil.rmtree(storage / name)
        if "log" in what:
            self.log.close()
            self.log = open_event_log(self.configuration)

    def archive_old_events(self) -> None:
        """Leaves two snapshots, and an archive of what is below them."""
        create_snapshot(self.archived, self.store, self.log.end() - 3)
        create_snapshot(self.archived, self.store)
        self.run_retention_later()


@pytest.fixture
def cluster(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> Iterator[LosingCluster]:
    print(f"SEED={SEED} LOSSES={LOSSES}", flush=True)
    cluster = LosingCluster(kafka.bootstrap_servers, cluster_id, tmp_path)
    yield cluster
    cluster.close()


def test_no_request_is_run_again_and_no_loss_is_passed_over(cluster: LosingCluster) -> None:
    draw = random.Random(SEED)
    losses = [draw.choice(ALL) for _ in range(LOSSES)] if LOSSES else FIXED
    master = cluster.start()
    for loss in losses:
        answered = cluster.ask_once()
        cluster.wait(lambda job_id=answered: cluster.is_answered(job_id), f"no answer before {loss}")  # type: ignore[misc]
        cluster.archive_old_events()
        cluster.stop(master)
        # Nobody has admitted this one: whether it is admitted later depends on what is lost.
        cluster.ask_once()
        cluster.lose(loss)
        had_another_log = loss in ("log", "log and snapshots", "log and archive")
        master = cluster.start()
        if had_another_log:
            assert master.wait(TIMEOUT_S) != 0, loss
            last = (cluster.home / "jobmanager.log").read_text()
            assert "accept-new-log=true" in last, loss
            master = cluster.start(accept=True)
        # What is written before the first event of a new log is not run.
        cluster.wait(cluster.has_log, f"no log after {loss}")
        later = cluster.ask_once()
        cluster.wait(lambda job_id=later: cluster.is_answered(job_id), f"no answer after {loss}")  # type: ignore[misc]
        assert first_offset(cluster.archived) == 0
    cluster.stop(master)
    admitted = sum(cluster.admitted.values(), Counter[str]())
    assert [job_id for job_id, count in admitted.items() if count > 1] == []
    assert len(cluster.admitted) == 1 + sum("log" in loss for loss in losses)
