"""The log describes itself: a process registers its schemas before its first event, once."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from services.simulated_cluster.cluster import header

from tailrace.schemas import avro, event_schemas, released
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.dispatcher import CancelJob, SubmitJob
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected, SchemasRegistered
from tailrace.schemas.types import Header, RegisteredSchema
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.log import Codec, codec
from tailrace.services.log.codec import SINGLE_OBJECT, SINGLE_OBJECT_HEAD, UnknownSchema
from tailrace.services.log.event_log import EventRefused, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.snapshot_file import pack, unpack

from ...schemas.strategies import events
from ..test_earlier_releases import bare, writable_events, written

CANCEL = Event(header("client/me", "dispatcher"), CancelJob(job_id="j"))
CLAIM = Event(
    header("dispatcher", EVERYONE, epoch=1),
    LeaderElected(role="dispatcher", epoch=1, address="a", session="s"),
)


class Process:
    """A process with its own codec on a shared log."""

    def __init__(self, log: MemoryEventLog | None = None) -> None:
        self.log = MemoryEventLog(Codec("t.log"), "t.log", registers_schemas=True)
        if log is not None:
            self.log._entries = log._entries
        self.log.follow(LeadershipState())

    def fold(self, replica: Replica | None = None) -> Replica:
        replica = replica or Replica([Dispatcher()])
        for batch in read_to_end(self.log, replica.offset + 1):
            for record in batch:
                replica.apply(record)
        self.log.follow(replica.leadership)
        return replica


def registrations(log: MemoryEventLog) -> list[int]:
    records = [record for batch in read_to_end(log) for record in batch]
    return [record.offset for record in records if isinstance(record.body, SchemasRegistered)]


def test_schemas_precede_first_event_and_appear_once() -> None:
    first = Process()
    assert first.log.append([CLAIM, CANCEL]) == [1, 2]
    assert first.log.append([CANCEL]) == [3]
    second = Process(first.log)
    second.fold()
    assert second.log.append([CANCEL]) == [4]
    assert registrations(first.log) == [0]
    unaware = Process(first.log)
    assert unaware.log.append([CANCEL]) == [6], "a process that has not read the log repeats them"
    assert registrations(first.log) == [0, 5]


def test_registration_is_not_fenced_and_admits_nobody() -> None:
    process = Process()
    process.log.append([CLAIM, CANCEL])
    late = Event(
        header("dispatcher", EVERYONE, epoch=7),
        SchemasRegistered(
            release="9.0.0", schemas=(RegisteredSchema(name="n", fingerprint="00" * 8, definition="{}"),)
        ),
    )
    process.log.append([late])
    replica = process.fold()
    assert replica.leadership.schemas["00" * 8].release == "9.0.0"
    assert replica.leadership.epoch("dispatcher") == 1
    forged = Event(header("dispatcher", "dispatcher", epoch=7), CancelJob(job_id="j"))
    before = replica.states
    process.log.append([forged])
    assert process.fold(replica).states == before


def test_snapshot_has_schemas_of_truncated_log() -> None:
    process = Process()
    process.log.append([CLAIM, CANCEL])
    process.log.append_values([of_release_nine()])
    _, data = pack(process.fold(), cluster="c", event_id="e", fingerprint="f", time=1)
    replica = Replica([Dispatcher()])
    unpack(data, cluster="c", fingerprint="f").restore(replica)
    assert set(replica.leadership.schemas) >= {avro.fingerprint(name).hex() for name in EVENTS}
    successor = Process(process.log)
    successor.log.follow(replica.leadership)
    successor.log.append([CANCEL])
    assert registrations(process.log) == [0, 3]


def is_no_registration(event: Event) -> bool:
    return not isinstance(event.body, SchemasRegistered)


@settings(max_examples=example_count(15), deadline=None)
@given(appended=st.lists(events().filter(is_no_registration), min_size=1, max_size=8))
def test_log_is_readable_by_its_own_schemas(appended: list[Event]) -> None:
    """Needs the definition of one record only, and no code of this package."""
    log = Process().log
    log.append(appended)
    frozen = released.definitions(released.releases()[0])
    known: dict[bytes, Any] = {
        avro.fingerprint(SchemasRegistered.AVRO_NAME): avro.inlined(SchemasRegistered.AVRO_NAME, frozen)
    }
    read = []
    for _, value in log.entries_from(0, 0):
        assert value is not None
        schema = known[value[len(SINGLE_OBJECT) : SINGLE_OBJECT_HEAD]]
        datum: Any = fastavro.schemaless_reader(io.BytesIO(value[SINGLE_OBJECT_HEAD:]), schema, None)
        read.append(datum["header"]["event_id"])
        for each in datum.get("schemas", ()) if schema["name"] == "SchemasRegistered" else ():
            known[bytes.fromhex(each["fingerprint"])] = json.loads(each["definition"])
    assert read == [f"{appended[0].header.event_id}-schemas", *(event.header.event_id for event in appended)]


def of_release_nine() -> bytes:
    """Returns the SchemasRegistered event of a release with another schema of CancelJob."""
    schema = schema_of_release_nine()
    registered = RegisteredSchema(
        name=CancelJob.AVRO_NAME,
        fingerprint=avro.fingerprint_of(schema).hex(),
        definition=json.dumps(schema),
    )
    body = SchemasRegistered(release="9.0.0", schemas=(registered,))
    return Codec("t.log").encode(Event(header("dispatcher", EVERYONE, epoch=1), body))


def schema_of_release_nine() -> dict[str, Any]:
    schema = copy.deepcopy(avro.standalone(CancelJob.AVRO_NAME))
    schema["fields"].append({"name": "more", "type": "string", "default": ""})
    return schema


@pytest.mark.parametrize("restored", [False, True])
def test_reader_names_release_of_unknown_schema(restored: bool) -> None:
    schema = schema_of_release_nine()
    value = SINGLE_OBJECT + avro.fingerprint_of(schema) + b"rest"
    reader = Codec("t.log")
    registration = Codec("t.log").decode(of_release_nine())
    if restored:
        replica = Replica([Dispatcher()])
        log = MemoryEventLog()
        log.append([registration])
        for record in log.tail(0).poll(0):
            replica.apply(record)
        reader.follow(replica.leadership)
    else:
        reader.decode(of_release_nine())
    with pytest.raises(UnknownSchema, match=r"is tailrace\.dispatcher\.CancelJob of 9\.0\.0") as unknown:
        reader.decode(value)
    assert unknown.value.release == "9.0.0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns an imaginary release of level 1, without one event and without all fields that have a default."""
    folder = tmp_path_factory.mktemp("released")
    schemas = bare(dict(avro.schemas()))
    del schemas[SubmitJob.AVRO_NAME]
    (folder / "0.0.1.json").write_text(released.text("0.0.1", schemas, 1), "utf-8")
    return folder


