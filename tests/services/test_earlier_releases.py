"""Logs are kept for ever: every event of an earlier release is decoded by the fingerprint of its schema."""

from __future__ import annotations

import copy
import functools
import io
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import avro, dispatcher, released
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.dead_letters import DeadLetter
from tailrace.schemas.event import Event
from tailrace.schemas.types import Header
from tailrace.services.log import Codec, Undecodable, dead_letters

from ..schemas.strategies import INT, LONG, TEXT

CANCEL = dispatcher.CancelJob(job_id="j")
SAID = {
    "header": {
        "event_id": "e",
        "time": 1,
        "sender": "client/me",
        "sender_epoch": 0,
        "recipient": "dispatcher",
    },
    "job_id": "j",
}
HEADER = Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher")


def bare(schemas: dict[str, Any]) -> dict[str, Any]:
    """Returns the schemas without all fields that have a default: those of an imaginary earliest release."""
    result = copy.deepcopy(schemas)
    for schema in result.values():
        if "fields" in schema:
            schema["fields"] = [field for field in schema["fields"] if "default" not in field]
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns all releases, and an imaginary one before them whose schemas lack the fields that have a default."""
    folder = tmp_path_factory.mktemp("released")
    for release in released.releases():
        (folder / f"{release}.json").write_bytes((released.FOLDER / f"{release}.json").read_bytes())
    (folder / "0.0.1.json").write_text(released.text("0.0.1", bare(dict(avro.schemas()))), "utf-8")
    return folder


WRITTEN = [
    *(("0.0.1", name) for name in sorted(EVENTS)),
    *((release, name) for release in released.releases() for name in released.fingerprints(release)),
]


@pytest.mark.parametrize(("release", "name"), [pair for pair in WRITTEN if pair[1] in EVENTS])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_event_of_every_release_is_decoded(
    folder: Path, release: str, name: str, data: st.DataObject
) -> None:
    datum = data.draw(writable_events(name, release, folder))
    event = codec(folder).decode(written(name, datum, release, folder))
    read = msgspec.to_builtins(event.body, builtin_types=(bytes,))
    read["header"] = msgspec.to_builtins(event.header)
    assert name == event.body.AVRO_NAME
    assert held(datum, read)


def test_imaginary_release_shares_no_schema_with_current_one(folder: Path) -> None:
    for name, fingerprint in released.fingerprints("0.0.1", folder).items():
        writer = released.writer(fingerprint, folder)
        assert writer is not None
        assert (writer.release, writer.name) == ("0.0.1", name)
        assert fingerprint != avro.fingerprint(name)


def test_added_fields_have_their_defaults(folder: Path) -> None:
    value = written(CANCEL.AVRO_NAME, SAID, "0.0.1", folder)
    reading = codec(folder)
    assert [reading.decode(value), reading.decode(value)] == [Event(HEADER, CANCEL)] * 2


def test_old_event_with_trailing_bytes_or_truncated_is_rejected(folder: Path) -> None:
    value = written(CANCEL.AVRO_NAME, SAID, "0.0.1", folder)
    reading = codec(folder)
    assert reading.decode(value).body == CANCEL
    with pytest.raises(Undecodable, match="3 bytes follow the event"):
        reading.decode(value + b"xyz")
    for length in range(10, len(value)):
        with pytest.raises(Undecodable, match=r"broken tailrace\.dispatcher\.CancelJob"):
            reading.decode(value[:length])


def test_unknown_schema_is_rejected(folder: Path) -> None:
    unknown = Codec("t.log", written_by=functools.partial(released.writer, folder=folder.parent / "none"))
    known = written(CANCEL.AVRO_NAME, SAID, "0.0.1", folder)
    output = f"fingerprint {known[2:10].hex()} is not of an event of this release"
    with pytest.raises(Undecodable, match=output):
        unknown.decode(known)


def test_event_removed_in_this_release_is_named(tmp_path: Path) -> None:
    gone = dict(avro.schemas())
    gone["tailrace.client.Gone"] = {**gone[CANCEL.AVRO_NAME], "namespace": "tailrace.client", "name": "Gone"}
    (tmp_path / "0.0.1.json").write_text(released.text("0.0.1", gone), "utf-8")
    value = b"\xc3\x01" + released.fingerprints("0.0.1", tmp_path)["tailrace.client.Gone"] + b"rest"
    with pytest.raises(
        Undecodable, match=r"is tailrace\.client\.Gone of 0\.0\.1, which is not an event of this release"
    ):
        codec(tmp_path).decode(value)


@pytest.mark.parametrize("release", ["0.0.1", *released.releases()])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_dead_letters_of_every_release_are_decoded(folder: Path, release: str, data: st.DataObject) -> None:
    datum = data.draw(writable_events(DeadLetter.AVRO_NAME, release, folder))
    value = written(DeadLetter.AVRO_NAME, datum, release, folder)
    read = dead_letters.decode_dead_letter(value, functools.partial(released.writer, folder=folder))
    assert held(datum, msgspec.to_builtins(read, builtin_types=(bytes,)))


def codec(folder: Path) -> Codec:
    return Codec("t.log", written_by=functools.partial(released.writer, folder=folder))


def written(name: str, datum: dict[str, Any], release: str, folder: Path) -> bytes:
    """Encodes the event as that release does, without a schema registry."""
    out = io.BytesIO()
    out.write(b"\xc3\x01" + released.fingerprints(release, folder)[name])
    fastavro.schemaless_writer(
        out, avro.parse(avro.inlined(name, released.definitions(release, folder))), datum
    )
    return out.getvalue()


def held(datum: Any, read: Any) -> bool:
    """Returns whether the decoded value has every written field; it may have more, which were added later."""
    if isinstance(datum, dict):
        return all(key in read and held(value, read[key]) for key, value in datum.items())
    if isinstance(datum, list):
        return len(datum) == len(read) and all(map(held, datum, read))
    return bool(datum == read)


@functools.cache
def writable_events(name: str, release: str, folder: Path) -> st.SearchStrategy[Any]:
    """Returns the event types whose schema a release has in its own version."""
    definitions = released.definitions(release, folder)

    def values(schema: Any) -> st.SearchStrategy[Any]:
        match schema:
            case ["null", inner]:
                return st.none() | values(inner)
            case {"type": "record", "fields": fields}:
                return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in fields})
            case {"type": "enum", "symbols": symbols}:
                return st.sampled_from(symbols)
            case {"type": "array", "items": items}:
                return st.lists(values(items), max_size=3)
            case {"type": "map", "values": inner}:
                return st.dictionaries(TEXT, values(inner), max_size=3)
            case {"type": inner}:
                return values(inner)
            case str() if schema in definitions:
                return values(definitions[schema])
            case _:
                return PRIMITIVES[schema]

    return values(name)


PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "string": TEXT,
    "long": LONG,
    "int": INT,
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "boolean": st.booleans(),
}
