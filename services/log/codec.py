"""Encodes events to bytes and decodes them.

Without a schema registry an event is written in Avro's single-object encoding: the marker C3 01, the CRC-64-AVRO
fingerprint of its schema (8 bytes, little-endian), the Avro body. With a registry it is written in Confluent's wire
format: a zero byte, the schema id (4 bytes, big-endian), the Avro body; subjects follow TopicRecordNameStrategy. If the
registry does not answer and the id is not cached, the event is written in single-object encoding. Readers accept both.
They also accept writers that put logical types into the fingerprint's canonical form, and earlier releases: the
writer's schema comes from the registry or, by fingerprint, from the shipped ones (`schemas/released`), and fastavro
applies Avro's schema resolution.

The codec of a log writes with the schemas of the log's feature level (`use_level`). Before the first event of a process
it writes SchemasRegistered with all schemas that the log does not have yet: the log describes itself, and a reader that
cannot read an event can name the release that can.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...infra.logging_setup import logger
from ...infra.version import __version__
from ...schemas import avro, binary, released
from ...schemas.catalog import EVENTS
from ...schemas.event import EVERYONE, Event
from ...schemas.event_schemas import EventSchema, older_schemas, schemas_of_release
from ...schemas.everyone import SchemasRegistered
from ...schemas.feature_level import FEATURE_LEVEL
from ...schemas.resolution import read_resolved
from ...schemas.types import Header, RegisteredSchema
from ..core.leadership import LeadershipState, LogSchema
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
    release: str | None = None


class UnknownSchema(Undecodable):
    """The bytes may be an event, but its schema is unknown. `header`: the Header at their beginning, if there is
    one. `release`: the release that has the schema, if the log names it."""

    def __init__(self, reason: str, header: Header | None = None, release: str | None = None) -> None:
        super().__init__(reason)
        self.header = header
        self.release = release


class _Registered(NamedTuple):
    """A schema that a SchemasRegistered event names: the event that it is of, and the release that writes with it."""

    name: str
    release: str


class Codec:
    """Writes events for one topic, reads events of any topic; thread-safe."""

    def __init__(
        self,
        topic: str,
        registry: SchemaRegistryClient | None = None,
        written_by: Callable[[bytes], released.Writer | None] = released.writer,
        ids: SchemaIds | None = None,
        resolves_unknown: bool = True,
    ) -> None:
        """`written_by` returns an earlier release's schema for a fingerprint. `ids`: the cached ids of the registry.
        `resolves_unknown`: it reads events with any schema of the registry. Not in a log: what a newer release has
        added to a schema may matter."""
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
        self._resolves_unknown = resolves_unknown
        self._level = FEATURE_LEVEL
        self._older: Mapping[str, _OlderWriter | None] = {}
        """The events whose schema at the level of the log is an older one; None: the level does not have the event."""
        self._registered_schemas: dict[str, _Registered] = {}
        """Fingerprint in hexadecimal -> schema, from the log's SchemasRegistered events."""
        self._followed: Mapping[str, LogSchema] | None = None
        """The schemas of the leadership that it follows; None: it does not follow the log."""
        self._registers = False
        """Whether the log may lack schemas of this release. A codec that does not follow the log does not know."""

    def use_level(self, level: int) -> None:
        """Writes with the schemas of this feature level from now on. Raises ValueError if no release has the level."""
        if level != self._level:
            self._older = {
                name: None if schema is None else _OlderWriter(schema, level)
                for name, schema in older_schemas(level).items()
            }
            self._level = level

    def follow(self, leadership: LeadershipState) -> None:
        """Writes with the schemas of this feature level, and knows the registered ones."""
        self.use_level(leadership.feature_level)
        if leadership.schemas is self._followed:
            return
        self._registers = self._registers or self._followed is None
        self._followed = leadership.schemas
        for fingerprint, schema in leadership.schemas.items():
            self._registered_schemas.setdefault(fingerprint, _Registered(schema.name, schema.release))

    def learn_from(self, registration: Event) -> None:
        """The log has this event: knows its schemas. Ignores any other event."""
        body = registration.body
        if isinstance(body, SchemasRegistered):
            for schema in body.schemas:
                self._registered_schemas.setdefault(
                    schema.fingerprint, _Registered(schema.name, body.release)
                )

    def registration(self, first: Event) -> Event | None:
        """Returns the SchemasRegistered event to append before `first`, an event of this process; None if the log has
        all schemas of this release, or if the codec does not follow the log. Call `learn_from` with it after it was
        appended."""
        if not self._registers:
            return None
        missing = tuple(
            RegisteredSchema(
                name=schema.name,
                fingerprint=schema.fingerprint.hex(),
                definition=json.dumps(schema.definition, separators=(",", ":")),
            )
            for schema in schemas_of_release()
            if schema.fingerprint.hex() not in self._registered_schemas
        )
        if not missing:
            self._registers = False
            return None
        header = first.header
        return Event(
            Header(
                event_id=f"{header.event_id}-schemas",
                time=header.time,
                sender=header.sender,
                sender_epoch=header.sender_epoch,
                recipient=EVERYONE,
                decided_at=header.decided_at,
            ),
            SchemasRegistered(release=__version__, schemas=missing),
        )

    def encode(self, event: Event) -> bytes:
        """Returns the event's bytes. Raises ValueError if a field does not fit its schema."""
        name = event.body.AVRO_NAME
        if name in self._older:
            return self._encode_older(event, self._older[name])
        prefix = self._prefixes.get(name) or self._prefix(name)
        try:
            return prefix + binary.functions(name).write(event)
        except (TypeError, AttributeError, KeyError, struct.error) as error:
            raise ValueError(f"{name} does not fit its schema: {_one_line(error)}") from error

    def _encode_older(self, event: Event, writer: _OlderWriter | None) -> bytes:
        if writer is None:
            raise ValueError(
                f"{event.body.AVRO_NAME} needs a higher feature level than {self._level}, the level of the log"
            )
        # In single-object encoding: the registry has the schemas of this release only.
        return writer.prefix + writer.write(event)

    def encode_all(self, events: Sequence[Event], most_bytes: int | None = None) -> list[bytes]:
        """Encodes events that are appended together: all of them, or the first ones that have at most `most_bytes`
        together, at least one. Raises EventRefused; LogUnavailable like `decode`."""
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
        if not value:
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
                raise UnknownSchema(str(error), _header_of(value, CONFLUENT_HEAD), error.release) from error
            return self._read(name, writer, value, CONFLUENT_HEAD)
        if value[:2] == SINGLE_OBJECT and len(value) >= SINGLE_OBJECT_HEAD:
            try:
                self._names[head], read = self._reader(head)
            except Undecodable as error:
                raise UnknownSchema(
                    str(error), _header_of(value, SINGLE_OBJECT_HEAD), error.release
                ) from error
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
        if name == SchemasRegistered.AVRO_NAME:
            return name, functools.partial(self._read_registration, binary.functions(name).read)
        if name is not None:
            return name, binary.functions(name).read
        fingerprint = head[len(SINGLE_OBJECT) :]
        name = avro.fingerprints_with_logical_types().get(fingerprint)
        if name is not None and name in EVENTS:
            return name, binary.functions(name).read
        found = self._written_by(fingerprint)
        if found is None:
            raise self._unknown_schema(fingerprint)
        if found.name not in EVENTS:
            raise Undecodable(
                f"unknown schema: fingerprint {fingerprint.hex()} is {found.name} of {found.release}, "
                "which is not an event of this release"
            )
        return found.name, functools.partial(_resolve, found.name, found.schema)

    def _unknown_schema(self, fingerprint: bytes) -> UnknownSchema:
        registered = self._registered_schemas.get(fingerprint.hex())
        if registered is None:
            return UnknownSchema(
                f"unknown schema: fingerprint {fingerprint.hex()} is not of an event of this release"
            )
        return UnknownSchema(
            f"unknown schema: fingerprint {fingerprint.hex()} is {registered.name} of {registered.release}",
            release=registered.release,
        )

    def _read_registration(self, read: binary.Read, value: bytes, start: int) -> Event:
        event = read(value, start)
        self.learn_from(event)
        return event

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
        if self._registry is None or name == SchemasRegistered.AVRO_NAME:
            self._prefixes[name] = single
            return single
        schema_id = self._registered_id(self._registry, name)
        if schema_id is not None:
            self._prefixes[name] = CONFLUENT + struct.pack(">I", schema_id)
            return self._prefixes[name]
        schema_id = self._ids.get(self._subject(name), avro.fingerprint(name))
        return single if schema_id is None else CONFLUENT + struct.pack(">I", schema_id)

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
                "the schema registry does not accept a schema; writes with cached ids, or without the registry",
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
            raise Undecodable(
                f"unknown schema: id {schema_id} is {name}, which is not an event of this release"
            )
        try:
            parsed = avro.parse(schema)
        except Exception as error:
            # A schema in the registry may be invalid, or refer to another schema.
            raise Undecodable(f"schema id {schema_id} is invalid: {_one_line(error)}") from error
        fingerprint = avro.fingerprint_of(schema)
        is_ours = fingerprint == avro.fingerprint(name)
        if not (is_ours or self._resolves_unknown or self._written_by(fingerprint) is not None):
            raise self._unknown_schema(fingerprint)
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
            raise LogUnavailable(f"the schema registry cannot be read: {_one_line(error)}") from error
        except Exception as error:
            # A failed lookup may succeed later: do not treat the event as garbage.
            raise LogUnavailable(f"the schema registry cannot be reached: {_one_line(error)}") from error
        try:
            schema = json.loads(text or "{}")
        except ValueError:
            schema = None
        if not isinstance(schema, dict):
            raise Undecodable(f"unknown schema: id {schema_id} is not an Avro record")
        return schema


