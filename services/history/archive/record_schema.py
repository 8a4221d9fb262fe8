"""The Avro record that an exported log consists of: an offset, and what the log holds there.

    tailrace.LogEntry
        offset  long
        value   null | bytes        the bytes of what is no event, as they lie in the log; null: it has no bytes either
        event   null | every event  with every type that is referred to written out where it is first used
        check   null | fixed(4)     in the last entry of each block: CRC-32, big-endian, of what lies before this field
                                    in the block; Avro's own blocks would not show that a bit has flipped

An event's place in the union is its place in the schema of the file: types are known by their names, in files of other
releases too.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from ....schemas import avro, binary
from ....schemas.catalog import EVENTS
from ....schemas.event import Event
from ....schemas.resolution import read_resolved

NAME = "tailrace.LogEntry"
FIELDS = ("offset", "value", "event", "check")
CHECK = b"\x02"
"""The branch of `check` that its four bytes follow."""
NO_CHECK = b"\x00"

ReadEvent = Callable[[bytes, int], tuple[Event, int]]
"""(block, where in it) -> the event there, and where it ends."""


@functools.cache
def schema_text() -> str:
    """The schema with all types in it, as files of this release have it."""
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
def branches() -> Mapping[str, int]:
    """Event -> its branch in the union of a file of this release."""
    return {name: index for index, name in enumerate(EVENTS, start=1)}


class UnknownType(Exception):
    """The name of an event that this release does not know."""


class SchemaReaders:
    """How the events of a file are read, by their branch: by our own readers where the file's schema of an event is
    this release's, else by fastavro, which makes of the writer's schema and ours what Avro's rules say."""

    def __init__(self, text: str) -> None:
        """Raises ValueError where the schema is not one of a log."""
        schema = json.loads(text)
        fields = {each["name"]: each["type"] for each in schema["fields"]}
        if f"{schema.get('namespace')}.{schema['name']}" != NAME or tuple(fields) != FIELDS:
            raise ValueError(f"its schema is not that of a {NAME}")
        union = [each for each in fields["event"] if each != "null"]
        self._ours = text == schema_text()
        self._definitions = {} if self._ours else _definitions(union)
        self._names = list(EVENTS) if self._ours else [_full_name(each) for each in union]
        self._known: dict[int, ReadEvent] = {}

    def __getitem__(self, branch: int) -> ReadEvent:
        """Raises IndexError for a branch that there is not, UnknownType."""
        read = self._known.get(branch)
        if read is None:
            if branch < 1:
                raise IndexError(f"a branch {branch} that its union does not have")
            read = self._known[branch] = self._reader(self._names[branch - 1])
        return read

    def _reader(self, name: str) -> ReadEvent:
        if name not in EVENTS:
            raise UnknownType(name)
        if self._ours:
            return binary.reader_among_others(name)
        written: Any = avro.inlined(name, self._definitions)
        if avro.fingerprint_of(written) == avro.fingerprint(name):
            return binary.reader_among_others(name)
        return functools.partial(read_resolved, name, avro.parse(written))


def _full_name(schema: Mapping[str, Any]) -> str:
    name: str = schema["name"]
    return name if "." in name else f"{schema.get('namespace', 'tailrace')}.{name}"


def _definitions(union: list[Any]) -> dict[str, Any]:
    """Every named type of the schemas by its full name, others referred to by name."""
    found: dict[str, Any] = {}

    def taken(node: Any) -> Any:
        if isinstance(node, list):
            return [taken(each) for each in node]
        if not isinstance(node, dict):
            return node
        out = {
            key: taken(value) if key in ("type", "items", "values", "fields") else value
            for key, value in node.items()
        }
        if "name" in node and node.get("type") in ("record", "enum", "fixed"):
            found[_full_name(node)] = out
            return _full_name(node)
        return out

    taken(union)
    return found
