"""Encodes events to bytes and decodes them.

Without a schema registry an event is written in Avro's single-object encoding: the marker C3 01, the CRC-64-AVRO
fingerprint of its schema (8 bytes, little-endian), the Avro body. With a registry it is written in Confluent's wire
format: a zero byte, the schema id (4 bytes, big-endian), the Avro body; subjects follow TopicRecordNameStrategy. If the
registry does not answer and the id is not cached, the event is written in single-object encoding. Readers accept both.
They also accept writers that put logical types into the fingerprint's canonical form, and earlier releases: the
writer's
schema comes from the registry or, by fingerprint, from the shipped ones (`schemas/released`), and fastavro applies
Avro's
schema resolution.
"""

from __future__ import annotations

import functools
import io
import json
import struct
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...infra.logging_setup import logger
from ...schemas import avro, binary, released
from ...schemas.catalog import EVENTS
from ...schemas.event import Event
from ...schemas.resolution import read_resolved
from ...schemas.types import Header
from .event_log import LARGEST_EVENT, EventRefused, EventTooLarge, LogUnavailable
from .schema_ids import SchemaIds

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

SINGLE_OBJECT = b"\xc3\x01"
CONFLUENT = b"\x00"
SINGLE_OBJECT_HEAD = 10
CONFLUENT_HEAD = 5
_LONGEST_SHOWN = 16
_LONGEST_REASON = 300
_NOT_FOUND = 404
_ASK_AGAIN_S = 30.0
_log = logger(__name__)


class Undecodable(ValueError):
    """The bytes are not an event; the message gives the reason for the person who wrote them."""

    header: Header | None = None


class UnknownSchema(Undecodable):
    """The bytes may be an event, but its schema is unknown. `header`: the Header at their beginning, if there is
    one."""

    def __init__(self, reason: str, header: Header | None) -> None:
        super().__init__(reason)
        self.header = header


