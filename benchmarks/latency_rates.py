"""The latency of a record from a Kafka topic to a reader of committed records in another, at rising rates.

A map, and a running count by key, at parallelism 1 and 2. The producer has the default `linger.ms` of Kafka's clients.
At each rate the first seconds are excluded, without a pause after them: a source changes its pace at a pause. The tail
shows whether it goes back and forth between paces: then it has seconds.
"""

from __future__ import annotations

from _heartbeats import Pulse
from _jobs import running_cluster
from _lines import create_topic
from _report import conditions, median, percentile, report
from _scale import scaled_s
from latency import keyed, map_only

from tailrace.infra.kafka import EmbeddedKafka

RATES = (1_000, 2_000, 5_000, 10_000)
PARALLELISM = (1, 2)
WARM_UP_S = scaled_s(20.0, least=2.0)
MEASURED_S = scaled_s(15.0, least=2.0)
LINGER_MS = 5


def main() -> None:
    figures: dict[str, float] = {}
    with EmbeddedKafka() as kafka, running_cluster(kafka.bootstrap_servers, slots=4) as cluster:
        for parallelism in PARALLELISM:
            for name, graph in (("map", map_only), ("keyed", keyed)):
                source, sink = (
                    create_topic(kafka.bootstrap_servers, f"{name}-{parallelism}-{end}", parallelism)
                    for end in ("in", "out")
                )
                job = cluster.start(graph(source, sink, parallelism)).wait_until_running()
                pulse = Pulse(kafka.bootstrap_servers, source, sink, parallelism, LINGER_MS)
                for rate in RATES:
                    latencies = pulse.latencies_ms(rate, WARM_UP_S + MEASURED_S)
                    latencies = latencies[round(rate * WARM_UP_S) :]
                    at = f"{name}_at_{rate}_parallelism_{parallelism}"
                    figures[f"{at}_p50_ms"] = median(latencies)
                    figures[f"{at}_p99_ms"] = percentile(latencies, 99)
                job.cancel()
    under = conditions(rates=list(RATES), seconds=MEASURED_S, linger_ms=LINGER_MS)
    notes = {"map_at_5000_parallelism_1_p99_ms": "aim: below 500 at every rate"}
    report("latency_rates", figures, under, notes)


if __name__ == "__main__":
    main()
