"""Topics in, topics out, on real Kafka and real Spark: every record once, wherever a job starts, ends or is killed."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import protobuf_messages
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafka_topics import Topics
from polling import wait_until
from registry_server import RegistryServer
from runtime_jobs import Job

from tailrace import StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.api import (
    Formats,
    KafkaRecord,
    KafkaSink,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    StartingOffsets,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.runtime.spark.session import REAL_TIME_ROWS
from tailrace.pipelines.runtime.task_runtime.end_offsets import EndOffsets
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph
from tailrace.services.client.source_offsets import read_source_offsets

pytestmark = pytest.mark.timeout(300)


class Reading(NamedTuple):
    """A record whose schema is derived from the class."""

    sensor: str
    degrees: float


class Ordered(NamedTuple):
    """Some fields of a Protobuf message."""

    user: str
    number: int


@pytest.fixture
def on_kafka(kafka: EmbeddedKafka) -> Topics:
    return Topics(kafka.bootstrap_servers)


Start = Callable[[JobGraph], Job]


def copying(source: KafkaSource, sink: KafkaSink, parallelism: int = 1) -> JobGraph:
    """Copies a topic to a topic with a function that runs in Spark's workers."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    env.from_source(source).map(lambda value: value, output_type=source.output_type or str).sink_to(sink)
    return env.get_job_graph("copy")


def texts(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def run_to_its_end(job: Job) -> list[str]:
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.FINISHED)
    return attempts


def test_avro_records_are_copied_with_derived_schemas(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(2), on_kafka.new()
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "Reading",
            "fields": [{"name": "sensor", "type": "string"}, {"name": "degrees", "type": "double"}],
        }
    )

    def encode(datum: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, datum)
        return stream.getvalue()

    sent = [{"sensor": f"s{i}", "degrees": i / 2} for i in range(500)]
    on_kafka.write(source, [encode(row) for row in sent[::2]], 0)
    on_kafka.write(source, [encode(entry) for entry in sent[1::2]], 1)
    env = StreamExecutionEnvironment()
    readings = env.from_source(
        KafkaSource(source, Formats.avro(framing="none"), bounded=True, output_type=Reading)
    )
    warmer = readings.map(lambda r: Reading(r.sensor, r.degrees + 1), output_type=Reading)
    warmer.sink_to(KafkaSink(sink, Formats.avro(), key="sensor"))
    run_to_its_end(start(env.get_job_graph("warmer")))
    results = on_kafka.read(sink, len(sent))
    assert all(value.startswith(b"\xc3\x01") for value in results)
    read = [fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None) for value in results]
    expected = [{"sensor": item["sensor"], "degrees": item["degrees"] + 1} for item in sent]
    assert sorted(read, key=str) == sorted(expected, key=str)


def test_protobuf_messages_of_shipped_module_are_copied_by_registry(
    start: Start, on_kafka: Topics, tmp_path: Path
) -> None:
    source, sink, strings = on_kafka.new(2), on_kafka.new(), on_kafka.new()
    module = protobuf_messages.orders()
    with RegistryServer() as registry:
        form = Formats.protobuf(module.Order, registry.url)
        client = SchemaRegistryClient.new_client({"url": registry.url})
        context = SerializationContext(source, MessageField.VALUE)
        serialize = ProtobufSerializer(module.Order, client)
        sent = [module.Order(user=f"u{i}", number=i, card="c" if i % 2 else None) for i in range(200)]
        values = [serialize(order, context) for order in sent]
        other = ProtobufSerializer(module.Unrelated, client)(module.Unrelated(number=1), context)
        on_kafka.write(source, [*values[::2], other, b"\0"], 0)
        on_kafka.write(source, values[1::2], 1)
        env = StreamExecutionEnvironment()
        for file in protobuf_messages.generate(tmp_path):
            env.add_python_file(str(file))
        orders = env.from_source(KafkaSource(source, form, bounded=True, on_bad_record="skip"))
        paid = orders.map(lambda order: type(order)(user=order.user, number=order.number, cash=True))
        paid.key_by(lambda order: order.user).sink_to(KafkaSink(sink, form))
        by_schema = KafkaSource(
            source,
            Formats.protobuf(registry=registry.url),
            bounded=True,
            output_type=Ordered,
            on_bad_record="skip",
        )
        env.from_source(by_schema).map(lambda order: order.user, output_type=str).sink_to(
            KafkaSink(strings, Formats.text())
        )
        run_to_its_end(start(env.get_job_graph("orders")))
        deserialize = ProtobufDeserializer(module.Order, {}, client)
        found = [deserialize(value, context) for value in on_kafka.read(sink, len(sent))]
        expected = [module.Order(user=order.user, number=order.number, cash=True) for order in sent]
        assert sorted(found, key=lambda order: order.number) == expected
        assert sorted(on_kafka.read(strings, len(sent))) == sorted(order.user.encode() for order in sent)


