"""Queries on a standalone Spark cluster, beside queries in the TaskExecutor's own JVM: the latency of a record, the
throughput of a backlog, and the start of a job.

The cluster is on this machine, a Master and two Workers of Spark's own. So the figures show what the way through
executors and the gateway costs. They do not show what more machines give.
"""

from __future__ import annotations

from collections.abc import Mapping

import latency
from _jobs import Cluster, running_cluster
from _lines import check, create_topic, load
from _report import conditions, median, report
from _scale import scaled
from latency import Bench, map_only
from wordcount_throughput import vectorised

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.spark_cluster import SparkCluster

LINES = scaled(1_000_000)
STARTS = 5
PARALLELISM = 2


def measure(cluster: Cluster, servers: str, place: str) -> dict[str, float]:
    """Returns the figures of a cluster. They, and its topics, begin with `place`."""
    bench = Bench(servers)
    taken, rates = list[float](), list[float]()
    for number in range(STARTS):
        job = cluster.start(map_only(*bench.topics(f"{place}-start-{number}"))).wait_until_running()
        taken.append(job.start_s * 1e3)
        job.cancel()
    bench.ours(cluster, place, map_only)
    for number in range(-1, 3):  # the first one warms up
        sink = create_topic(servers, f"{place}-counts-{number}")
        job = cluster.start(vectorised("lines", sink, PARALLELISM)).wait_until_running().wait()
        check(servers, sink, LINES)
        if number >= 0:
            rates.append(LINES / job.run_s)
    return {
        f"{place}_start_ms": median(taken),
        **bench.figures,
        f"{place}_lines_per_s": median(rates),
    }


def main() -> None:
    under = conditions(lines=LINES, rates=list(latency.RATES), starts=STARTS, parallelism=PARALLELISM)
    figures: dict[str, float] = {}
    with EmbeddedKafka(heap="1g") as kafka, SparkCluster(workers=2, memory="2g") as spark:
        servers = kafka.bootstrap_servers
        load(servers, "lines", LINES)
        places: Mapping[str, Mapping[str, str]] = {"local": {}, "cluster": {"spark.master": spark.master}}
        for place, options in places.items():
            with running_cluster(servers, 4, options) as cluster:
                figures |= measure(cluster, servers, place)
    notes = {
        "local_start_ms": "SubmitJob to all tasks RUNNING, median of five",
        "local_at_50_p50_ms": "map, 50 records a second; a Unix socket from the worker to the StreamTask",
        "cluster_at_50_p50_ms": "the same by executors and the gateway",
        "local_p50_ms": "1,000 records a second",
        "local_lines_per_s": "vectorised word count at parallelism 2",
    }
    report("spark_cluster", figures, under, notes)


if __name__ == "__main__":
    main()
