"""Formats of Kafka values: values survive the round trip, and undecodable ones are detected and named."""

from __future__ import annotations

import enum
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.formats import ValueFormat, create_reader, create_writer, read_valid
from tailrace.pipelines.runtime.formats.avro_schema import derive_schema
from tailrace.pipelines.runtime.formats.format import FormatKind, Framing
from tailrace.pipelines.runtime.formats.schema_registry import RegisteredText, SchemaRegistry
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import PICKLED, RecordType


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass(frozen=True)
class Trip:
    name: str
    points: list[Point]
    comment: str | None = None


TRIPS = st.builds(
    Trip,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
    ),
    st.none() | st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Trip: TRIPS,
    tuple[str, int]: st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-99, 99)),
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    list[bool]: st.lists(st.booleans()),
}
FORMATS = [
    ValueFormat(FormatKind.JSON),
    ValueFormat(FormatKind.AVRO),
    ValueFormat(FormatKind.AVRO, framing=Framing.NONE),
    ValueFormat(FormatKind.AVRO, registry="mock://test-formats"),
]


def batch_of(records: Sequence[Any]) -> Batch:
    return Batch(list(range(len(records))), list(records))


def read(
    of: ValueFormat, record_type: RecordType, values: Sequence[bytes]
) -> tuple[Batch, list[tuple[int, str]]]:
    timestamps = pa.array(range(len(values)), pa.int64())
    batch, bad = read_valid(create_reader(of, record_type), timestamps, pa.array(values, pa.binary()))
    return batch, [(value.index, value.why) for value in bad]


@pytest.mark.parametrize("of", FORMATS, ids=lambda of: f"{of.kind}-{of.framed}")
@pytest.mark.parametrize("hint", VALUES, ids=str)
@given(data=st.data())
def test_declared_records_survive_round_trip(of: ValueFormat, hint: Any, data: st.DataObject) -> None:
    records = data.draw(st.lists(VALUES[hint], max_size=5))
    record_type = RecordType.of(hint)
    values = create_writer(of, record_type, "topic").write(batch_of(records))
    batch, bad = read(of, record_type, values)
    assert bad == []
    assert batch == batch_of(records)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Painted:
    colour: Colour
    more: list[Colour]
    level: Level


@pytest.mark.parametrize("kind", [FormatKind.JSON, FormatKind.AVRO])
def test_enum_members_are_written_as_their_values(kind: FormatKind) -> None:
    colour = {"type": "enum", "name": "Colour", "symbols": ["red"]}
    fields = {"colour": colour, "more": {"type": "array", "items": "Colour"}, "level": "int"}
    schema = {"type": "record", "name": "P", "fields": [{"name": k, "type": v} for k, v in fields.items()]}
    of = ValueFormat(kind, schema=json.dumps(schema) if kind is FormatKind.AVRO else None)
    records = [Painted(Colour.RED, [Colour.RED], Level.HIGH)]
    values = create_writer(of, RecordType.of(Painted), "topic").write(batch_of(records))
    plain = {"colour": "red", "more": ["red"], "level": 3}
    assert read(of, PICKLED, values)[0].values == [plain]
    assert read(of, RecordType.of(Painted), values)[0].values == records


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_text_is_utf8_and_columnar(lines: list[str]) -> None:
    of, text = ValueFormat(FormatKind.TEXT), RecordType.of(str)
    batch, _ = read(of, text, [line.encode() for line in lines])
    assert batch.is_columnar or len(lines) < 2
    assert batch == batch_of(lines)
    assert create_writer(of, text, "topic").write(batch) == [line.encode() for line in lines]


def test_raw_values_are_bytes() -> None:
    of, raw = ValueFormat(FormatKind.RAW), RecordType.of(bytes)
    batch, _ = read(of, raw, [b"\xff", b""])
    assert batch.values == [b"\xff", b""]
    assert create_writer(of, raw, "topic").write(batch) == [b"\xff", b""]
    with pytest.raises(TypeError, match="the raw format writes bytes, not str"):
        create_writer(of, PICKLED, "topic").write(batch_of(["text"]))


@given(
    st.lists(st.sampled_from([b'{"x": 1}', b'{"x":\n2}', b"{", b"", b'{"x": 1} {"x": 2}', b"\xff", b"1\n2"]))
)
def test_bad_values_are_detected_at_any_position_and_others_read(values: list[bytes]) -> None:
    good = {b'{"x": 1}': {"x": 1}, b'{"x":\n2}': {"x": 2}}
    batch, bad = read(ValueFormat(FormatKind.JSON), PICKLED, values)
    assert batch.values == [good[value] for value in values if value in good]
    assert batch.timestamps == [i for i, value in enumerate(values) if value in good]
    assert [index for index, _ in bad] == [i for i, value in enumerate(values) if value not in good]