@pytest.mark.parametrize("bounded", [True, False], ids=["bulk", "real time"])
def test_whole_messages_are_copied(start: Start, on_kafka: Topics, bounded: bool) -> None:
    source, sink = on_kafka.new(), on_kafka.new(3)
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"a", b"1", [("n", b"x"), ("n", None)]),
        (None, b"2", []),
        (b"b", None, [("t", b"")]),
        (b"", b"", []),
    ]
    for key, value, headers in sent:
        on_kafka.write_message(source, value, key, headers)
    of = KafkaRecord[str | None, str | None]

    def mark(record: KafkaRecord[str | None, str | None]) -> KafkaRecord[str | None, str | None]:
        place = f"{record.topic}/{record.partition}/{record.offset}".encode()
        return KafkaRecord(record.key, record.value, [*record.headers, ("from", place)])

    env = StreamExecutionEnvironment()
    records = env.from_source(KafkaSource(source, bounded=bounded, output_type=of))
    marked = records.map(mark, output_type=of)
    marked.sink_to(KafkaSink(sink, Formats.text(), partitioner=lambda r, n: int(r.headers[-1][1][-1:]) % n))
    job = start(env.get_job_graph("records"))
    job.deploy_all()
    copies = sorted(on_kafka.read_messages(sink, len(sent)), key=lambda message: message.timestamp()[1])
    found = sorted(
        ((m.headers() or [])[-1][1], m.key(), m.value(), (m.headers() or [])[:-1], m.partition())
        for m in copies
    )
    assert found == [
        (f"{source}/0/{offset}".encode(), key, value, headers, offset % 3)
        for offset, (key, value, headers) in enumerate(sent)
    ]


def test_bounded_source_ends_at_end_of_topic_at_its_start(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    on_kafka.write_transaction(source, texts(3), commit=True)
    on_kafka.write_transaction(source, texts(5, 3), commit=False)
    on_kafka.write(source, [b"3", None])
    on_kafka.write_transaction(source, texts(1, 8), commit=False)
    # Behind the last record lie control records and what was aborted: the end is a position, not a record.
    group = f"group-{uuid.uuid4().hex[:8]}"
    reading = KafkaSource(source, bounded=True, group_id=group, on_tombstone="skip")
    job = start(copying(reading, KafkaSink(sink, Formats.text())))
    (attempt,) = run_to_its_end(job)
    assert job.reports.accumulators_of(attempt)["numTombstones"] == 1
    assert on_kafka.read(sink, 4, beyond_s=0.5) == [b"0", b"1", b"2", b"3"]
    settled = on_kafka.committed(group, source)
    on_kafka.write(source, texts(10, 100))
    job.reports.wait(job.deploy(0, [0], 1), ExecutionState.FINISHED)
    assert on_kafka.read(sink, 4, beyond_s=0.5) == [b"0", b"1", b"2", b"3"], (
        "a later attempt has the same end"
    )
    assert on_kafka.committed(group, source) == settled


def test_empty_topic_and_more_subtasks_than_partitions_end_at_once(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    run_to_its_end(start(copying(KafkaSource(source, bounded=True), KafkaSink(sink, Formats.text()), 2)))
    assert on_kafka.read(sink, 0, beyond_s=0.2) == []


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        (StartingOffsets.earliest(), 0),
        (StartingOffsets.committed(), 4),
        (StartingOffsets.timestamp(1_006_000), 6),
        (StartingOffsets.latest(), 10),
    ],
)
def test_job_starts_at_configured_position(
    start: Start, on_kafka: Topics, starting: StartingOffsets, first: int
) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    group = f"group-{uuid.uuid4().hex[:8]}"
    on_kafka.write(source, list(texts(10)), timestamps=[1_000_000 + 1000 * i for i in range(10)])
    on_kafka.commit(group, source, 4)
    job = start(
        copying(KafkaSource(source, starting=starting, group_id=group), KafkaSink(sink, Formats.text()))
    )
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    on_kafka.write(source, texts(5, 10))
    assert on_kafka.read(sink, 15 - first, beyond_s=0.3) == texts(15 - first, first)
    wait_until(lambda: on_kafka.committed(group, source) == 15)


