"""Protobuf: messages survive the round trip as objects, dicts and dataclasses; Confluent's clients read and write the
same values; what does not fit is named."""

from __future__ import annotations

import base64
import importlib.util
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from protobuf_messages import orders
from registry_server import RegistryServer

from tailrace.pipelines.graph.protobuf_classes import load, name_of
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.formats import ValueFormat, create_reader, create_writer, read_valid
from tailrace.pipelines.runtime.formats.format import FormatKind, MessagePart, SubjectStrategy
from tailrace.pipelines.runtime.formats.protobuf_schema import read_indexes, write_indexes
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import PICKLED, RecordType

Order = orders().Order
ORDER, LINE, UNRELATED = "shop_orders_pb2:Order", "shop_orders_pb2:Order.Line", "shop_orders_pb2:Unrelated"


class Line(NamedTuple):
    item: str
    pieces: int


@dataclass(frozen=True)
class Sold:
    """Some fields of an Order; the others are ignored."""

    user: str
    number: int
    note: str | None
    color: str
    lines: list[Line] = field(default_factory=list)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
lines = st.builds(orders().Order.Line, item=texts, pieces=st.integers(0, 2**32 - 1))
prices = st.fixed_dictionaries({"units": st.integers(-(2**63), 2**63 - 1), "currency": texts})
messages = st.builds(
    Order,
    user=texts,
    number=st.integers(-(2**63), 2**63 - 1),
    note=st.none() | texts,
    lines=st.lists(lines, max_size=2),
    prices=st.dictionaries(texts, prices, max_size=2),
    color=st.integers(0, 2),  # an enum of proto3 is open: 2 has no name
    picture=st.binary(max_size=8),
    discount=st.floats(allow_nan=False),
    card=st.none() | texts,
    ordered_at=st.none() | st.builds(timestamp_pb2.Timestamp, seconds=st.integers(0, 2**33)),
) | st.builds(Order, cash=st.booleans())


def protobuf(message: str | None = ORDER, registry: str | None = None, **others: Any) -> ValueFormat:
    return ValueFormat(FormatKind.PROTOBUF, message=message, registry=registry, **others)


def read(of: ValueFormat, hint: Any, values: list[bytes]) -> tuple[list[Any], list[str]]:
    record_type = RecordType.of(hint) if hint is not None else PICKLED
    times = pa.array(range(len(values)), pa.int64())
    batch, bad = read_valid(create_reader(of, record_type), times, pa.array(values, pa.binary()))
    return batch.values, [each.why for each in bad]


def write(
    of: ValueFormat, hint: Any, records: list[Any], part: MessagePart = MessagePart.VALUE
) -> list[bytes]:
    record_type = RecordType.of(hint) if hint is not None else PICKLED
    return create_writer(of, record_type, "orders", part).write(Batch([0] * len(records), records))


@given(st.lists(messages, max_size=3), st.sampled_from([None, "mock://protobuf"]))
def test_message_survives_round_trip_as_object_and_as_dict(records: list[Any], registry: str | None) -> None:
    of = protobuf(registry=registry)
    values = write(of, None, records)
    assert read(of, None, values) == (records, [])
    if registry is not None:
        dicts, bad = read(protobuf(None, registry), None, values)
        assert bad == []
        assert read(of, None, write(of, None, dicts)) == (records, [])
    assert pickle.loads(pickle.dumps(records)) == records


@given(
    st.builds(
        Sold, texts, st.integers(-(2**63), 2**63 - 1), st.none() | texts, st.sampled_from(["RED", "BLUE"])
    )
)
def test_dataclass_survives_round_trip(record: Sold) -> None:
    for of in (protobuf(), protobuf(registry="mock://dataclasses")):
        assert read(of, Sold, write(of, Sold, [record])) == ([record], [])


def test_dict_has_values_of_python() -> None:
    message = Order(
        user="a",
        lines=[Order.Line(item="x", pieces=2)],
        prices={"x": orders().shop__money__pb2.Money(units=3)},
        color="BLUE",
        cash=False,
        ordered_at=timestamp_pb2.Timestamp(seconds=7),
    )
    (found,), _ = read(
        protobuf(None, "mock://dict"), None, write(protobuf(registry="mock://dict"), None, [message])
    )
    assert found == {
        "user": "a",
        "number": 0,
        "note": None,
        "lines": [{"item": "x", "pieces": 2}],
        "prices": {"x": {"units": 3, "currency": ""}},
        "color": "BLUE",
        "picture": b"",
        "discount": 0.0,
        "card": None,
        "cash": False,
        "ordered_at": {"seconds": 7, "nanos": 0},
    }
    (sold,), _ = read(protobuf(), Sold, [message.SerializeToString()])
    assert sold == Sold("a", 0, None, "BLUE", [Line("x", 2)])


@given(st.lists(st.integers(0, 2**30), min_size=1, max_size=4))
def test_message_indexes_survive_round_trip(indexes: list[int]) -> None:
    written = write_indexes(tuple(indexes))
    assert read_indexes(b"head" + written + b"rest", 4) == (tuple(indexes), 4 + len(written))


@settings(max_examples=5)  # each starts a registry
@given(messages)
def test_clients_of_confluent_read_and_write_same_values(message: Any) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    with RegistryServer() as registry:
        client = SchemaRegistryClient.new_client({"url": registry.url})
        (value,) = write(protobuf(registry=registry.url), None, [message])
        assert ProtobufDeserializer(Order, {}, client)(value, context) == message
        for record in (message, Order.Line(item="x"), orders().Unrelated(number=1)):
            theirs = ProtobufSerializer(type(record), client)(record, context)
            of = protobuf(name_of(type(record)), registry.url)
            assert read(of, None, [theirs]) == ([record], [])
            assert write(of, None, [record])[0][:8] == theirs[:8]
        assert set(registry.subjects) == {"orders-value", "shop_money.proto"}