@pytest.mark.parametrize(
    ("of", "hint", "value", "why"),
    [
        (ValueFormat(FormatKind.TEXT), str, b"\xff", "can't decode byte 0xff"),
        (ValueFormat(FormatKind.JSON), Point, b'{"y": 1}', "missing required field `x`"),
        (ValueFormat(FormatKind.JSON), Point, b'{"x": "1"}', "Expected `int`, got `str`"),
        (ValueFormat(FormatKind.JSON), int, b"9223372036854775808", "<= 9223372036854775807"),
        (ValueFormat(FormatKind.AVRO), Point, b"\xc3\x01tooshort", "not with c3 01"),
        (ValueFormat(FormatKind.AVRO, framing=Framing.NONE), Point, b"\x02", "it ends within a record"),
        (ValueFormat(FormatKind.AVRO, framing=Framing.NONE), Point, bytes(12), "3 bytes follow the record"),
        (
            ValueFormat(FormatKind.AVRO, registry="mock://other"),
            Point,
            b"\x00\x00\x00\x00\x63",
            "has no schema 99",
        ),
        (ValueFormat(FormatKind.AVRO, registry="mock://other"), Point, b"{}", "not with 00 and a schema id"),
    ],
)
def test_error_of_bad_value_has_reason(of: ValueFormat, hint: Any, value: bytes, why: str) -> None:
    _, ((index, report),) = read(of, RecordType.of(hint), [value])
    assert index == 0
    assert why in report


def test_values_of_older_schema_are_resolved_by_registry() -> None:
    url = f"mock://{uuid.uuid4()}"
    older = {"type": "record", "name": "Trip", "fields": [{"name": "name", "type": "string"}]}
    of = ValueFormat(FormatKind.AVRO, schema=json.dumps(older), registry=url)
    values = create_writer(of, PICKLED, "topic").write(batch_of([{"name": "north"}]))
    newer = {**older, "fields": [*older["fields"], {"name": "price", "type": "int", "default": 7}]}  # type: ignore[misc]
    batch, bad = read(ValueFormat(FormatKind.AVRO, schema=json.dumps(newer), registry=url), PICKLED, values)
    assert (batch.values, bad) == ([{"name": "north", "price": 7}], [])
    assert read(ValueFormat(FormatKind.AVRO, registry=url), PICKLED, values)[0].values == [{"name": "north"}]


def test_unavailable_registry_makes_no_value_bad() -> None:
    nobody = ValueFormat(FormatKind.AVRO, registry="http://127.0.0.1:1")
    with pytest.raises(TaskError, match="cannot be reached"):
        read(nobody, PICKLED, [b"\x00\x00\x00\x00\x01\x02"])


def test_answer_of_registry_is_cached_for_other_processes(tmp_path: Path) -> None:
    class Silent(SchemaRegistry):
        def _ask(self, schema_id: int, form: str | None) -> list[RegisteredText]:
            raise AssertionError("it was asked again")

    class Telling(SchemaRegistry):
        def _ask(self, schema_id: int, form: str | None) -> list[RegisteredText]:
            return [RegisteredText("", '"string"')]

    Telling("http://127.0.0.1:1", tmp_path).schema(5)
    assert Silent("http://127.0.0.1:1", tmp_path).schema(5).form == "string"


def test_schema_follows_from_record_type() -> None:
    assert derive_schema(RecordType.of(Trip)).form == {
        "type": "record",
        "name": "Trip",
        "fields": [
            {"name": "name", "type": "string"},
            {
                "name": "points",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Point",
                        "fields": [{"name": "x", "type": "long"}, {"name": "y", "type": "double"}],
                    },
                },
            },
            {"name": "comment", "type": ["null", "string"], "default": None},
        ],
    }


@given(st.lists(TRIPS, min_size=1, max_size=3))
def test_avro_values_equal_those_of_fastavro(trips: list[Trip]) -> None:
    of = ValueFormat(FormatKind.AVRO)
    record_type = RecordType.of(Trip)
    values = create_writer(of, record_type, "topic").write(batch_of(trips))
    schema = derive_schema(record_type)
    for trip, value in zip(trips, values, strict=True):
        assert value[:10] == b"\xc3\x01" + schema.fingerprint()
        with pa.BufferReader(value[10:]) as stream:
            datum = fastavro.schemaless_reader(stream, schema.parsed, None)
        assert datum["name"] == trip.name
        assert len(datum["points"]) == len(trip.points)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_writer(ValueFormat(FormatKind.AVRO), PICKLED, "t"), "no Avro schema follows from"),
        (lambda: create_reader(ValueFormat(FormatKind.AVRO), PICKLED), "cannot be read without a schema"),
        (
            lambda: create_reader(ValueFormat(FormatKind.AVRO, schema="{"), PICKLED),
            "the Avro schema '{' is invalid",
        ),
        (lambda: create_reader(ValueFormat(FormatKind.AVRO, framing=Framing.REGISTRY), PICKLED), "needs its address"),
    ],
)  # fmt: skip
def test_invalid_format_says_what_to_do(make: Any, message: str) -> None:
    with pytest.raises(TaskError) as raised:
        make()
    assert message in str(raised.value)
