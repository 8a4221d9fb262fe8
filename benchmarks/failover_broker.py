"""From SIGKILL of the broker that leads the log to the next event in it, beside a bare producer in the same run.

Three brokers with three replicas, of which two must have a record. One client of the cluster's log appends events as a
jobmanager does; a bare idempotent producer appends to a topic of its own with the same leader. Both write all the time;
the pause is from the kill to the first append that began after it and is acknowledged. Nearly all of it is Kafka's own:
`broker.session.timeout.ms` (9 s by default) until another replica leads. The dead broker returns before the next round.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from threading import Event as Flag
from threading import Thread

from _report import conditions, median, percentile, report
from _scale import scaled
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_cluster import KafkaCluster
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas.event import Event
from tailrace.schemas.everyone import StateHash
from tailrace.schemas.types import Header
from tailrace.services.log import Codec, LogUnavailable
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import log_topic

ROUNDS = scaled(10, least=1)
SESSION_S = 9.0
BARE = "bare"
PAUSE_S = 0.01
PATIENCE_S = 120.0
LOOK_S = 0.5


class Writer:
    """Appends all the time in a thread, and keeps begin and end of each acknowledged append."""

    def __init__(self, name: str) -> None:
        self._over = Flag()
        self.appends: list[tuple[float, float]] = []
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def append(self) -> bool:
        """Appends one record; returns whether it is acknowledged."""
        raise NotImplementedError

    def pause_s(self, since: float) -> float:
        """Returns the time from `since` to the end of the first append that began after it. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            ends = [end for begin, end in self.appends if begin > since]
            if ends:
                return ends[0] - since
            time.sleep(PAUSE_S)
        raise TimeoutError("no append was acknowledged after the kill")

    def _run(self) -> None:
        while not self._over.wait(PAUSE_S):
            begin = time.monotonic()
            if self.append():
                self.appends.append((begin, time.monotonic()))


class LogWriter(Writer):
    """Appends events to the log of a cluster."""

    def __init__(self, kafka: KafkaConnection, cluster: str) -> None:
        super().__init__("log")
        topic = log_topic(cluster)
        self._log = KafkaEventLog(kafka, topic, Codec(topic))

    def append(self) -> bool:
        header = Header(event_id="b", time=time.time_ns() // 1000, sender="x", sender_epoch=0, recipient="x")
        try:
            self._log.append([Event(header, StateHash(offset=1, hashes={}, code_fingerprint="0" * 16))])
        except LogUnavailable:
            return False
        return True


class BareWriter(Writer):
    """Appends with a producer of librdkafka that has the same guarantees."""

    def __init__(self, servers: str) -> None:
        super().__init__("bare")
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def append(self) -> bool:
        self._producer.produce(BARE, b"x" * 100, partition=0)
        return self._producer.flush(PATIENCE_S) == 0


def _lead_both(cluster: KafkaCluster, admin: AdminClient, topic: str) -> EmbeddedKafka:
    """Returns the preferred leader of both partitions when it leads them. Raises TimeoutError."""
    partitions = [TopicPartition(name, 0) for name in (topic, BARE)]
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        # Refused as long as it is not in sync, and where it leads already.
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(PATIENCE_S)
        if all(cluster.leader(name) is cluster.nodes[0] for name in (topic, BARE)):
            return cluster.nodes[0]
        time.sleep(LOOK_S)
    raise TimeoutError("the first broker does not lead again")


def main() -> None:
    parser = ArgumentParser("failover_broker")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--session-timeout-s", type=float, default=SESSION_S)
    options = parser.parse_args()
    pauses: dict[str, list[float]] = {"log": [], "bare": []}
    with KafkaCluster(session_timeout_s=options.session_timeout_s) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        topic = log_topic("bench")
        # The same broker is the preferred leader of both.
        topics = [NewTopic(name, 1, replica_assignment=[[1, 2, 3]]) for name in (topic, BARE)]
        for created in admin.create_topics(topics).values():
            created.result(PATIENCE_S)
        writers = {"log": LogWriter(KafkaConnection(servers), "bench"), "bare": BareWriter(servers)}
        for writer in writers.values():
            writer.start()
        try:
            for _ in range(options.rounds):
                leader = _lead_both(cluster, admin, topic)
                killed = time.monotonic()
                leader.kill()
                for name, writer in writers.items():
                    pauses[name].append(writer.pause_s(killed))
                leader.start()
        finally:
            for writer in writers.values():
                writer.stop()
    figures = {}
    for name, values in pauses.items():
        figures[f"{name}_p50_s"] = median(values)
        figures[f"{name}_p99_s"] = percentile(values, 99)
    report(
        "failover_broker",
        figures,
        conditions(
            rounds=options.rounds, session_timeout_s=options.session_timeout_s, brokers=3, min_insync=2
        ),
        {
            "log_p50_s": "SIGKILL to the next event",
            "bare_p50_s": "the same for a bare producer, in the same rounds",
        },
    )


if __name__ == "__main__":
    main()
