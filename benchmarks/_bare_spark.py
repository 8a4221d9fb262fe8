"""The start of Spark's part of a task alone: a real-time query from `start` until its Python workers are up.

A SparkSession with the settings of a TaskExecutor, a Kafka topic, no StreamTask and no control plane: the lower bound
for every job.
"""

from __future__ import annotations

import selectors
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tailrace.infra.cds_archives import read_archive_options, spark_archive
from tailrace.infra.jars import spark_jars
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.infra.prerequisites import find_java
from tailrace.pipelines.runtime.common.kafka_clients import admin_client
from tailrace.pipelines.runtime.spark.buffer_forwarder import BufferForwardingPlan
from tailrace.pipelines.runtime.spark.partition_forwarder import PartitionForwarder
from tailrace.pipelines.runtime.spark.query import QueryMode, start_query
from tailrace.pipelines.runtime.spark.session import start_session
from tailrace.pipelines.runtime.task_runtime.worker_rendezvous import WorkerRendezvous
from tailrace.services.log.topics import create_topics

HEAP_MIB = 640
TOPIC = "bare-spark"
PATIENCE_S = 60.0


def query_starts(bootstrap_servers: str, subtasks: int, rounds: int) -> list[float]:
    """Returns the milliseconds from the call that builds the query to the first message of the last worker, one
    figure per round."""
    create_topics(
        admin_client(KafkaConnection(bootstrap_servers)), [NewTopic(f"{TOPIC}-{subtasks}", subtasks)]
    )
    with tempfile.TemporaryDirectory(prefix="tailrace-bare-") as folder:
        scratch = Path(folder)
        spark = start_session(
            scratch, spark_jars(), HEAP_MIB, jvm_options=read_archive_options(spark_archive(find_java()))
        )
        lobby = WorkerRendezvous(scratch)
        try:
            return [
                _once(spark, bootstrap_servers, lobby, scratch, subtasks, number) for number in range(rounds)
            ]
        finally:
            lobby.close()
            spark.stop()


def _once(
    spark: object, bootstrap_servers: str, lobby: WorkerRendezvous, scratch: Path, subtasks: int, number: int
) -> float:
    topic = f"{TOPIC}-{subtasks}"
    hand_over = PartitionForwarder(number, lobby.path, BufferForwardingPlan({}))
    begin = {topic: dict.fromkeys(range(subtasks), 0)}
    start = time.perf_counter()
    query = start_query(
        spark,  # type: ignore[arg-type]
        KafkaConnection(bootstrap_servers),
        begin,
        hand_over,
        QueryMode.REAL_TIME,
        scratch / f"query-{number}",
    )
    greeted = 0
    readers = []
    with selectors.DefaultSelector() as selector:
        selector.register(lobby.listener, selectors.EVENT_READ)
        while greeted < subtasks:
            if time.perf_counter() - start > PATIENCE_S:
                raise TimeoutError(f"{greeted} of {subtasks} workers are up after {PATIENCE_S:.0f} s")
            for key, _ in selector.select(1.0):
                if key.fileobj is lobby.listener:
                    reader = lobby.accept()
                    readers.append(reader)
                    selector.register(reader.socket, selectors.EVENT_READ, reader)
                else:
                    greeted += len(lobby.take_hellos(key.data))
    elapsed = (time.perf_counter() - start) * 1e3
    query.stop()
    for reader in readers:
        reader.socket.close()
    return elapsed