@contextlib.contextmanager
def release_of_level_two(folder: Path) -> Iterator[None]:
    """Makes this a release of level 2."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_schemas, "FEATURE_LEVEL", 2)
        patch.setattr(codec, "FEATURE_LEVEL", 2)
        patch.setattr(codec, "older_schemas", lambda level: event_schemas.older_schemas(level, folder))
        patch.setattr(codec, "schemas_of_release", lambda: event_schemas.schemas_of_release(folder))
        yield


@pytest.fixture
def upgraded(folder: Path) -> Iterator[Path]:
    with release_of_level_two(folder):
        yield folder


def codec_at(level: int, folder: Path) -> Codec:
    made = Codec("t.log", written_by=lambda fingerprint: released.writer(fingerprint, folder))
    made.follow(LeadershipState(feature_level=level))
    return made


@settings(max_examples=5, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", sorted(set(EVENTS) - {SubmitJob.AVRO_NAME, SchemasRegistered.AVRO_NAME}))
def test_writer_keeps_to_schemas_of_level(name: str, data: st.DataObject, folder: Path) -> None:
    """An event that level 1 can express has exactly the bytes that a release of level 1 writes."""
    value = written(name, data.draw(writable_events(name, "0.0.1", folder)), "0.0.1", folder)
    with release_of_level_two(folder):
        old, new = codec_at(1, folder), codec_at(2, folder)
        event = old.decode(value)
        assert old.encode(event) == value
        assert new.encode(event)[len(SINGLE_OBJECT) : SINGLE_OBJECT_HEAD] == avro.fingerprint(name)
        assert old.decode(new.encode(event)) == event
        old.use_level(2)
        assert old.encode(event) == new.encode(event)


def test_value_of_newer_field_is_refused_below_its_level(upgraded: Path) -> None:
    body = LeaderElected(role="r", epoch=1, address="a", session="s", elected_by="zookeeper")
    event = Event(Header(event_id="e", time=1, sender="r", sender_epoch=1, recipient=EVERYONE), body)
    with pytest.raises(
        ValueError, match=r"LeaderElected has values that need a higher feature level than 1.*elected_by"
    ):
        codec_at(1, upgraded).encode(event)
    assert codec_at(2, upgraded).encode(event)
    plain = Event(event.header, msgspec.structs.replace(body, elected_by=""))
    assert codec_at(1, upgraded).encode(plain)


def test_newer_event_is_refused_below_its_level(upgraded: Path) -> None:
    job = SubmitJob(job_id="j", job_graph=None, entry_point=None, parallelism=None)
    with pytest.raises(EventRefused, match="SubmitJob needs a higher feature level than 1"):
        codec_at(1, upgraded).encode_all([Event(CANCEL.header, job)])


def test_release_registers_schemas_of_all_its_levels(upgraded: Path) -> None:
    registration = codec_at(1, upgraded).registration(CANCEL)
    assert registration is not None
    assert isinstance(registration.body, SchemasRegistered)
    found = {schema.fingerprint for schema in registration.body.schemas}
    assert {avro.fingerprint(name).hex() for name in EVENTS} < found
    older = released.fingerprints("0.0.1", upgraded)
    assert {older[name].hex() for name in EVENTS if name != SubmitJob.AVRO_NAME} <= found | {
        older[SchemasRegistered.AVRO_NAME].hex()
    }
