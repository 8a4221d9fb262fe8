"""What TLS and a login cost: the same jobs over SASL_SSL and over plaintext, in turns, at one broker with both
listeners.

Two clusters stand side by side, one on each listener. The jobs are those of `wordcount_throughput` (vectorised, p 2)
and `latency` (a running count over a shuffle, 1,000 records/s). A round measures one after the other, and the next
round the other way round: a machine that is busy for a while slows down both. Ratios are medians of the rounds' ratios.
The raw limit is one consumer that reads the lines.
"""

from __future__ import annotations

import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _heartbeats import Pulse
from _jobs import Cluster, running_cluster
from _lines import PARTITIONS, check, create_topic, load
from _report import conditions, median, percentile, report
from _scale import scaled, scaled_s
from confluent_kafka import Consumer, TopicPartition
from latency import keyed
from wordcount_throughput import vectorised

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.kafka_security import BROKER, BrokerSecurity, Listener

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from certificates import CertificateAuthority

LINES = scaled(3_000_000)
ROUNDS = scaled(7, least=1)
WARM_UP_S = scaled_s(20.0, least=2.0)
MEASURED_S = scaled_s(8.0, least=1.0)
RATE = 1_000
PLAINTEXT, SECURED = "plaintext", "secured"


@contextmanager
def broker() -> Iterator[dict[str, KafkaConnection]]:
    """Runs a broker; yields how a client connects to each of its listeners. It checks the rights of both."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as name:
        directory = Path(name)
        authority = CertificateAuthority(directory)
        certificate, password = authority.issue(BROKER), directory / "admin.password"
        password.touch(mode=0o600)
        password.write_text("of this run only\n")
        security = BrokerSecurity(
            authority.ca, certificate, password, listeners={"OPEN": Listener(certificate, "PLAINTEXT")}
        )
        users = {"super.users": f"User:admin;User:{BROKER};User:ANONYMOUS"}
        with EmbeddedKafka(heap="1g", security=security, settings=users) as kafka:
            yield {PLAINTEXT: KafkaConnection(kafka.address_of("OPEN")), SECURED: kafka.connection}


def raw_lines_per_s(kafka: KafkaConnection, topic: str, lines: int) -> float:
    """Returns the lines that one consumer reads in a second."""
    consumer = Consumer(
        {**kafka.to_librdkafka(), "group.id": "raw", "enable.partition.eof": True, "fetch.min.bytes": 100_000}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    # The login is no part of it.
    consumer.consume(1, 10.0)
    start, open_ones = time.perf_counter(), PARTITIONS
    while open_ones:
        open_ones -= sum(message.error() is not None for message in consumer.consume(10_000, 1.0))
    consumer.close()
    return lines / (time.perf_counter() - start)


class Rounds:
    """Measures both sides in turns."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def run(self, measure: Callable[[str], dict[str, float]]) -> None:
        """Measures each side once in each round, and adds medians and ratios. `measure`: side -> the figures."""
        results: defaultdict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for number in range(ROUNDS):
            for side in (PLAINTEXT, SECURED) if number % 2 else (SECURED, PLAINTEXT):
                for key, value in measure(side).items():
                    results[key][side].append(value)
        for key, of_side in results.items():
            ratios = [b / a for a, b in zip(of_side[PLAINTEXT], of_side[SECURED], strict=True)]
            self.figures |= {f"{side}_{key}": median(of_side[side]) for side in (PLAINTEXT, SECURED)}
            self.figures |= {
                f"{key}_ratio": median(ratios),
                f"{key}_least_ratio": min(ratios),
                f"{key}_most_ratio": max(ratios),
            }


def main() -> None:
    parser = ArgumentParser("sasl_ssl")
    parser.add_argument("--lines", type=int, default=LINES)
    options = parser.parse_args()
    lines = options.lines
    under = conditions(lines=lines, rounds=ROUNDS, records_per_s=RATE, seconds=MEASURED_S)
    rounds = Rounds()
    with broker() as connections, ExitStack() as stack:
        servers = connections[PLAINTEXT].bootstrap_servers
        load(servers, "lines", lines)
        rounds.run(lambda side: {"raw_lines_per_s": raw_lines_per_s(connections[side], "lines", lines)})
        clusters: dict[str, Cluster] = {}
        for side, kafka in connections.items():
            settings = {
                "cluster.id": side,
                **{f"kafka.{key}": text for key, text in kafka.properties.items()},
            }
            clusters[side] = stack.enter_context(
                running_cluster(kafka.bootstrap_servers, slots=2, configuration=settings)
            )

        pulses: dict[str, Pulse] = {}
        jobs = []
        for side, cluster in clusters.items():
            source, sink = (create_topic(servers, f"{side}-{end}", 1) for end in ("in", "out"))
            jobs.append(cluster.start(keyed(source, sink)).wait_until_running())
            # Whoever measures does so over plaintext on both sides.
            pulses[side] = Pulse(servers, source, sink, 1)
            pulses[side].latencies_ms(RATE, WARM_UP_S)

        def latency(side: str) -> dict[str, float]:
            found = pulses[side].latencies_ms(RATE, MEASURED_S)
            return {"p50_ms": median(found), "p99_ms": percentile(found, 99)}

        rounds.run(latency)
        for job in jobs:
            job.cancel()

        def throughput(side: str) -> dict[str, float]:
            sink = create_topic(servers, f"counts-{side}-{time.monotonic_ns()}")
            job = clusters[side].start(vectorised("lines", sink, 2)).wait_until_running().wait()
            check(servers, sink, lines)
            return {"lines_per_s": lines / job.run_s}

        for side in clusters:
            throughput(side)
        rounds.run(throughput)
    notes = {
        "raw_lines_per_s_ratio": "raw limit: one consumer, SASL_SSL to plaintext",
        "p50_ms_ratio": "aim: below 1.25",
        "p99_ms_ratio": "aim: below 1.25",
        "lines_per_s_ratio": "aim: above 0.75",
    }
    report("sasl_ssl", rounds.figures, under, notes)


if __name__ == "__main__":
    main()