class _OlderWriter:
    """Writes one kind of event with the schema of an earlier release."""

    def __init__(self, schema: EventSchema, level: int) -> None:
        self.prefix = SINGLE_OBJECT + schema.fingerprint
        self._name = schema.name
        self._level = level
        self._schema = avro.parse(copy.deepcopy(schema.definition))

    def write(self, event: Event) -> bytes:
        """Returns the Avro body. Raises ValueError if it does not read back as the event: a value has no place in the
        older schema."""
        import fastavro

        body = msgspec.to_builtins(event.body, builtin_types=(bytes,))
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(
                out, self._schema, {"header": msgspec.to_builtins(event.header), **body}
            )
            written = _resolve(self._name, self._schema, out.getvalue(), 0)
        except Exception as error:
            # fastavro raises many types of errors for a value that does not fit.
            raise ValueError(
                f"{self._name} does not fit its schema at feature level {self._level}: {_one_line(error)}"
            ) from error
        if written != event:
            names = [name for name in body if getattr(written.body, name) != getattr(event.body, name)]
            raise ValueError(
                f"{self._name} has values that need a higher feature level than {self._level}, the level of the log: "
                f"{', '.join(names) or 'in its header'}"
            )
        return out.getvalue()


def _resolve(name: str, writer: Any, value: bytes, start: int) -> Event:
    """Decodes an event of another release; it must be all that follows."""
    event, end = read_resolved(name, writer, value, start)
    if end != len(value):
        raise ValueError(f"{len(value) - end} bytes follow the event")
    return event


def find_sender(value: bytes) -> str | None:
    """Returns the sender that a record names, also if what follows its header cannot be read; None if it has no
    header. Nothing proves that the sender is true."""
    for framing, start in ((SINGLE_OBJECT, SINGLE_OBJECT_HEAD), (CONFLUENT, CONFLUENT_HEAD)):
        if value.startswith(framing):
            header = _header_of(value, start)
            return None if header is None else header.sender
    return None


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
