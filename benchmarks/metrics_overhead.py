"""What metrics cost a job: the vectorised word count on a cluster that serves metrics, which are scraped every five
seconds, and on one that serves none.

Both clusters run on one Kafka. Their jobs take turns, and each figure is the median of its rounds. The CPU time of all
processes of a cluster says more than the rate if the machine has other work. StreamTasks measure
their times in both; `switch_ns` is the cost of that, twice for the mail of a batch and twice for a commit.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from _jobs import Cluster, running_cluster
from _lines import check, create_topic, load
from _report import conditions, median, report
from _scale import scaled
from wordcount_throughput import vectorised

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.stream_task.loop.activity_timer import Activity, ActivityTimer
from tailrace.services.cli.local.cluster_record import read_record

LINES = scaled(1_000_000)
ROUNDS = 7
SWITCHES = 100_000
SCRAPE_INTERVAL_S = 5.0


def find_addresses(cluster: Cluster) -> list[str]:
    """Returns the addresses at which the processes serve their metrics."""
    logs = (cluster.local.home / "log").glob("*.log")
    found = [re.findall(r"serves metrics\s+address=(\S+)", Path(log).read_text("utf-8")) for log in logs]
    return [addresses[-1] for addresses in found if addresses]


@contextmanager
def scraped(addresses: list[str]) -> Iterator[list[float]]:
    """Scrapes all addresses during the block; yields the list of the seconds that the scrapes took."""
    ended, took = threading.Event(), list[float]()

    def scrape() -> None:
        while not ended.wait(SCRAPE_INTERVAL_S):
            for address in addresses:
                start = time.perf_counter()
                urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read()
                took.append(time.perf_counter() - start)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def cpu_s(cluster: Cluster) -> float:
    """Returns the CPU time of all processes of a cluster so far, also of those that have ended."""
    record = read_record(cluster.local.home)
    assert record is not None
    own = [psutil.Process(process.pid) for process in record.processes]
    total = 0.0
    for process in [*own, *(child for each in own for child in each.children(recursive=True))]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def switch_ns() -> float:
    """Returns the nanoseconds of one switch of activities."""
    timer = ActivityTimer()
    timer.start()
    start = time.perf_counter()
    for _ in range(SWITCHES):
        timer.switch(Activity.IDLE)
    return (time.perf_counter() - start) / SWITCHES * 1e9


def main() -> None:
    parser = ArgumentParser("metrics_overhead")
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    lines = options.lines
    under = conditions(lines=lines, rounds=options.rounds)
    rates: dict[str, list[float]] = {"off": [], "on": []}
    used: dict[str, list[float]] = {"off": [], "on": []}
    scrapes: list[float] = []
    on = {"cluster.id": "metrics-on", "metrics.reporter.prom.port": "0"}
    with EmbeddedKafka(heap="1g") as kafka:
        servers = kafka.bootstrap_servers
        load(servers, "lines", lines)
        with (
            running_cluster(servers, 1, {"cluster.id": "metrics-off"}) as without,
            running_cluster(servers, 1, on) as serving,
        ):
            addresses = find_addresses(serving)
            assert len(addresses) == 2, addresses
            for number in range(-1, options.rounds):  # the first round warms up
                turns = [("off", without, []), ("on", serving, addresses)]
                for way, cluster, served in turns if number % 2 else reversed(turns):
                    sink = create_topic(servers, f"counts-{way}-{number + 1}")
                    before = cpu_s(cluster)
                    with scraped(served) as took:
                        job = cluster.start(vectorised("lines", sink, 1)).wait_until_running().wait()
                    check(servers, sink, lines)
                    if number >= 0:
                        rates[way].append(lines / job.run_s)
                        used[way].append(cpu_s(cluster) - before)
                        scrapes += took
    off_rate, on_rate = median(rates["off"]), median(rates["on"])
    off_cpu, on_cpu = median(used["off"]), median(used["on"])
    figures = {
        "off_lines_per_s": off_rate,
        "on_lines_per_s": on_rate,
        "rate_overhead_percent": 100 * (1 - on_rate / off_rate),
        "off_cpu_s": off_cpu,
        "on_cpu_s": on_cpu,
        "cpu_overhead_percent": 100 * (on_cpu / off_cpu - 1),
        "scrape_ms": median(scrapes) * 1000 if scrapes else 0.0,
        "switch_ns": switch_ns(),
    }
    notes = {
        "off_lines_per_s": "median of the rounds without metrics",
        "on_lines_per_s": "median of the rounds with metrics, scraped every five seconds",
        "off_cpu_s": "CPU time of all processes of the cluster for one job, without metrics",
        "on_cpu_s": "the same with metrics",
        "scrape_ms": "median time of one scrape",
        "switch_ns": "the cost of one switch of a task's activity",
    }
    report("metrics_overhead", figures, under, notes)


if __name__ == "__main__":
    main()
