"""The relay on a real Kafka: a reader gets all its events from masters that are killed, and over a restart of Kafka."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.resource_manager import DisconnectTaskManager
from tailrace.schemas.types import Header
from tailrace.services.blobs.shared_secret_auth import SharedSecret
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import DISPATCHER, RESOURCE_MANAGER
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.event_log import AddressFilter, read_to_end
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.processes.relay import with_relay
from tailrace.services.relay.connection import RelayConnection, RelayLost
from tailrace.services.relay.protocol import LogName
from tailrace.services.relay.relayed_log import RelayedEventLog
from tailrace.services.task_executor import TaskExecutor

OWN = "task_executor/reader"
MASTER = (
    "import threading; from tailrace.services.configuration import load_configuration; "
    "from tailrace.services.processes import jobmanager; jobmanager.run(load_configuration(), threading.Event())"
)
numbers = itertools.count()


class Reader:
    """Reads the log as a TaskExecutor does."""

    def __init__(self, configuration: Configuration) -> None:
        self.direct = open_event_log(configuration)
        self.replica = Replica([TaskExecutor()], only=lambda address: address == OWN)
        log = with_relay(configuration, self.direct, self.replica)
        assert isinstance(log, RelayedEventLog)
        self.log = log
        self.concerns = AddressFilter(frozenset((OWN,)))
        self.tail = log.tail(0, concerns=self.concerns)
        self.records: list[Record] = []

    @property
    def relay(self) -> str | None:
        assert self.log._tail is not None
        return self.log._tail.relay

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            for record in self.tail.poll(0.1):
                self.records.append(record)
                self.replica.apply(record)
            return condition()

        wait_until(look, what)

    def append_and_read(self) -> None:
        """Appends an own event, and reads it."""
        header = Header(
            event_id=str(next(numbers)), time=1, sender=OWN, sender_epoch=1, recipient=RESOURCE_MANAGER
        )
        body = DisconnectTaskManager(resource_id="reader", reason="a test")
        offset = self.log.append([Event(header, body)])[0]
        self.poll_until(lambda: self.tail.position > offset, "own event")
        assert self.records[-1].offset == offset

    def close(self) -> None:
        self.tail.close()
        self.log.close()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(tmp_path / "kafka") as kafka:
        yield kafka


def test_reader_loses_nothing_with_killed_masters_and_restarted_kafka(
    kafka: EmbeddedKafka, tmp_path: Path, cluster_id: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of this cluster\n")
    configuration = Configuration(
        {
            "cluster.id": cluster_id,
            "bootstrap.servers": kafka.bootstrap_servers,
            "home": str(tmp_path / "home"),
            "blob.secret-file": str(secret),
        }
    )
    create_cluster_topics(create_admin_client(configuration), configuration.kafka, cluster_id)
    environment = {**os.environ, **configuration.environment()}
    with ExitStack() as stack:

        def start_master() -> subprocess.Popen[bytes]:
            master = subprocess.Popen([sys.executable, "-c", MASTER], env=environment)
            stack.callback(master.wait, TIMEOUT_S)
            stack.callback(master.kill)
            return master

        first = start_master()
        reader = Reader(configuration)
        stack.callback(reader.close)
        reader.poll_until(lambda: reader.relay is not None, "relay")
        reader.append_and_read()
        address = reader.relay
        assert address is not None

        name = LogName(reader.direct.topic, "another log")
        for wrong in (
            None,
            SharedSecret(b"the secret of another cluster"),
            SharedSecret.from_configuration(configuration),
        ):
            with pytest.raises(RelayLost, match="refuses"):
                RelayConnection(address, name, 0, (OWN,), secret=wrong, timeout_s=TIMEOUT_S)
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), TIMEOUT_S) as strange:
            strange.sendall(os.urandom(10_000))
        reader.append_and_read()

        kafka.stop()
        kafka.start()
        reader.append_and_read()
        assert reader.relay == address, "a restart of Kafka does not end the relay"

        first.kill()
        reader.poll_until(lambda: reader.relay is None, "loss of the relay")
        reader.append_and_read()
        start_master()
        reader.poll_until(lambda: reader.relay not in (None, address), "relay of the next master")
        reader.append_and_read()

        claims = [record.body for record in reader.records if isinstance(record.body, LeaderElected)]
        assert [claim.epoch for claim in claims if claim.role == DISPATCHER] == [1, 2]
        wanted = [
            record
            for batch in read_to_end(reader.direct, 0, end=reader.tail.position)
            for record in batch
            if reader.concerns(record.header.sender, record.header.recipient)
        ]
        assert reader.records == wanted
