"""Encoding and decoding of events in both formats, and the errors about bytes that are no event."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from example_count import example_count
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailrace.schemas import avro, dispatcher
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event
from tailrace.schemas.everyone import SchemasRegistered
from tailrace.schemas.types import Header
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.log import Codec, LogUnavailable, Undecodable
from tailrace.services.log.codec import SINGLE_OBJECT, UnknownSchema
from tailrace.services.log.schema_ids import SchemaIds

from ...schemas.strategies import events, events_of

CODEC = Codec("t.log")
CANCEL = Event(
    Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher"),
    dispatcher.CancelJob(job_id="j"),
)


def registry() -> SchemaRegistryClient:
    """Returns an in-memory registry of confluent-kafka."""
    return SchemaRegistryClient.new_client({"url": "mock://tests"})


@pytest.mark.parametrize("name", sorted(EVENTS))
@settings(max_examples=example_count(4), deadline=None)
@given(data=st.data())
def test_every_event_survives_round_trip(name: str, data: st.DataObject) -> None:
    event = data.draw(events_of(EVENTS[name]))
    assert CODEC.decode(CODEC.encode(event)) == event


def test_single_object_encoding_begins_with_marker_and_fingerprint() -> None:
    value = CODEC.encode(CANCEL)
    assert value[:2] == b"\xc3\x01"
    assert value[2:10] == avro.fingerprint(CANCEL.body.AVRO_NAME)
    body = fastavro.schemaless_reader(io.BytesIO(value[10:]), avro.standalone(CANCEL.body.AVRO_NAME), None)
    assert body["job_id"] == "j"


# What hamba/avro v2 of Go computed for SubmitJob as release 0.1.0 has it: the schema is the same since.
HAMBA_SUBMIT_JOB = "762f52f3b0e5bac8"


def test_decoder_accepts_writer_with_logical_types_in_canonical_form() -> None:
    by_name = {name: fingerprint for fingerprint, name in avro.fingerprints_with_logical_types().items()}
    if avro.fingerprint("tailrace.dispatcher.SubmitJob").hex() == "ad2e5fbf173ef15c":
        assert by_name["tailrace.dispatcher.SubmitJob"].hex() == HAMBA_SUBMIT_JOB
    value = CODEC.encode(CANCEL)
    other = by_name[CANCEL.body.AVRO_NAME]
    assert other != value[2:10]
    assert CODEC.decode(value[:2] + other + value[10:]) == CANCEL


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_canonical_form_without_logical_types_is_that_of_avro(name: str) -> None:
    plain = avro.without_logical_types(avro.standalone(name))
    assert avro.canonical_with_logical_types(plain) == fastavro.schema.to_parsing_canonical_form(plain)


@pytest.mark.parametrize("length", [11, 20, 40])
def test_truncated_event_is_reported_as_truncated(length: int) -> None:
    with pytest.raises(
        Undecodable, match=r"broken tailrace\.dispatcher\.CancelJob: its bytes end before the event does"
    ):
        CODEC.decode(CODEC.encode(CANCEL)[:length])


@settings(max_examples=example_count(10), deadline=None)
@given(event=events())
def test_codec_with_registry_writes_confluent_format_and_reads_both(event: Event) -> None:
    known = registry()
    confluent = Codec("t.log", known)
    value = confluent.encode(event)
    assume(not isinstance(event.body, SchemasRegistered))
    schema_id = struct.unpack(">I", value[1:5])[0]
    assert value[:1] == b"\x00"
    assert known.get_latest_version(f"t.log-{event.body.AVRO_NAME}").schema_id == schema_id
    assert confluent.decode(value) == event
    assert confluent.decode(CODEC.encode(event)) == event
    assert Codec("another", known).decode(value) == event


def test_event_of_older_writer_gets_default_of_missing_field() -> None:
    known = registry()
    older = avro.standalone(CANCEL.body.AVRO_NAME)
    header = older["fields"][0]["type"]
    header["fields"] = [item for item in header["fields"] if item["name"] != "traceparent"]
    schema_id = known.register_schema("older", Schema(json.dumps(older), "AVRO"))
    out = io.BytesIO()
    datum = {"header": {"event_id": "e", "time": 1, "sender": "client/me"}, "job_id": "j"}
    datum["header"] |= {"sender_epoch": 0, "recipient": "dispatcher"}  # type: ignore[operator]
    fastavro.schemaless_writer(out, avro.without_logical_types(older), datum)
    value = b"\x00" + struct.pack(">I", schema_id) + out.getvalue()
    assert Codec("t.log", known).decode(value) == CANCEL


def test_event_with_unknown_schema_of_registry_is_unreadable_in_log() -> None:
    known = registry()
    newer = avro.standalone(CANCEL.body.AVRO_NAME)
    newer["fields"].append({"name": "more", "type": "string", "default": ""})
    schema_id = known.register_schema("newer", Schema(json.dumps(newer), "AVRO"))
    value = b"\x00" + struct.pack(">I", schema_id) + CODEC.encode(CANCEL)[10:] + b"\x00"
    # A client may have another schema, and what it adds does not matter.
    assert Codec("t.submissions", known).decode(value) == CANCEL
    in_log = Codec("t.log", known, resolves_unknown=False)
    with pytest.raises(UnknownSchema, match=avro.fingerprint_of(newer).hex()) as unknown:
        in_log.decode(value)
    assert unknown.value.header == CANCEL.header
    assert in_log.decode(Codec("t.log", known).encode(CANCEL)) == CANCEL


def test_registration_of_schemas_is_readable_without_registry() -> None:
    writer = Codec("t.log")
    assert writer.registration(CANCEL) is None, "it has not read the log"
    writer.follow(LeadershipState())
    registration = writer.registration(CANCEL)
    assert registration is not None
    assert CODEC.decode(Codec("t.log", registry()).encode(registration)) == registration


BODY = CODEC.encode(CANCEL)
REASONS = {
    "nothing": (None, "empty"),
    "no bytes": (b"", "empty"),
    "text": (b'{"job_id": "j"}', "7b 22 6a"),
    "marker alone": (b"\xc3\x01", "not an Avro event"),
    "unknown fingerprint": (b"\xc3\x01" + bytes(8) + b"x", "fingerprint 0000000000000000"),
    "cut off": (BODY[:-1], "broken tailrace.dispatcher.CancelJob"),
    "more behind it": (BODY + b"xyz", "3 bytes follow"),
    "no registry": (b"\x00\x00\x00\x00\x07rest", "schema id 7"),
}


@pytest.mark.parametrize(("value", "reason"), REASONS.values(), ids=REASONS)
def test_undecodable_bytes_are_rejected_with_reason(value: bytes | None, reason: str) -> None:
    with pytest.raises(Undecodable) as refused:
        CODEC.decode(value)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


ANY_HEAD = st.sampled_from(
    [b"", b"\xc3\x01", b"\x00", *(b"\xc3\x01" + avro.fingerprint(name) for name in sorted(EVENTS))]
)


@settings(max_examples=example_count(300), deadline=None)
@given(head=ANY_HEAD, rest=st.binary(max_size=200))
def test_any_bytes_are_event_or_undecodable_in_one_line(head: bytes, rest: bytes) -> None:
    reason = "none"
    try:
        CODEC.decode(head + rest)
    except Undecodable as error:
        reason = str(error)
    assert reason
    assert "\n" not in reason
    assert len(reason) < 600


@settings(max_examples=example_count(60), deadline=None)
@given(event=events(), data=st.data())
def test_damaged_event_is_other_event_or_undecodable(event: Event, data: st.DataObject) -> None:
    value = bytearray(CODEC.encode(event))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = CODEC.decode(bytes(value))
    except Undecodable:
        return
    # What can be read can be written again: the admission of a submission does that.
    assert CODEC.decode(CODEC.encode(decoded)) == decoded or decoded != decoded


FOREIGN = {
    "another record": json.dumps({"type": "record", "name": "Other", "namespace": "x", "fields": []}),
    "no record": '"string"',
    "no schema of ours": json.dumps(
        {"type": "record", "name": "CancelJob", "namespace": "tailrace.dispatcher", "fields": "none"}
    ),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_unknown_registered_schema_is_rejected(text: str) -> None:
    known = registry()
    schema_id = known.register_schema("foreign", Schema(text, "AVRO"))
    with pytest.raises(Undecodable, match=f"id {schema_id}"):
        Codec("t.log", known).decode(b"\x00" + struct.pack(">I", schema_id) + b"rest")


def test_protobuf_schema_is_rejected() -> None:
    known = registry()
    schema_id = known.register_schema("proto", Schema('syntax = "proto3";', "PROTOBUF"))
    with pytest.raises(Undecodable, match="not an Avro record"):
        Codec("t.log", known).decode(b"\x00" + struct.pack(">I", schema_id) + b"rest")


def test_unknown_schema_id_is_rejected() -> None:
    with pytest.raises(Undecodable, match="has no schema id 999"):
        Codec("t.log", registry()).decode(b"\x00\x00\x00\x03\xe7rest")


@pytest.mark.parametrize("error", [SchemaRegistryError(503, 50301, "later"), OSError("refused")])
def test_unavailable_registry_makes_nothing_undecodable(error: Exception) -> None:
    class Down:
        def get_schema(self, _schema_id: int) -> Any:
            raise error

        def register_schema(self, _subject: str, _schema: Schema) -> int:
            raise error

    with pytest.raises(LogUnavailable, match="registry"):
        Codec("t.log", Down()).decode(b"\x00\x00\x00\x00\x01rest")  # type: ignore[arg-type]


class Flaky:
    """A registry that is unavailable at times."""

    def __init__(self) -> None:
        self.known, self.away, self.asked = registry(), False, 0

    def get_schema(self, schema_id: int) -> Any:
        return self._answering().get_schema(schema_id)

    def register_schema(self, subject: str, schema: Schema) -> int:
        return self._answering().register_schema(subject, schema)

    def _answering(self) -> SchemaRegistryClient:
        self.asked += 1
        if self.away:
            raise OSError("refused")
        return self.known


def test_events_are_written_without_unavailable_registry_and_all_readers_decode_them() -> None:
    flaky = Flaky()
    flaky.away = True
    writer: Any = Codec("t.log", flaky)  # type: ignore[arg-type]
    values = [writer.encode(CANCEL) for _ in range(100)]
    assert {value[:2] for value in values} == {SINGLE_OBJECT}
    assert flaky.asked == 1, "it is not asked for each event"
    assert all(Codec("t.log").decode(value) == CANCEL for value in values)
    flaky.away, writer._ask_at = False, 0.0
    assert writer.encode(CANCEL)[:1] == b"\x00"
    assert Codec("t.log", flaky.known).decode(writer.encode(CANCEL)) == CANCEL


def test_cached_answer_of_registry_outlives_process(tmp_path: Path) -> None:
    flaky = Flaky()
    first = Codec("t.log", flaky, ids=SchemaIds("http://r", tmp_path))  # type: ignore[arg-type]
    first.register_all()
    value = first.encode(CANCEL)
    flaky.away = True
    again = Codec("t.log", flaky, ids=SchemaIds("http://r", tmp_path))  # type: ignore[arg-type]
    assert again.encode(CANCEL) == value
    assert again.decode(value) == CANCEL
    elsewhere = Codec("t.log", flaky, ids=SchemaIds("http://another", tmp_path))  # type: ignore[arg-type]
    assert elsewhere.encode(CANCEL)[:2] == SINGLE_OBJECT
    (tmp_path / "schema-ids.json").write_bytes(b"{")
    damaged = Codec("t.log", flaky, ids=SchemaIds("http://r", tmp_path))  # type: ignore[arg-type]
    assert damaged.encode(CANCEL)[:2] == SINGLE_OBJECT
