"""CSV, JSON Schema and Debezium: values survive the round trip, and what does not fit is named with its field."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from certificates import CertificateAuthority
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_server import RegistryServer

from tailrace.pipelines.api import ChangeEvent
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.formats import ValueFormat, create_reader, create_writer, read_valid
from tailrace.pipelines.runtime.formats.format import FormatKind, MessagePart, SubjectStrategy
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import PICKLED, RecordType


class Sale(NamedTuple):
    item: str
    pieces: int
    price: float
    paid: bool
    note: str | None


@dataclass(frozen=True)
class Row:
    id: int
    name: str | None = None


CSV, DEBEZIUM = ValueFormat(FormatKind.CSV), ValueFormat(FormatKind.DEBEZIUM_JSON)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
sales = st.builds(
    Sale,
    texts,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none() | texts.filter(bool),
)


def read(of: ValueFormat, hint: Any, values: list[bytes]) -> tuple[list[Any], list[str]]:
    record_type = RecordType.of(hint) if hint is not None else PICKLED
    times = pa.array(range(len(values)), pa.int64())
    batch, bad = read_valid(create_reader(of, record_type), times, pa.array(values, pa.binary()))
    return batch.values, [each.why for each in bad]


def write(
    of: ValueFormat, hint: Any, records: list[Any], part: MessagePart = MessagePart.VALUE
) -> list[bytes]:
    record_type = RecordType.of(hint) if hint is not None else PICKLED
    return create_writer(of, record_type, "sales", part).write(Batch([0] * len(records), records))


@given(st.lists(sales, max_size=5), st.sampled_from([",", ";", "\t"]))
def test_csv_survives_round_trip(records: list[Sale], delimiter: str) -> None:
    of = ValueFormat(FormatKind.CSV, delimiter=delimiter)
    assert read(of, Sale, write(of, Sale, records)) == (records, [])


@given(st.lists(texts, min_size=1, max_size=4))
def test_csv_is_that_of_standard_library(row: list[str]) -> None:
    (value,) = write(CSV, list[str], [row])
    assert list(csv.reader(io.StringIO(value.decode(), newline=""))) == [row]
    assert read(CSV, list[str], [value]) == ([row], [])


@given(st.lists(st.binary(max_size=20), max_size=8), st.sampled_from([CSV, DEBEZIUM]))
def test_any_bytes_are_read_as_declared_or_named(values: list[bytes], of: ValueFormat) -> None:
    hint = Sale if of is CSV else ChangeEvent[Row]
    records, bad = read(of, hint, values)
    assert len(records) + len(bad) == len(values)
    RecordType.of(hint).to_columns(records)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"a,b,1,true,", "'b' is no int - at `$.pieces`"),
        (b"a,1_0,1,true,", "'1_0' is no int - at `$.pieces`"),
        (b"a,1,x,true,", "'x' is no float - at `$.price`"),
        (b"a,1,1,yes,", "'yes' is no bool - at `$.paid`"),
        (b"a,1", "it has 2 values, and Sale has 5 fields"),
        (b"a,1,1,true,\nb,1,1,true,", "it has 2 rows, not one"),
        (b"a,9223372036854775808,1,true,", "more than 64 bits - at `$.pieces`"),
    ],
)
def test_csv_that_does_not_fit_is_named_with_field(value: bytes, why: str) -> None:
    _, (bad,) = read(CSV, Sale, [value])
    assert why in bad


rows = st.builds(Row, st.integers(-(2**63), 2**63 - 1), st.none() | texts)
events = st.builds(
    ChangeEvent,
    st.sampled_from("cudr"),
    st.none() | rows,
    st.none() | rows,
    st.none() | st.integers(0, 2**50),
)


@given(st.lists(events, max_size=5), st.booleans())
def test_change_events_are_read_with_and_without_schema(
    changes: list[ChangeEvent[Row]], has_schema: bool
) -> None:
    of = ChangeEvent[Row]
    values = write(DEBEZIUM, of, changes)
    if has_schema:
        values = [b'{"schema": {"type": "struct"}, "payload": %s}' % value for value in values]
    assert read(DEBEZIUM, of, values) == (changes, [])


def test_change_event_of_debezium_is_read() -> None:
    value = {
        "before": None,
        "after": {"id": 1004, "name": "Anne"},
        "source": {"version": "3.0", "connector": "postgresql", "lsn": 34},
        "transaction": None,
        "op": "c",
        "ts_ms": 1465581029546,
        "ts_us": 1465581029546000,
    }
    event = ChangeEvent("c", None, Row(1004, "Anne"), 1465581029546)
    assert read(DEBEZIUM, ChangeEvent[Row], [json.dumps(value).encode()]) == ([event], [])
    _, (bad,) = read(DEBEZIUM, ChangeEvent[Row], [b'{"op": "u", "after": {"id": "x"}}'])
    assert "Expected `int`, got `str` - at `$.after.id`" in bad
    assert read(DEBEZIUM, ChangeEvent, [b'{"op": "d", "before": {"id": 1}}'])[0][0].before == {"id": 1}


@settings(max_examples=20, deadline=None)
@given(st.lists(sales.filter(lambda sale: math.isfinite(sale.price)), max_size=3))
def test_json_schema_survives_round_trip(records: list[Sale]) -> None:
    of = ValueFormat(FormatKind.JSON_SCHEMA, registry="mock://json-schema")
    assert read(of, Sale, write(of, Sale, records)) == (records, [])


def test_json_value_is_checked_against_its_schema_and_references() -> None:
    with RegistryServer() as registry:
        registry.register("names", {"schema": '{"type": "string", "maxLength": 3}', "schemaType": "JSON"})
        schema = {"type": "object", "properties": {"name": {"$ref": "names.json"}}, "required": ["name"]}
        reference = {"name": "names.json", "subject": "names", "version": 1}
        schema_id = registry.register(
            "rows", {"schema": json.dumps(schema), "schemaType": "JSON", "references": [reference]}
        )
        head = b"\0" + schema_id.to_bytes(4)
        of = ValueFormat(FormatKind.JSON_SCHEMA, registry=registry.url)
        records, bad = read(of, None, [head + b'{"name": "a"}', head + b'{"name": "abcd"}', head + b"{}"])
        assert records == [{"name": "a"}]
        assert "'abcd' is too long - at `$.name`" in bad[0]
        assert "'name' is a required property - at `$`" in bad[1]
        _, (unknown,) = read(of, None, [b"\0\0\0\0\x63{}"])
        assert f"the schema registry {registry.url} has no schema 99" in unknown


def test_given_json_schema_is_checked_by_sink() -> None:
    of = ValueFormat(
        FormatKind.JSON_SCHEMA, '{"type": "object", "required": ["id"]}', registry="mock://given"
    )
    with pytest.raises(ValueError, match="'id' is a required property"):
        write(of, None, [{"name": "a"}])


@pytest.mark.parametrize("kind", [FormatKind.AVRO, FormatKind.JSON_SCHEMA])
@pytest.mark.parametrize(
    ("strategy", "part", "subject"),
    [
        (SubjectStrategy.TOPIC, MessagePart.VALUE, "sales-value"),
        (SubjectStrategy.TOPIC, MessagePart.KEY, "sales-key"),
        (SubjectStrategy.RECORD, MessagePart.VALUE, "Row"),
        (SubjectStrategy.TOPIC_RECORD, MessagePart.KEY, "sales-Row"),
    ],
)
def test_subject_follows_strategy(
    kind: FormatKind, strategy: SubjectStrategy, part: MessagePart, subject: str
) -> None:
    with RegistryServer() as registry:
        of = ValueFormat(kind, registry=registry.url, subject=strategy)
        write(of, Row, [Row(1)], part)
        assert list(registry.subjects) == [subject]


def test_schema_of_sink_must_be_there_if_it_does_not_register() -> None:
    with RegistryServer() as registry:
        of = ValueFormat(FormatKind.AVRO, registry=registry.url, register=False)
        with pytest.raises(TaskError, match="has no such schema under sales-value: register it"):
            write(of, Row, [Row(1)])
        registered = write(ValueFormat(FormatKind.AVRO, registry=registry.url), Row, [Row(1)])
        assert write(of, Row, [Row(1)]) == registered


def test_incompatible_schema_is_one_line() -> None:
    with RegistryServer() as registry:
        registry.incompatible.add("sales-value")
        with pytest.raises(TaskError) as caught:
            write(ValueFormat(FormatKind.AVRO, registry=registry.url), Row, [Row(1)])
        text = str(caught.value)
        assert "\n" not in text
        assert "does not accept sales-value, because the schema is not compatible with an earlier one" in text


@pytest.mark.parametrize("kind", ["bearer", "basic"])
def test_registry_with_tls_takes_secret_from_file(kind: str, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    issued = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued)
    secret = tmp_path / "secret"
    secret.write_text("me:hidden\n")
    name = "bearer.auth.token-file" if kind == "bearer" else "basic.auth.user.info-file"
    right = "Bearer me:hidden" if kind == "bearer" else f"Basic {base64.b64encode(b'me:hidden').decode()}"
    properties = {"ssl.ca.location": str(authority.ca), name: str(secret)}
    if kind == "bearer":  # Confluent's client wants these too
        properties |= {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    with RegistryServer(right, context) as registry:
        of = ValueFormat(FormatKind.AVRO, registry=registry.url, registry_properties=properties)
        values = write(of, Row, [Row(1, "a")])
        assert read(of, Row, values) == ([Row(1, "a")], [])
        without = ValueFormat(
            FormatKind.AVRO, registry=registry.url, registry_properties={"ssl.ca.location": str(authority.ca)}
        )
        with pytest.raises(TaskError, match="does not let this user write or read sales-value"):
            write(without, Row, [Row(1)])
        with pytest.raises(TaskError, match="cannot be reached"):
            write(ValueFormat(FormatKind.AVRO, registry=registry.url), Row, [Row(1)])
