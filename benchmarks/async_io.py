"""Requests to a slow HTTP server from one slot: async_map, beside a map that waits for each answer, and beside asyncio
without a stream.

The server answers after 100 ms, so 1,000 requests in flight could be 10,000 requests a second. All clients keep their
connections open; that of async_map and of asyncio alone is the same. Latency is that of a request, as its function
measures it.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from typing import Any

from _jobs import Cluster, running_cluster
from _lines import create_topic
from _report import conditions, median, percentile, report
from _scale import scaled
from _slow_http import SlowServer, slow_server
from confluent_kafka import Consumer, TopicPartition

from tailrace import (
    AsyncFunction,
    Formats,
    KafkaSink,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from tailrace.infra.kafka import EmbeddedKafka

DELAY_S = 0.1
IN_FLIGHT = 1_000
REQUESTS = scaled(30_000, least=200)
REQUESTS_IN_ORDER = scaled(300, least=5)
PATIENCE_S = 120.0


class Fetch(AsyncFunction[int, str]):
    """Requests, and returns the begin and the end (s)."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, context: RuntimeContext) -> None:
        self.idle: list[Any] = []

    async def async_invoke(self, value: int) -> list[str]:
        begun = time.time()
        address = "127.0.0.1", self.port
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection(*address)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % value)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.rpartition(b": ")[2]))
        self.idle.append((reader, writer))
        return [f"{begun},{time.time()}"]


class FetchInOrder(MapFunction[int, str]):
    """The same, one after the other."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, context: RuntimeContext) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def map(self, value: int) -> str:
        begun = time.time()
        self.connection.request("GET", f"/{value}")
        self.connection.getresponse().read()
        return f"{begun},{time.time()}"


def run_job(cluster: Cluster, servers: str, server: SlowServer, way: str, requests: int) -> list[str]:
    """Runs a job, and returns the results in its topic."""
    sink = create_topic(servers, f"async-{way}", 1)
    env = StreamExecutionEnvironment().set_parallelism(1)
    numbers = env.generate(int, count=requests)
    if way == "map":
        results = numbers.map(FetchInOrder(server.port))
    else:
        results = numbers.async_map(Fetch(server.port), capacity=IN_FLIGHT, ordered=way == "ordered")
    results.sink_to(KafkaSink(sink, Formats.text()))
    cluster.start(env.get_job_graph(way)).wait()
    return read(servers, sink, requests)


def read(servers: str, topic: str, count: int) -> list[str]:
    """Returns the committed messages of a topic. Raises TimeoutError if there are fewer."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline, found = time.monotonic() + PATIENCE_S, list[str]()
    while len(found) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} has {len(found)} of {count} messages")
        found += [(m.value() or b"").decode() for m in consumer.consume(1_000, 0.2) if not m.error()]
    consumer.close()
    assert len(found) == count
    return found


async def run_plainly(server: SlowServer) -> list[str]:
    """Requests with asyncio alone, as many at a time."""
    fetch, results = Fetch(server.port), list[str]()
    fetch.idle = []
    numbers = iter(range(REQUESTS))

    async def work() -> None:
        for number in numbers:
            results.extend(await fetch.async_invoke(number))

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return results


def add_figures(figures: dict[str, float], name: str, results: list[str]) -> None:
    """Adds the rate between the first and the last request, and the latencies."""
    times = [tuple(map(float, result.split(","))) for result in results]
    latencies = [(end - begin) * 1e3 for begin, end in times]
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    figures[f"{name}_requests_per_s"] = len(results) / seconds
    figures[f"{name}_p50_ms"] = median(latencies)
    figures[f"{name}_p99_ms"] = percentile(latencies, 99)


def main() -> None:
    figures: dict[str, float] = {}
    with EmbeddedKafka() as kafka, running_cluster(kafka.bootstrap_servers, slots=1) as cluster:
        for way, requests in (("unordered", REQUESTS), ("ordered", REQUESTS), ("map", REQUESTS_IN_ORDER)):
            with slow_server(DELAY_S) as server:
                add_figures(figures, way, run_job(cluster, kafka.bootstrap_servers, server, way, requests))
            figures[f"{way}_most_in_flight"] = server.most_in_flight
    with slow_server(DELAY_S) as server:
        add_figures(figures, "asyncio_alone", asyncio.run(run_plainly(server)))
    figures["ratio"] = figures["unordered_requests_per_s"] / figures["asyncio_alone_requests_per_s"]
    notes = {"ratio": "async_map beside asyncio alone", "map_requests_per_s": "one request at a time"}
    under = conditions(delay_ms=DELAY_S * 1e3, in_flight=IN_FLIGHT, requests=REQUESTS)
    report("async_io", figures, under, notes)


if __name__ == "__main__":
    main()