@given(st.lists(st.binary(max_size=20), max_size=8), st.booleans(), st.sampled_from([None, Sold]))
def test_any_bytes_are_read_or_named(values: list[bytes], has_registry: bool, hint: Any) -> None:
    of = protobuf(registry="mock://any" if has_registry else None)
    if has_registry:
        (good,) = write(of, None, [Order()])
        values = [good[:5] + value for value in values]
    records, bad = read(of, hint, values)
    assert len(records) + len(bad) == len(values)


def _register_text(registry: RegistryServer) -> None:
    registry.register("text", {"schema": '"string"', "schemaType": "AVRO"})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it begins with nothing, not with 00 and a schema id"),
        (b"\1\0\0\0\1", "it begins with 01 00 00 00 01, not with 00 and a schema id"),
        (b"\0\0\0\0\2", "it ends within its message indexes, after 5 bytes"),
        (b"\0\0\0\0\2\x80", "it ends within its message indexes, after 6 bytes"),
        (b"\0\0\0\0\2\1", "it names a message by -1 indexes"),
        (b"\0\0\0\0\2\2\x0e", "its message indexes are [7], which its schema does not have"),
        (b"\0\0\0\0\2\0", "it is a shop.Unrelated, not a shop.Order"),
        (b"\0\0\0\0\2\2\2\x0a", "Error parsing message with type 'shop.Order'"),
        (b"\0\0\0\0\3\0", "its schema is not Protobuf"),
        (b"\0\0\0\0\x63\0", "has no schema 99"),
    ],
)
def test_value_that_does_not_fit_is_named(value: bytes, why: str) -> None:
    with RegistryServer() as registry:
        write(
            protobuf(registry=registry.url), None, [Order()]
        )  # shop_money.proto is 1, shop_orders.proto is 2
        _register_text(registry)
        (bad,) = read(protobuf(registry=registry.url), None, [value])[1]
        assert why in bad


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"unknown": 1}, 'has no "unknown" field'),
        ({"number": 2**63}, "Value out of range"),
        ({"color": "GREEN"}, 'unknown enum label "GREEN"'),
        ("text", "a str has no fields with names"),
    ],
)
def test_record_that_does_not_fit_is_refused(record: Any, why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=why):
        write(protobuf(), None, [record])


@pytest.mark.parametrize(
    ("strategy", "part", "subject"),
    [
        (SubjectStrategy.TOPIC, MessagePart.VALUE, "orders-value"),
        (SubjectStrategy.TOPIC, MessagePart.KEY, "orders-key"),
        (SubjectStrategy.RECORD, MessagePart.VALUE, "shop.Order"),
        (SubjectStrategy.TOPIC_RECORD, MessagePart.KEY, "orders-shop.Order"),
    ],
)
def test_subject_follows_strategy(strategy: SubjectStrategy, part: MessagePart, subject: str) -> None:
    with RegistryServer() as registry:
        write(protobuf(registry=registry.url, subject=strategy), None, [Order()], part)
        assert list(registry.subjects) == ["shop_money.proto", subject]
        (reference,) = registry.schemas[1]["references"]
        assert reference == {"name": "shop_money.proto", "subject": "shop_money.proto", "version": 1}


def test_schema_of_sink_must_be_there_if_it_does_not_register() -> None:
    with RegistryServer() as registry:
        of = protobuf(registry=registry.url, register=False)
        with pytest.raises(TaskError, match=r"has no such schema under shop_money\.proto: register it"):
            write(of, None, [Order()])
        registered = write(protobuf(registry=registry.url), None, [Order(user="a")])
        assert write(of, None, [Order(user="a")]) == registered


def test_schemas_are_read_from_cache_when_registry_is_gone(tmp_path: Path) -> None:
    with RegistryServer() as registry:
        of = protobuf(None, registry.url)
        values = write(protobuf(registry=registry.url), None, [Order(user="a")])
        times, column = pa.array([0], pa.int64()), pa.array(values, pa.binary())
        create_reader(of, PICKLED, tmp_path).read(times, column)
    (found,) = create_reader(of, PICKLED, tmp_path).read(times, column).values
    assert found["user"] == "a"


def test_registry_with_login_takes_secret_from_file(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("me:hidden\n")
    properties = {"basic.auth.user.info-file": str(tmp_path / "user")}
    with RegistryServer(f"Basic {base64.b64encode(b'me:hidden').decode()}") as registry:
        of = protobuf(registry=registry.url, registry_properties=properties)
        assert read(of, None, write(of, None, [Order(user="a")])) == ([Order(user="a")], [])
        with pytest.raises(TaskError, match="does not let this user write or read"):
            write(protobuf(registry=registry.url), None, [Order()])


def test_missing_class_is_one_line() -> None:
    for name, why in {
        "nowhere_pb2:Order": "the Protobuf module nowhere_pb2 cannot be imported: ModuleNotFoundError",
        "shop_orders_pb2:Nothing": "the module shop_orders_pb2 has no Protobuf message class Nothing",
        "os:system": "the module os has no Protobuf message class system",
    }.items():
        with pytest.raises(TaskError, match=why) as caught:
            create_reader(protobuf(name), PICKLED)
        assert "\n" not in str(caught.value)
    assert load(LINE) is Order.Line
    assert load(UNRELATED) is orders().Unrelated


def test_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "google.protobuf" else found(name)
    )
    with pytest.raises(
        TaskError, match=r"the package protobuf is not installed: pip install 'tailrace\[protobuf\]'"
    ):
        create_reader(protobuf(), PICKLED)
