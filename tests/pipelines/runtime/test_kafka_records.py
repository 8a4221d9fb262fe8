"""Whole messages as records: what a source reads and a sink writes, and what it says of a message that does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import Formats, KafkaRecord, KafkaSink, KafkaSource, StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.failures import RecordError, describe_failure
from tailrace.pipelines.runtime.formats import ValueFormat, create_message_reader
from tailrace.pipelines.runtime.formats.format import FormatKind
from tailrace.pipelines.testing.memory.cluster import BEGIN_MS, Message, Outcome, run
from tailrace.pipelines.testing.memory.kafka_rows import kafka_rows
from tailrace.pipelines.types import RecordType


@dataclass(frozen=True)
class Order:
    id: int
    item: str


Orders = KafkaRecord[str | None, Order | None]
ORDERS = RecordType.of(Orders)
TEXT, JSON = ValueFormat(FormatKind.TEXT), ValueFormat(FormatKind.JSON)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
headers = st.lists(st.tuples(texts, st.none() | st.binary(max_size=4)), max_size=3)
orders = st.builds(Order, st.integers(-(2**63), 2**63 - 1), texts)


def as_message(key: str | None, order: Order | None, own: list[tuple[str, bytes | None]]) -> Message:
    value: Any = None if order is None else json.dumps({"id": order.id, "item": order.item}).encode()
    return Message(value, None if key is None else key.encode(), BEGIN_MS, tuple(own))


messages = st.builds(as_message, st.none() | texts, st.none() | orders, headers)


def copied(source: KafkaSource, topic: Sequence[Message]) -> Outcome:
    env = StreamExecutionEnvironment()
    env.from_source(source).sink_to(KafkaSink("copies"))
    return run(env.get_job_graph("copy"), topics={"orders": [list(topic)]})


@settings(deadline=None)
@given(st.lists(messages, max_size=6))
def test_messages_are_copied_with_all_their_parts(topic: list[Message]) -> None:
    source = KafkaSource("orders", Formats.json(), bounded=True, output_type=Orders)
    outcome = copied(source, topic)
    copies = [
        (m.key, None if m.value is None else json.loads(m.value), m.headers, m.timestamp_ms)
        for m in outcome.messages("copies")
    ]
    assert copies == [
        (m.key, None if m.value is None else json.loads(m.value), m.headers, m.timestamp_ms) for m in topic
    ]


@given(st.lists(messages, min_size=1, max_size=6), st.integers(0, 9))
def test_record_has_its_place(topic: list[Message], first: int) -> None:
    reader = create_message_reader(JSON, TEXT, ORDERS)
    batch, bad = reader.read(kafka_rows(topic, first), "orders", 3)
    assert bad == []
    for offset, (record, message) in enumerate(zip(batch.values, topic, strict=True), first):
        assert (record.topic, record.partition, record.offset) == ("orders", 3, offset)
        assert record.timestamp_ms == message.timestamp_ms
        assert record.headers == list(message.headers)
        assert record.key == (None if message.key is None else message.key.decode())
    assert ORDERS.from_columns(batch.columns(ORDERS)) == batch.values


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.binary(max_size=12)), max_size=8),
    st.sampled_from([FormatKind.TEXT, FormatKind.JSON, FormatKind.RAW]),
)
def test_any_bytes_are_read_or_named(
    parts: list[tuple[bytes | None, bytes | None]], kind: FormatKind
) -> None:
    """A message is a record of the declared type or is named with the part that cannot be read; its neighbours do not
    matter."""
    raw = kind is FormatKind.RAW
    of = RecordType.of(KafkaRecord[bytes, Order] if raw else KafkaRecord[str, Order])
    reader = create_message_reader(JSON, ValueFormat(kind), of)
    rows = kafka_rows([Message(value, key) for key, value in parts])  # type: ignore[arg-type]
    batch, bad = reader.read(rows, "t", 0)
    assert len(batch) + len(bad) == len(parts)
    for unreadable in bad:
        assert "its key: " in unreadable.why or "its value: " in unreadable.why
        alone, again = reader.read(rows.slice(unreadable.index, 1), "t", 0)
        assert not len(alone)
        assert [each.why for each in again] == [unreadable.why]
    of.to_columns(batch.values)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(b'{"id": 1, "item": "a"}', b"\xff"), "its key: "),
        (
            Message(b'{"id": 1, "item": 2}', b"k"),
            "its value: Expected `str`, got `int` - at `$.item`",
        ),
        (
            Message(b'{"id": 1, "item": "a"}', None),
            "its key: there is none, and its type str does",
        ),
    ],
)
def test_unreadable_part_is_named_with_its_field(message: Message, why: str) -> None:
    reader = create_message_reader(JSON, TEXT, RecordType.of(KafkaRecord[str, Order]))
    _, (bad,) = reader.read(kafka_rows([message]), "orders", 0)
    assert why in bad.why


def test_unreadable_messages_are_skipped_if_configured() -> None:
    topic = [as_message("k", Order(1, "a"), []), Message(b"{", b"k"), as_message("k", Order(2, "b"), [])]
    source = KafkaSource("orders", Formats.json(), bounded=True, output_type=Orders, on_bad_record="skip")
    assert [m.value for m in copied(source, topic).messages("copies")] == [
        b'{"id":1,"item":"a"}',
        b'{"id":2,"item":"b"}',
    ]


def test_functions_choose_topic_partition_headers_and_time() -> None:
    env = StreamExecutionEnvironment()
    numbers = env.from_collection([(n, f"n{n}") for n in range(6)], tuple[int, str])
    numbers.sink_to(
        KafkaSink(
            lambda pair: "even" if pair[0] % 2 == 0 else "odd",
            key="f0",
            key_format=Formats.json(),
            headers=lambda pair: {"name": pair[1], "none": None},
            partitioner=lambda pair, partitions: pair[0] % partitions,
            timestamp_ms=lambda pair: BEGIN_MS - pair[0],
        )
    )
    outcome = run(env.get_job_graph("split"))
    assert outcome.messages("even") == [
        Message(f'[{n},"n{n}"]'.encode(), b"%d" % n, BEGIN_MS - n, (("name", b"n%d" % n), ("none", None)))
        for n in (0, 2, 4)
    ]
    assert [m.key for m in outcome.messages("odd")] == [b"1", b"3", b"5"]


WRONG: dict[str, tuple[Callable[[], KafkaSink], str]] = {
    "partition": (
        lambda: KafkaSink("t", partitioner=lambda n, partitions: 7),
        "ValueError: the partitioner returned 7, not a partition from 0 to 0",
    ),
    "topic": (lambda: KafkaSink(lambda n: n), "TypeError: the topic of a Kafka message is str, not int"),
    "header": (
        lambda: KafkaSink("t", headers=lambda n: {"n": n}),
        "TypeError: a header of a Kafka message is bytes, str or None, not int",
    ),
    "time": (
        lambda: KafkaSink("t", timestamp_ms=lambda n: float(n)),  # type: ignore[arg-type,return-value]
        "TypeError: the timestamp of a Kafka message is int, in milliseconds, not float",
    ),
    "undeclared record": (
        lambda: KafkaSink("t"),
        "it is a KafkaRecord, and the step before does not declare it: output_type=KafkaRecord[K, V]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_result_names_function_and_record(name: str) -> None:
    sink, expected = WRONG[name]
    env = StreamExecutionEnvironment()
    numbers = env.from_collection([1], int)
    stream: Any = numbers
    if name == "undeclared record":
        stream = numbers.map(lambda n: KafkaRecord("k", n))
    stream.sink_to(sink())
    with pytest.raises(RecordError) as caught:
        run(env.get_job_graph("wrong"))
    assert expected in describe_failure(caught.value)
