"""Latencies of the REST API at a fixed rate of requests, beside Flink's REST; and how many requests gateways answer.

A cluster with running jobs answers reads (the overview of the cluster, the list of jobs, one job) and writes: each
write cancels a job of its own, and is answered when the log has the command. Requests are due at fixed times, and a
latency counts from then: a server that is late is late for all requests that wait. The raw limit is a server of the
standard library that answers the same bytes from memory.

The peer is a session cluster of Flink 2.3 without jobs, whose overview and list of jobs are read at the same rate. It
is looked for in FLINK_LIB, a directory with Flink's jars (the folder `lib` of a distribution), and in the virtual
environment of `_flink`. Writes have no peer: Flink starts a job from a jar only.

Gateways are processes of their own. Together they are asked as fast as they answer. The clients of this benchmark share
the cores with the servers, here as before.
"""

from __future__ import annotations

import http.client
import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from _flink import VERSION
from _masters import SLOTS, Follower, one_task, running_masters
from _report import conditions, median, percentile, report
from _scale import scaled, scaled_s

from tailrace.infra.jars import cache_dir
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import client as answers
from tailrace.schemas.event import Record
from tailrace.schemas.types import JobStatus
from tailrace.services.cli.local.cluster import LocalCluster
from tailrace.services.client import Client
from tailrace.services.core.role import DISPATCHER
from tailrace.services.history.log_source import open_log_source
from tailrace.services.history.time_travel import replica_at

RATE_PER_S = 200
DURATION_S = scaled_s(20.0)
JOBS = scaled(200, 4)
GATEWAYS = (1, 2, 4)
CLIENTS = 16
PATIENCE_S = 120.0
_GATEWAY = """
import sys, threading
from tailrace.services.configuration import load_configuration
from tailrace.services.processes.rest import RestServer
with RestServer(load_configuration()) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""
Request = tuple[str, str]
"""Method and path."""


class Failed(Exception):
    """A request was not answered with success."""


def send(connection: http.client.HTTPConnection, request: Request) -> bytes:
    """Sends one request; returns the body. Raises Failed."""
    connection.request(*request)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status >= 300:
        raise Failed(f"{request[0]} {request[1]}: {answer.status} {body[:200]!r}")
    return body


def measure(address: str, requests: Sequence[Request], rate_per_s: float) -> list[float]:
    """Sends the requests at a rate; returns the milliseconds from the time at which each was due to its answer."""
    latencies = [0.0] * len(requests)
    failures: list[Exception] = []
    start = time.perf_counter() + 0.1

    def run(first: int) -> None:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        try:
            for number in range(first, len(requests), CLIENTS):
                due = start + number / rate_per_s
                time.sleep(max(0.0, due - time.perf_counter()))
                send(connection, requests[number])
                latencies[number] = (time.perf_counter() - due) * 1e3
        except (Failed, OSError) as error:
            failures.append(error)
        finally:
            connection.close()

    _in_threads(CLIENTS, run)
    if failures:
        raise failures[0]
    return latencies


def count_requests(addresses: Sequence[str], path: str, seconds: float) -> float:
    """Returns the requests per second that all servers answer together."""
    end = time.perf_counter() + seconds
    counts = [0] * CLIENTS

    def run(number: int) -> None:
        connection = http.client.HTTPConnection(addresses[number % len(addresses)], timeout=PATIENCE_S)
        while time.perf_counter() < end:
            send(connection, ("GET", path))
            counts[number] += 1
        connection.close()

    _in_threads(CLIENTS, run)
    return sum(counts) / seconds


def _in_threads(count: int, run: Callable[[int], None]) -> None:
    running = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def submit_jobs(cluster: LocalCluster, count: int) -> list[str]:
    """Returns the ids of jobs that run."""
    follower, graph, running = Follower(cluster), one_task(), set[str]()

    def is_last(record: Record) -> bool:
        body = record.body
        if isinstance(body, answers.JobStatusChanged) and body.status is JobStatus.RUNNING:
            running.add(body.job_id)
        return len(running) == count

    try:
        with Client(cluster.configuration, name="bench") as client:
            jobs = [client.submit(graph) for _ in range(count)]
        follower.until(is_last, f"{count} running jobs")
    finally:
        follower.close()
    return jobs


@contextmanager
def running_gateway(cluster: LocalCluster) -> Iterator[str]:
    """Yields the address of a gateway that has read the log."""
    environment = {**os.environ, **cluster.configuration.replace({"rest.bind-port": "0"}).environment()}
    with subprocess.Popen(
        [sys.executable, "-c", _GATEWAY],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            await_answer(address, "/overview")
            yield address
        finally:
            process.kill()


def await_answer(address: str, path: str) -> bytes:
    """Returns the body of the first answer. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        with suppress(OSError, Failed, http.client.HTTPException):
            return send(connection, ("GET", path))
        connection.close()
        time.sleep(0.1)
    raise TimeoutError(f"{address} does not answer {path}")