class Codec:
    """Writes events for one topic, reads events of any topic; thread-safe."""

    def __init__(
        self,
        topic: str,
        registry: SchemaRegistryClient | None = None,
        written_by: Callable[[bytes], released.Writer | None] = released.writer,
        ids: SchemaIds | None = None,
    ) -> None:
        """`written_by` returns an earlier release's schema for a fingerprint. `ids`: the cached ids of the registry."""
        self._topic = topic
        self._registry = registry
        self._ids = ids or SchemaIds("")
        self._ask_at = 0.0
        """On the monotonic clock: after a failure the registry is not asked for an id before this time."""
        self._written_by = written_by
        self._prefixes: dict[str, bytes] = {}
        self._by_head = {SINGLE_OBJECT + avro.fingerprint(name): name for name in EVENTS}
        self._readers: dict[bytes, binary.Read] = {}
        # Assigned before `_readers`: other threads look it up once there is a reader.
        self._names: dict[bytes, str] = {}
        self._by_id: dict[int, tuple[str, Any]] = {}

    def encode(self, event: Event) -> bytes:
        """Returns the event's bytes. Raises ValueError if a field does not fit its schema."""
        name = event.body.AVRO_NAME
        prefix = self._prefixes.get(name) or self._prefix(name)
        try:
            return prefix + binary.functions(name).write(event)
        except (TypeError, AttributeError, KeyError, struct.error) as error:
            raise ValueError(f"{name} does not fit its schema: {_one_line(error)}") from error

    def encode_all(self, events: Sequence[Event], most_bytes: int | None = None) -> list[bytes]:
        """Encodes events that are appended together: all of them, or the first ones that have at most `most_bytes`
        together, at least one. Raises EventRefused; LogUnavailable as `decode`."""
        values: list[bytes] = []
        left = most_bytes
        for place, event in enumerate(events):
            try:
                value = self.encode(event)
            except LogUnavailable:
                raise
            except Exception as error:
                # fastavro raises many types of errors for a value that does not fit.
                raise EventRefused(place, _one_line(error)) from error
            if len(value) > LARGEST_EVENT:
                raise EventTooLarge(place, event.body.AVRO_NAME, len(value))
            if left is not None:
                left -= len(value)
                if left < 0 and values:
                    break
            values.append(value)
        return values

    def decode(self, value: bytes | None) -> Event:
        """Decodes one event. Raises Undecodable; LogUnavailable if the registry does not answer."""
        if value is None:
            raise Undecodable("the value is empty: an event in Avro was expected")
        head = value[:SINGLE_OBJECT_HEAD]
        read = self._readers.get(head)
        if read is not None:
            try:
                return read(value, SINGLE_OBJECT_HEAD)
            except Exception as error:
                raise _to_undecodable(self._names[head], error) from error
        if value[:1] == CONFLUENT and len(value) >= CONFLUENT_HEAD:
            (schema_id,) = struct.unpack(">I", value[1:CONFLUENT_HEAD])
            try:
                name, writer = self._by_id.get(schema_id) or self._fetch_schema(schema_id)
            except Undecodable as error:
                raise UnknownSchema(str(error), _header_of(value, CONFLUENT_HEAD)) from error
            return self._read(name, writer, value, CONFLUENT_HEAD)
        if value[:2] == SINGLE_OBJECT and len(value) >= SINGLE_OBJECT_HEAD:
            try:
                self._names[head], read = self._reader(head)
            except Undecodable as error:
                raise UnknownSchema(str(error), _header_of(value, SINGLE_OBJECT_HEAD)) from error
            self._readers[head] = read
            return self.decode(value)
        raise Undecodable(
            f"not an Avro event: {len(value)} bytes that begin with {value[:_LONGEST_SHOWN].hex(' ')}; expected "
            "single-object encoding (c3 01 ...) or the Confluent wire format (00 ...)"
        )

    def _reader(self, head: bytes) -> tuple[str, binary.Read]:
        """Returns the event name for a head, and its reader: our own function or, for an earlier release, one with that
        release's schema. Raises Undecodable if it is not the head of an event."""
        name = self._by_head.get(head)
        if name is not None:
            return name, binary.functions(name).read
        fingerprint = head[len(SINGLE_OBJECT) :]
        name = avro.fingerprints_with_logical_types().get(fingerprint)
        if name is not None and name in EVENTS:
            return name, binary.functions(name).read
        found = self._written_by(fingerprint)
        if found is None:
            raise Undecodable(
                f"unknown schema: fingerprint {fingerprint.hex()} belongs to no event of this release"
            )
        if found.name not in EVENTS:
            raise Undecodable(
                f"unknown schema: fingerprint {fingerprint.hex()} is {found.name} of {found.release}, "
                "no event of this release"
            )
        return found.name, functools.partial(_resolve, found.name, found.schema)

    def _read(self, name: str, writer: Any, value: bytes, start: int) -> Event:
        """`writer` is the schema that the event was written with; None: the schema of this release."""
        try:
            return (
                binary.functions(name).read(value, start)
                if writer is None
                else _resolve(name, writer, value, start)
            )
        except Exception as error:
            raise _to_undecodable(name, error) from error

    def register_all(self) -> None:
        """Registers all event schemas, so that all ids are known if the registry is unreachable later."""
        for name in EVENTS:
            if self._registry is not None and time.monotonic() >= self._ask_at:
                self._prefix(name)

    def _subject(self, name: str) -> str:
        return f"{self._topic}-{name}"

    def _prefix(self, name: str) -> bytes:
        single = SINGLE_OBJECT + avro.fingerprint(name)
        if self._registry is None:
            self._prefixes[name] = single
            return single
        schema_id = self._registered_id(self._registry, name)
        if schema_id is not None:
            self._prefixes[name] = CONFLUENT + struct.pack(">I", schema_id)
            return self._prefixes[name]
        told = self._ids.get(self._subject(name), avro.fingerprint(name))
        return single if told is None else CONFLUENT + struct.pack(">I", told)

    def _registered_id(self, registry: SchemaRegistryClient, name: str) -> int | None:
        """Returns None if the registry does not answer."""
        if time.monotonic() < self._ask_at:
            return None
        # The registry client takes most of a second to import, and few clusters have a registry.
        from confluent_kafka.schema_registry import Schema

        subject = self._subject(name)
        try:
            schema_id = registry.register_schema(subject, Schema(json.dumps(avro.standalone(name)), "AVRO"))
        except Exception as error:
            # Its HTTP client raises many types of errors. All are tolerated, since readers accept both encodings.
            self._ask_at = time.monotonic() + _ASK_AGAIN_S
            _log.warning(
                "the schema registry does not take a schema: writes by what it has told before, or without it",
                subject=subject,
                error=_one_line(error),
            )
            return None
        self._ids.put(subject, avro.fingerprint(name), schema_id)
        self._by_id[schema_id] = (name, None)
        return schema_id

    def _fetch_schema(self, schema_id: int) -> tuple[str, Any]:
        if self._registry is None:
            raise Undecodable(
                f"schema id {schema_id} in the Confluent wire format, but no schema registry is configured: "
                "set TAILRACE_SCHEMA_REGISTRY_URL, or write in single-object encoding"
            )
        try:
            schema = self._registered(self._registry, schema_id)
        except LogUnavailable:
            for name in EVENTS:
                if self._ids.get(self._subject(name), avro.fingerprint(name)) == schema_id:
                    return name, None
            raise
        name = f"{schema.get('namespace')}.{schema.get('name')}"
        if name not in EVENTS:
            raise Undecodable(f"unknown schema: id {schema_id} is {name}, no event of this release")
        try:
            parsed = avro.parse(schema)
        except Exception as error:
            # A schema in the registry may be invalid, or refer to another schema.
            raise Undecodable(f"schema id {schema_id} can't be used: {_one_line(error)}") from error
        is_ours = avro.fingerprint_of(schema) == avro.fingerprint(name)
        self._by_id[schema_id] = (name, None if is_ours else parsed)
        return self._by_id[schema_id]

    @staticmethod
    def _registered(registry: SchemaRegistryClient, schema_id: int) -> dict[str, Any]:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            text = registry.get_schema(schema_id).schema_str
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise Undecodable(f"the schema registry has no schema id {schema_id}") from error
            raise LogUnavailable(f"the schema registry can't be asked: {_one_line(error)}") from error
        except Exception as error:
            # A failed lookup may succeed later: do not treat the event as garbage.
            raise LogUnavailable(f"the schema registry can't be reached: {_one_line(error)}") from error
        try:
            schema = json.loads(text or "{}")
        except ValueError:
            schema = None
        if not isinstance(schema, dict):
            raise Undecodable(f"unknown schema: id {schema_id} is no Avro record")
        return schema


def _resolve(name: str, writer: Any, value: bytes, start: int) -> Event:
    """Decodes an event of another release; it must be all that follows."""
    event, end = read_resolved(name, writer, value, start)
    if end != len(value):
        raise ValueError(f"{len(value) - end} bytes follow the event")
    return event


def _header_of(value: bytes, start: int) -> Header | None:
    """Returns the Header at the beginning of every event, whatever follows; None if there is none."""
    import fastavro

    try:
        schema: Any = avro.parsed()[Header.AVRO_NAME]
        return msgspec.convert(fastavro.schemaless_reader(io.BytesIO(value[start:]), schema, None), Header)
    except Exception:
        # fastavro raises many types of errors for garbage.
        return None


def _to_undecodable(name: str, error: Exception) -> Undecodable:
    if isinstance(error, (IndexError, EOFError, struct.error)):
        return Undecodable(f"broken {name}: its bytes end before the event does")
    # Garbage raises many types of errors (ValueError, IndexError, UnicodeDecodeError, ...): all are the writer's fault.
    return Undecodable(f"broken {name}: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:_LONGEST_REASON]}"
