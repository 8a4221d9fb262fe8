"""The Avro record that an exported log consists of: an offset, and what the log holds there.

    tailrace.LogEntry
        offset  long
        value   null | bytes        the bytes of a value that is no event; null: the log's record has no bytes either,
                                    or is an event that the key of its message contradicts
        event   null | every event  each named type is written out where it is first used
        check   null | fixed(4)     in the last entry of each block: CRC-32, big-endian, of the block's bytes before
                                    this field; Avro's own blocks do not show that a bit has flipped

A file of another release has another union. A reader finds an event's type by its name.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from ....schemas import avro, binary
from ....schemas.catalog import EVENTS
from ....schemas.event import Event
from ....schemas.resolution import read_resolved

NAME = "tailrace.LogEntry"
CHECK = b"\x02"
"""The branch of `check` that its four bytes follow."""
NO_CHECK = b"\x00"
_FIELDS = ("offset", "value", "event", "check")

ReadEvent = Callable[[bytes, int], tuple[Event, int]]
"""(block, place in it) -> the event there, and where it ends."""


@functools.cache
def schema_text() -> str:
    """The schema in files of this release, with all types in it."""
    fields = [
        {"name": "offset", "type": "long", "doc": "The entry's offset in the log."},
        {
            "name": "value",
            "type": ["null", "bytes"],
            "doc": "The bytes of what is no event that can be read; null where the record of the log has none either.",
        },
        {"name": "event", "type": ["null", *avro.written_out(EVENTS)], "doc": "The event; null: see value."},
        {
            "name": "check",
            "type": ["null", {"type": "fixed", "name": "tailrace.Check", "size": 4}],
            "doc": "In a block's last entry: CRC-32 of the block's bytes before this field's, big-endian.",
        },
    ]
    schema = {
        "type": "record",
        "name": "LogEntry",
        "namespace": "tailrace",
        "doc": "What the log of a cluster holds at an offset.",
        "fields": fields,
    }
    return json.dumps(schema, separators=(",", ":"))


@functools.cache
def schema_digest() -> str:
    """Identifies the schema of this release."""
    return hashlib.blake2b(schema_text().encode(), digest_size=8).hexdigest()


@functools.cache
def branches() -> Mapping[str, int]:
    """Event -> its branch in the union of a file of this release."""
    return {name: index for index, name in enumerate(EVENTS, start=1)}


class UnknownType(Exception):
    """The name of an event that this release does not know."""


class SchemaReaders:
    """The readers of a file's events, by branch: a compiled one where the file's schema of an event is this release's;
    else fastavro resolves the writer's schema to ours (Avro, "Schema Resolution"), which takes much longer."""

    def __init__(self, text: str, digest: str | None) -> None:
        """`text`: the file's schema; `digest`: what identifies it. Raises ValueError, KeyError or TypeError if the
        schema is not one of a log."""
        self._is_ours = digest == schema_digest()
        self._names = list(EVENTS)
        self._definitions: dict[str, Any] = {}
        if not self._is_ours:
            schema = json.loads(text)
            types = {field["name"]: field["type"] for field in schema["fields"]}
            if _full_name(schema) != NAME or tuple(types) != _FIELDS:
                raise ValueError(f"its schema is not that of a {NAME}")
            self._names = [
                _named_type(type_, self._definitions) for type_ in types["event"] if type_ != "null"
            ]
        self._readers: dict[int, ReadEvent] = {}

    def __getitem__(self, branch: int) -> ReadEvent:
        """Raises IndexError for a branch outside the union, UnknownType."""
        read = self._readers.get(branch)
        if read is None:
            if not 0 < branch <= len(self._names):
                raise IndexError(f"a branch {branch} that its union does not have")
            read = self._readers[branch] = self._reader(self._names[branch - 1])
        return read

    def _reader(self, name: str) -> ReadEvent:
        if name not in EVENTS:
            raise UnknownType(name)
        if self._is_ours:
            return binary.reader_among_others(name)
        written = avro.inlined(name, self._definitions)
        if avro.fingerprint_of(written) == avro.fingerprint(name):
            return binary.reader_among_others(name)
        return functools.partial(read_resolved, name, avro.parse(written))


@functools.lru_cache(4)
def schema_readers(text: str, digest: str | None) -> SchemaReaders:
    """The same ones for all files with that schema: to compare schemas takes some milliseconds for each event."""
    return SchemaReaders(text, digest)


def _full_name(schema: Mapping[str, Any]) -> str:
    name: str = schema["name"]
    return name if "." in name else f"{schema.get('namespace', 'tailrace')}.{name}"


def _named_type(node: Any, definitions: dict[str, Any]) -> Any:
    """The schema with each named type in it replaced by its full name, and put into `definitions`."""
    if isinstance(node, list):
        return [_named_type(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    nested = ("type", "items", "values", "fields")
    found = {key: _named_type(value, definitions) if key in nested else value for key, value in node.items()}
    if "name" not in node or node.get("type") not in ("record", "enum", "fixed"):
        return found
    definitions[_full_name(node)] = found
    return _full_name(node)