def test_backlog_and_live_records_are_exact_with_killed_stream_task(
    start: Start, on_kafka: Topics, runtime: TaskRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source, sink = on_kafka.new(3), on_kafka.new()
    backlog = 50_000
    for partition in range(3):
        on_kafka.write(source, texts(backlog, partition * backlog), partition)
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    numbers = env.from_source(KafkaSource(source)).map(int, output_type=int)
    numbers.map(lambda n: f"{n}", output_type=str).sink_to(KafkaSink(sink, Formats.text()))
    job = start(env.get_job_graph("catch up"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    assert job.accumulated("numRecordsIn", attempts, 1000) >= 1000
    os.kill(runtime.process_ids()[attempts[1]], signal.SIGKILL)
    job.reports.wait([attempts[1]], ExecutionState.FAILED)
    again = job.deploy(0, [1], 1)
    job.reports.wait(again, ExecutionState.RUNNING)
    stop = threading.Event()
    live: list[bytes] = []

    def write() -> None:
        while not stop.wait(0.02):
            values = texts(10, 3 * backlog + len(live))
            live.extend(values)
            on_kafka.write(source, list(values), partition=len(live) // 10 % 3)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        on_kafka.read(sink, 3 * backlog + 500)
        wait_until(lambda: "continues in real-time mode" in caplog.text)
        os.kill(runtime.process_ids()[again[0]], signal.SIGKILL)
        job.reports.wait(again, ExecutionState.FAILED)
        job.reports.wait(job.deploy(0, [1], 2), ExecutionState.RUNNING)
        on_kafka.read(sink, 3 * backlog + len(live) + 100)
    finally:
        stop.set()
        writer.join()
    assert "continues in real-time mode" in caplog.text
    expected = 3 * backlog + len(live)
    results = on_kafka.read(sink, expected, beyond_s=1.0)
    assert len(results) == expected
    assert sorted(map(int, results)) == list(range(expected))


def test_records_that_spark_drops_change_no_result_and_positions_pass_them(
    start: Start, on_kafka: Topics, runtime: TaskRuntime
) -> None:
    source, sink, group = on_kafka.new(2), on_kafka.new(), f"group-{uuid.uuid4().hex[:8]}"
    backlog = 20_000

    def readings(count: int, begin: int) -> list[bytes | None]:
        return [
            json.dumps({"sensor": f"s{i}", "degrees": i % 100}).encode() for i in range(begin, begin + count)
        ]

    for partition in range(2):
        on_kafka.write(source, readings(backlog, partition * backlog), partition)
    env = StreamExecutionEnvironment()
    found = env.from_source(KafkaSource(source, Formats.json(), output_type=Reading, group_id=group))
    hot = found.with_column("half", "degrees / 2").where("half > 49").select("sensor, half")
    hot.map(lambda row: row.sensor, str).sink_to(KafkaSink(sink, Formats.text()))
    job = start(env.get_job_graph("hot"))
    (attempt,) = job.deploy_all()
    job.reports.wait([attempt], ExecutionState.RUNNING)
    on_kafka.read(sink, 2 * backlog // 100)
    os.kill(runtime.process_ids()[attempt], signal.SIGKILL)
    job.reports.wait([attempt], ExecutionState.FAILED)
    (again,) = job.deploy(0, [0], 1)
    job.reports.wait([again], ExecutionState.RUNNING)
    for step in range(40):
        on_kafka.write(source, readings(50, 2 * backlog + 50 * step), step % 2)
    total = 2 * backlog + 2000
    results = on_kafka.read(sink, total // 100, beyond_s=1.0)
    assert sorted(results) == sorted(b"s%d" % i for i in range(total) if i % 100 == 99)
    least = total // 2 - REAL_TIME_ROWS
    wait_until(lambda: all(on_kafka.committed(group, source, p) >= least for p in range(2)))


def test_no_record_is_late_in_partition_that_is_read_behind_another(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(2), on_kafka.new()
    for partition, count in enumerate((30_000, 3_000)):
        on_kafka.write(source, [b"%d" % (n * 30_000 // count) for n in range(count)], partition)
    env = StreamExecutionEnvironment()
    in_order: WatermarkStrategy[str] = WatermarkStrategy.for_monotonous_timestamps()
    lines = env.from_source(KafkaSource(source, bounded=True), in_order.with_timestamp_assigner(int))
    ones = lines.filter(bool).map(lambda line: (0, 1), output_type=tuple[int, int])
    counts = ones.key_by(0).window(TumblingEventTimeWindows.of(seconds=1)).sum(1)
    counts.map(lambda pair: f"{pair[1]}", output_type=str).sink_to(KafkaSink(sink, Formats.text()))
    run_to_its_end(start(env.get_job_graph("windows")))
    assert on_kafka.read(sink, 30, beyond_s=0.2) == [b"1100"] * 30


def test_client_that_knew_topic_before_finds_added_partition(kafka: EmbeddedKafka, on_kafka: Topics) -> None:
    """A restarted task waits for the lag of its source: no old client may keep it waiting for a minute."""
    topic = on_kafka.new(1)
    on_kafka.write(topic, list(texts(1)))
    ends = EndOffsets(KafkaConnection(kafka.bootstrap_servers))
    assert ends.read([(topic, 0)]) == {(topic, 0): 1}
    on_kafka.add_partitions(topic, 2)
    on_kafka.write(topic, list(texts(1)), 1)
    with contextlib.suppress(KafkaException):
        ends.read([(topic, 1)])
    assert ends.read([(topic, 1)]) == {(topic, 1): 1}


def test_added_partitions_and_topics_of_pattern_are_read_while_job_runs(
    start: Start, on_kafka: Topics
) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:8]}"
    first, sink = on_kafka.new(1, prefix), on_kafka.new()
    on_kafka.write(first, list(texts(3)))
    reading = KafkaSource(re.compile(f"{prefix}-.*"), discovery_interval=timedelta(milliseconds=200))
    job = start(copying(reading, KafkaSink(sink, Formats.text()), parallelism=2))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)
    assert sorted(on_kafka.read(sink, 3)) == texts(3)
    on_kafka.add_partitions(first, 3)
    for partition in range(3):
        on_kafka.write(first, list(texts(2, 3 + 2 * partition)), partition)
    assert sorted(map(int, on_kafka.read(sink, 9))) == list(range(9))
    second = on_kafka.new(2, prefix)
    on_kafka.write(second, list(texts(2, 9)), 0)
    on_kafka.write(second, list(texts(2, 11)), 1)
    on_kafka.write(first, list(texts(1, 13)))
    assert sorted(map(int, on_kafka.read(sink, 14))) == list(range(14))
    job.reports.wait(job.deploy(0, [1], 1), ExecutionState.RUNNING)
    on_kafka.write(second, list(texts(1, 14)), 0)
    on_kafka.write(first, list(texts(1, 15)), 2)
    results = on_kafka.read(sink, 16, beyond_s=0.5)
    assert sorted(map(int, results)) == list(range(16))
    kafka = KafkaConnection(job.servers)

    def shown() -> list[tuple[str, int, int, int]]:
        offsets = read_source_offsets(kafka, job.cluster, job.id, job.graph)
        return [(each.topic, each.partition, each.position, each.lag) for each in offsets]

    expected = [(first, 0, 6, 0), (first, 1, 2, 0), (first, 2, 3, 0), (second, 0, 3, 0), (second, 1, 2, 0)]
    wait_until(lambda: sorted(shown()) == sorted(expected), "the copies of the positions")


def test_records_cross_two_clusters_exactly_with_killed_stream_tasks(
    start: Start, on_kafka: Topics, other_kafka: EmbeddedKafka, runtime: TaskRuntime
) -> None:
    """One job reads from the other cluster, one writes to it, and their StreamTasks are killed in between."""
    there = Topics(other_kafka.bootstrap_servers)
    source, between, back = there.new(2), on_kafka.new(2), there.new()
    servers = other_kafka.bootstrap_servers
    group = f"group-{uuid.uuid4().hex[:8]}"
    count = 4_000
    reads = KafkaSource(source, group_id=group, bootstrap_servers=servers, properties={"client.id": "reader"})
    writes = KafkaSink(back, Formats.text(), bootstrap_servers=servers)
    jobs = [
        start(copying(reads, KafkaSink(between, Formats.text()))),
        start(copying(KafkaSource(between), writes)),
    ]
    attempts = [job.deploy_all()[0] for job in jobs]
    for job, attempt in zip(jobs, attempts, strict=True):
        job.reports.wait([attempt], ExecutionState.RUNNING)
    for kill in range(1, 5):
        part = texts(count // 4, (kill - 1) * count // 4)
        there.write(source, list(part[::2]), 0)
        there.write(source, list(part[1::2]), 1)
        there.read(back, (kill - 1) * count // 4 + count // 40)
        for i, job in enumerate(jobs):
            os.kill(runtime.process_ids()[attempts[i]], signal.SIGKILL)
            job.reports.wait([attempts[i]], ExecutionState.FAILED)
            (attempts[i],) = job.deploy(0, [0], kill)
    results = there.read(back, count, beyond_s=1.0)
    assert sorted(map(int, results)) == list(range(count))
    wait_until(lambda: there.committed(group, source) + there.committed(group, source, 1) == count)


def test_undecodable_message_fails_job_and_is_named(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    on_kafka.write(source, [b'{"a": 1}', b"{", b'{"a": 2}'])
    reading = KafkaSource(source, Formats.json(), output_type=dict)
    job = start(copying(reading, KafkaSink(sink)))
    (attempt,) = job.deploy_all()
    job.reports.wait([attempt], ExecutionState.FAILED)
    failure = job.reports.failure_of(attempt)
    assert failure is not None
    assert failure.startswith(f"the message at offset 1 of {source}, partition 0, cannot be read: ")


def test_undecodable_messages_are_skipped_and_counted_if_configured(start: Start, on_kafka: Topics) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    on_kafka.write(source, [b"{", b'{"a": 1}', b"\xff", b'{"a": 2}'])
    reading = KafkaSource(source, Formats.json(), bounded=True, output_type=dict, on_bad_record="skip")
    job = start(copying(reading, KafkaSink(sink)))
    (attempt,) = run_to_its_end(job)
    assert [json.loads(value) for value in on_kafka.read(sink, 2)] == [{"a": 1}, {"a": 2}]
    assert job.reports.accumulators_of(attempt)["numRecordsInErrors"] == 2


def test_missing_topic_is_named(start: Start, on_kafka: Topics) -> None:
    there = on_kafka.new()
    for source, sink, missing in ((("no-such-topic"), there, "no-such-topic"), (there, "no-sink", "no-sink")):
        job = start(copying(KafkaSource(source), KafkaSink(sink, Formats.text())))
        (attempt,) = job.deploy_all()
        job.reports.wait([attempt], ExecutionState.FAILED)
        failure = job.reports.failure_of(attempt)
        assert failure is not None
        assert repr(missing) in failure
        assert "does not exist" in failure


def test_log_lines_of_functions_name_task_and_error_names_record(
    start: Start, on_kafka: Topics, tmp_path: Path
) -> None:
    source, sink = on_kafka.new(), on_kafka.new()
    on_kafka.write(source, [b"7"])

    def inverse(text: str) -> float:
        logging.getLogger("orders").info("inverts %s", text)
        return 1 / int(text)

    class Noting(KeyedProcessFunction[str, float, str]):
        def process_element(self, value: float, context: KeyedContext[str]) -> list[str]:
            logging.getLogger("orders.keyed").warning("has %.2f", value)
            return [str(value)]

    env = StreamExecutionEnvironment()
    env.configure("logging.directory", str(tmp_path))
    inverses = env.from_source(KafkaSource(source)).map(inverse, float)
    inverses.key_by(str, str).process(Noting(), str).sink_to(KafkaSink(sink, Formats.text()))
    job = start(env.get_job_graph("logs"))
    attempts = job.deploy_all()
    job.reports.wait(attempts, ExecutionState.RUNNING)

    def logged() -> str:
        return "".join(path.read_text() for path in tmp_path.glob("*.log"))

    # What comes with the record that fails is not committed, and reaches no other task.
    wait_until(lambda: "has 0.14" in logged(), "a line of the keyed function")
    on_kafka.write(source, [b"0"])
    job.reports.wait(attempts[:1], ExecutionState.FAILED)
    failure = job.reports.failure_of(attempts[0]) or ""
    assert failure.startswith("ZeroDivisionError: ")
    assert failure.splitlines()[0].endswith(f"at topic {source} [0] offset 1")
    (file,) = tmp_path.glob("*.log")
    lines = file.read_text()
    assert re.search(r" INFO orders \[\S+, [^\]]+ \(1/1\), attempt 1\] inverts 7$", lines, re.MULTILINE)
    assert re.search(
        r" WARNING orders\.keyed \[\S+, [^\]]+ \(1/1\), attempt 1\] has 0\.14$", lines, re.MULTILINE
    )
