"""The gap in the output of a job that is rescaled from parallelism 2 to 4 and back, with the state of 100,000 keys.

A running count of keyed records. The gap is the longest pause of its committed output around the rescale, as a reader
of committed messages sees it; `of_which_*` come from the times in the log: from the trigger of the cut until it is
complete, until all tasks have ended, until the checkpoint is found, until the topics have their partitions, and until
all tasks run.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from _report import conditions, median, report
from _scale import scaled
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from submit_to_running import wait_until_idle

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import Formats, KafkaSink, StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.kafka_clients import admin_client
from tailrace.schemas.client import JobRescaled, JobStatusChanged
from tailrace.schemas.event import Record
from tailrace.schemas.job_master import (
    ChannelsCreated,
    CheckpointCompleted,
    CheckpointRestored,
    CheckpointTriggered,
    UpdateTaskExecutionState,
)
from tailrace.schemas.types import ExecutionState, JobGraph, JobStatus
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.client import Client
from tailrace.services.client.rescale_requests import RescaleRequest
from tailrace.services.configuration import Configuration
from tailrace.services.log.factory import open_event_log

KEYS = scaled(100_000)
RATE = 5_000
ROUNDS = scaled(4)
PATIENCE_S = 120.0
AROUND_S = 2.0
STEPS = ("cut", "ended", "found", "topics", "running")


def counting(topic: str) -> JobGraph:
    """Returns the graph of a running count."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    pairs = env.generate(lambda index: (f"k{index % KEYS}", 1), rate_per_second=RATE)
    counts = pairs.key_by(lambda pair: pair[0], str).reduce(lambda a, b: (a[0], a[1] + b[1]))
    counts.map(lambda pair: pair[0], output_type=str).sink_to(KafkaSink(topic, Formats.text()))
    options = {"execution.checkpointing.interval": "off"}
    return msgspec.structs.replace(env.get_job_graph("rescale"), configuration=options)


class Arrivals:
    """When committed records could be read; seconds since the epoch."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"arrivals-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 1,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.records = 0
        self._times: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def longest_pause(self, begin: float, end: float) -> float:
        """Returns the longest pause between two times, in seconds."""
        edges = [begin, *(at for at in list(self._times) if begin <= at <= end), end]
        return max(after - before for before, after in itertools.pairwise(edges))

    def wait_for(self, records: int) -> None:
        """Waits until so many records were read. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        while self.records < records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.records} of {records} records after {PATIENCE_S:.0f} s")
            time.sleep(0.05)

    def close(self) -> None:
        """Stops reading."""
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            if found := self._consumer.consume(10_000, 0.005):
                self.records += len(found)
                self._times.append(time.time())


def steps_of(records: list[Record]) -> dict[str, float]:
    """Returns the seconds of each step of the rescale in these records of the log."""
    times: dict[str, float] = {}
    for record in records:
        at = record.header.time / 1e6
        match record.body:
            case CheckpointTriggered(options=options) if options.stops:
                times["triggered"] = at
            case CheckpointCompleted():
                times["cut"] = at
            case UpdateTaskExecutionState(execution_state=ExecutionState.CANCELED):
                times["ended"] = at
            case CheckpointRestored():
                times["found"] = at
            case ChannelsCreated():
                times["topics"] = at
            case JobStatusChanged(status=JobStatus.RUNNING) | JobRescaled():
                times["running"] = at
            case _:
                pass
    ends = [times["triggered"], *(times[step] for step in STEPS)]
    return {
        step: after - before for step, (before, after) in zip(STEPS, itertools.pairwise(ends), strict=True)
    }


@contextmanager
def running_cluster() -> Iterator[LocalCluster]:
    """Yields a jobmanager and two TaskExecutors of two slots each."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        values = {"home": home, "cluster.id": "bench", "taskmanager.numberOfTaskSlots": "2"}
        cluster = LocalCluster(Configuration(values))
        try:
            cluster.start(LocalClusterOptions(taskexecutors=2, detached=False))
            yield cluster
            cluster.stop("the benchmark is over")
        finally:
            cluster.kill()


def rescale(
    cluster: LocalCluster, job_id: str, parallelism: int, arrivals: Arrivals
) -> tuple[float, float, dict[str, float]]:
    """Returns the longest pause around the rescale, the one before it, and the seconds of its steps."""
    begin = time.time()
    log = open_event_log(cluster.configuration)
    tail = log.tail(log.end())
    try:
        with Client(cluster.configuration) as client, client.subscribe() as conversation:
            conversation.follow(job_id)
            client.rescale(job_id, parallelism)
            RescaleRequest(job_id, client.address).wait(conversation, timeout_s=PATIENCE_S)
        arrivals.wait_for(arrivals.records + 1)
        time.sleep(AROUND_S)
        records: list[Record] = []
        while not records or not isinstance(records[-1].body, JobRescaled):
            records += tail.poll(0.2)
        return (
            arrivals.longest_pause(begin, time.time()),
            arrivals.longest_pause(begin - AROUND_S, begin),
            steps_of(records),
        )
    finally:
        tail.close()
        log.close()


def main() -> None:
    rounds: dict[int, list[tuple[float, float, dict[str, float]]]] = {2: [], 4: []}
    with running_cluster() as cluster, Client(cluster.configuration) as client:
        wait_until_idle()
        servers, topic = cluster.configuration.bootstrap_servers, f"counts-{uuid.uuid4().hex[:8]}"
        admin = admin_client(KafkaConnection(servers))
        for created in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            created.result(30)
        arrivals = Arrivals(servers, topic)
        try:
            job_id = client.submit(counting(topic))
            arrivals.wait_for(KEYS)
            for parallelism in (4, 2) * ROUNDS:
                rounds[parallelism].append(rescale(cluster, job_id, parallelism, arrivals))
            client.cancel(job_id)
        finally:
            arrivals.close()
    figures = {}
    for parallelism, measured in sorted(rounds.items(), reverse=True):
        figures[f"gap_to_{parallelism}_s"] = median([gap for gap, _, _ in measured])
        for step in STEPS:
            figures[f"of_which_{step}_to_{parallelism}_s"] = median([steps[step] for _, _, steps in measured])
    every = [each for measured in rounds.values() for each in measured]
    figures["gap_worst_s"] = max(gap for gap, _, _ in every)
    figures["pause_before_s"] = median([before for _, before, _ in every])
    notes = {
        "gap_to_4_s": "longest pause of the committed output while the job is rescaled from 2 to 4; aim: below 1",
        "gap_to_2_s": "the same from 4 to 2",
        "pause_before_s": "the longest pause in the seconds before",
    }
    report("rescale", figures, conditions(rounds=ROUNDS, keys=KEYS, records_per_s=RATE), notes)


if __name__ == "__main__":
    main()
