"""What metrics cost a job: lines per second of the vectorised word count on a cluster that serves metrics, which are
scraped every second, and on one that serves none.

Both clusters run on one Kafka. Their jobs take turns, and each figure is the median of its rounds. StreamTasks measure
their times in both; `switch_ns` is the cost of that, twice for the mail of a batch and twice for a commit.
"""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from _jobs import Cluster, running_cluster
from _lines import check, create_topic, load
from _report import conditions, median, report
from _scale import scaled
from wordcount_throughput import vectorised

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.runtime.stream_task.loop.activity_timer import Activity, ActivityTimer

LINES = scaled(1_000_000)
ROUNDS = 7
SWITCHES = 100_000
SCRAPE_INTERVAL_S = 1.0


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
                    with scraped(served) as took:
                        job = cluster.start(vectorised("lines", sink, 1)).wait_until_running().wait()
                    check(servers, sink, lines)
                    if number >= 0:
                        rates[way].append(lines / job.run_s)
                        scrapes += took
    off_rate, on_rate = median(rates["off"]), median(rates["on"])
    figures = {
        "off_lines_per_s": off_rate,
        "on_lines_per_s": on_rate,
        "overhead_percent": 100 * (1 - on_rate / off_rate),
        "scrape_ms": median(scrapes) * 1000 if scrapes else 0.0,
        "switch_ns": switch_ns(),
    }
    notes = {
        "off_lines_per_s": "median of the rounds without metrics",
        "on_lines_per_s": "median of the rounds with metrics, scraped every second",
        "scrape_ms": "median time of one scrape",
        "switch_ns": "the cost of one switch of a task's activity",
    }
    report("metrics_overhead", figures, under, notes)


if __name__ == "__main__":
    main()