@contextmanager
def serving_bytes(body: bytes) -> Iterator[str]:
    """Yields the address of a server that answers these bytes: the raw limit."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def find_flink() -> Path | None:
    """Returns a directory with the jars of Flink, if there is one."""
    if given := os.environ.get("FLINK_LIB"):
        return Path(given)
    pattern = "lib/python*/site-packages/pyflink/lib"
    return next((cache_dir() / f"pyflink-{VERSION}").glob(pattern), None)


@contextmanager
def running_flink(jars: Path) -> Iterator[str]:
    """Yields the REST address of a session cluster of Flink without TaskManagers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-flink-") as directory:
        Path(directory, "config.yaml").write_text(
            f"rest.bind-address: 127.0.0.1\nrest.port: {port}\njobmanager.rpc.address: 127.0.0.1\n"
            "jobmanager.rpc.port: 0\njobmanager.memory.process.size: 1600m\n"
        )
        command = [
            shutil.which("java") or "java",
            "-Xmx1g",
            "-cp",
            f"{jars}/*",
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            "--configDir",
            directory,
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                await_answer(f"127.0.0.1:{port}", "/overview")
                yield f"127.0.0.1:{port}"
            finally:
                process.kill()


def main() -> None:
    figures: dict[str, float] = {}
    under: dict[str, object] = {"rate_per_s": RATE_PER_S, "jobs": JOBS, "peer": f"Flink {VERSION}"}
    count = max(CLIENTS, int(RATE_PER_S * DURATION_S))

    def add(name: str, address: str, requests: Sequence[Request]) -> None:
        found = measure(address, requests, RATE_PER_S)
        figures[f"{name}_p50_ms"], figures[f"{name}_p99_ms"] = median(found), percentile(found, 99)

    def read(name: str, address: str, path: str) -> None:
        measure(address, [("GET", path)] * CLIENTS * 4, RATE_PER_S)
        add(name, address, [("GET", path)] * count)

    with EmbeddedKafka() as kafka, ExitStack() as stack:
        workers = JOBS // SLOTS + 1
        values = {"rest.bind-port": "0"}
        cluster = stack.enter_context(running_masters(kafka.bootstrap_servers, "bench", 1, values, workers))
        jobs = submit_jobs(cluster, JOBS)
        master = find_master(cluster)
        listed = await_answer(master, "/jobs/overview")
        read("overview", master, "/overview")
        read("jobs", master, "/jobs/overview")
        read("job", master, f"/jobs/{jobs[-1]}")
        with serving_bytes(listed) as raw:
            read("raw_jobs", raw, "/")
        addresses: list[str] = []
        with ExitStack() as gateways:
            for number in range(1, max(GATEWAYS) + 1):
                addresses.append(gateways.enter_context(running_gateway(cluster)))
                if number in GATEWAYS:
                    rate = count_requests(addresses, "/overview", scaled_s(10.0))
                    figures[f"gateways_{number}_per_s"] = rate
        # The first write of a server connects its producer.
        first, *others = [("PATCH", f"/jobs/{job}") for job in jobs]
        measure(master, [first], RATE_PER_S)
        add("cancel", master, others)
    jars = find_flink()
    if jars is None:
        under["peer"] = "none: set FLINK_LIB to a directory with Flink's jars"
    else:
        with running_flink(jars) as flink:
            read("flink_overview", flink, "/overview")
            read("flink_jobs", flink, "/jobs/overview")
    notes = {
        "overview_p50_ms": "GET /overview, from the time at which it is due",
        "jobs_p50_ms": "GET /jobs/overview, all jobs",
        "job_p50_ms": "GET /jobs/:jobid",
        "raw_jobs_p50_ms": "raw limit: the bytes of the list of jobs from memory, by the standard library",
        "gateways_1_per_s": "GET /overview as fast as one gateway answers",
        "cancel_p50_ms": "PATCH /jobs/:jobid, each a job of its own, until the log has the command",
        "flink_overview_p50_ms": "peer: GET /overview",
        "flink_jobs_p50_ms": "peer: GET /jobs/overview, without jobs",
    }
    report("rest", figures, conditions(**under), notes)


def find_master(cluster: LocalCluster) -> str:
    """Returns the address of the leader's REST server."""
    with open_log_source(cluster.configuration) as source:
        leader = replica_at(source).leadership.leader(DISPATCHER)
    assert leader is not None
    return leader.endpoints["rest"]


if __name__ == "__main__":
    main()
