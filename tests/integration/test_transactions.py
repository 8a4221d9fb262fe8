"""Transactions on a real Kafka: none is open while user code runs, errors name one that is too old, and a successor
does not wait for librdkafka's timer."""

from __future__ import annotations

import threading
import time

import pytest
from kafka_topics import Topics

from tailrace import Formats, KafkaSink, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.graph.physical_plan import topics
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.common.protocol import OpenTask, OpenTasks, TaskFinished, TaskNotice
from tailrace.pipelines.runtime.stream_task.loop.mailbox import Mailbox
from tailrace.pipelines.runtime.stream_task.loop.task_group import TaskGroup
from tailrace.pipelines.runtime.stream_task.output.kafka_transaction import KafkaTransaction

from ..fault_injection.result_topics import make_exactly

TIMEOUT_MS = 1_000
SLOW_S = 4.0
"""Longer than the timeout, and than the broker takes to look for transactions that are over it."""
LIBRDKAFKA_WAITS_S = 0.5
"""The time after which librdkafka repeats a request for a producer id."""


def test_function_slower_than_transaction_timeout_is_supported(kafka: EmbeddedKafka, cluster_id: str) -> None:
    """A sink before the function already has a message. Readers of the sink's topic are not blocked."""
    servers = kafka.bootstrap_servers
    names = Topics(servers)
    copies = names.new()
    env = StreamExecutionEnvironment().set_parallelism(1)
    numbers = env.from_collection(["1"], str)
    numbers.sink_to(KafkaSink(copies, Formats.text()))
    numbers.map(lambda value: time.sleep(SLOW_S) or value, str).sink_to(KafkaSink(copies, Formats.text()))
    graph = env.get_job_graph("slow")
    (vertex,) = graph.vertices
    make_exactly(servers, dict(topics(cluster_id, "job", graph)))
    opened = OpenTask(vertex.vertex_id, SubtaskDeployment("attempt", 0, 0))
    notices: list[TaskNotice] = []
    task = TaskGroup(
        OpenTasks(cluster_id, "job", graph, (opened,), KafkaConnection(servers)),
        Mailbox(),
        lambda _, notice: notices.append(notice),
        transaction_timeout_ms=TIMEOUT_MS,
    )
    running = threading.Thread(target=task.invoke)
    running.start()
    names.write(copies, [b"of somebody else"])
    assert names.read(copies, 1) == [b"of somebody else"]
    assert running.is_alive()
    running.join()
    assert notices[-1] == TaskFinished()
    assert names.read(copies, 3) == [b"of somebody else", b"1", b"1"]


def test_error_says_whether_transaction_was_too_old_or_fenced(kafka: EmbeddedKafka, cluster_id: str) -> None:
    names = Topics(kafka.bootstrap_servers)
    topic = names.new()
    arguments = kafka.connection, cluster_id
    old = KafkaTransaction(*arguments, timeout_ms=TIMEOUT_MS)
    old.open(topic)
    old.send(topic, b"never committed")
    assert old._producer.flush(30) == 0
    names.write(topic, [b"of somebody else"])
    assert names.read(topic, 1) == [b"of somebody else"]  # Kafka has aborted the transaction
    with pytest.raises(
        TaskError, match=r"the transaction was open for \d+ s, and Kafka aborts one after 1 s"
    ):
        old.commit()
    old.abort()
    fenced = KafkaTransaction(*arguments)
    fenced.open(topic)
    fenced.send(topic, b"never committed")
    KafkaTransaction(*arguments).open(topic)
    with pytest.raises(TaskError, match="was fenced: a newer attempt of this subtask has started"):
        fenced.commit()
    fenced.abort()


def test_successor_opens_at_once_while_transaction_is_open(kafka: EmbeddedKafka, cluster_id: str) -> None:
    topic = Topics(kafka.bootstrap_servers).new()
    durations_s = []
    for number in range(5):
        attempts = [KafkaTransaction(kafka.connection, f"{cluster_id}-{number}") for _ in range(2)]
        attempts[0].open(topic)
        attempts[0].send(topic, b"never committed")
        assert attempts[0]._producer.flush(30) == 0
        begin = time.monotonic()
        attempts[1].open(topic)
        durations_s.append(time.monotonic() - begin)
        attempts[0].abort()
        attempts[1].send(topic, b"of the successor")
        attempts[1].commit()
    assert min(durations_s) < LIBRDKAFKA_WAITS_S
    assert Topics(kafka.bootstrap_servers).read(topic, 5) == [b"of the successor"] * 5
