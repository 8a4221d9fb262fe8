"""Messages of the changelog: what happened to the entries of one table, as one Arrow record batch.

A message is a head and a payload. The head says what happened (Kind), to which table, and how that table's entries
were laid out (a fingerprint), so that state is never read as something that it is not. The payload is an Arrow record
batch without its schema; a message of kind SCHEMA says it once (table_schema.py).

No message is larger than LIMIT: batches are cut by rows, and a row that is too large is cut into fragments, which are
whole again by the end of the transaction they are in.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final

import msgspec
import pyarrow as pa

from .event_times import EventTimes
from .type_coverage import Taking

MAX_MESSAGE_BYTES: Final = 900_000
"""Bytes of a message: well below Kafka's usual limit of 1 MiB."""

_HEAD: Final = struct.Struct("<BBHI")
_FORMAT: Final = 1
# Rows are cut by their size in memory, which is about that on the wire; the room is for what is added there.
_TARGET_MESSAGE_BYTES: Final = 800_000


class ChangeKind(IntEnum):
    """What happened to the entries of a message."""

    PUT = 1
    """Set, or appended to a list."""
    REMOVE = 2
    CLEAR = 3
    """All that a map or list held for a key."""
    DROP = 4
    """All that a table held in a namespace."""
    TIME = 5
    """The times that were reached; of no table."""
    FRAGMENT = 6
    """A part of a message; more follow."""
    LAST_FRAGMENT = 7
    SCHEMA = 8
    """What the entries of a fingerprint are made of."""
    PART = 9
    """What of the messages that follow is to be taken (taking.py), up to the next of this kind; of no table."""


class ChangelogMessage(msgspec.Struct, frozen=True):
    """A message, taken apart."""

    kind: ChangeKind
    table: str
    fingerprint: int
    payload: bytes


class StateChange(msgspec.Struct, frozen=True):
    """What happened to some entries of a table."""

    kind: ChangeKind
    entries: pa.RecordBatch


def compute_fingerprint(description: str) -> int:
    """Of a table's layout, as releases wrote it that stored no schema."""
    return zlib.crc32(description.encode())


def write(table: str, fingerprint: int, changes: Iterable[StateChange]) -> Iterator[bytes]:
    """The changes as messages, none larger than LIMIT."""
    name = table.encode()
    for change in changes:
        head = _HEAD.pack(_FORMAT, change.kind, len(name), fingerprint) + name
        for payload in _cut(change.entries, MAX_MESSAGE_BYTES - len(head)):
            yield from _fragments(head + payload)


def rewrite(message: ChangelogMessage) -> Iterator[bytes]:
    """A message that was read, again."""
    name = message.table.encode()
    head = _HEAD.pack(_FORMAT, message.kind, len(name), message.fingerprint) + name
    yield from _fragments(head + message.payload)


def time_message(times: EventTimes) -> bytes:
    """Says which times were reached."""
    return _HEAD.pack(_FORMAT, ChangeKind.TIME, 0, 0) + times.to_bytes()


def part_message(taking: Taking | None) -> bytes:
    """Says what of the messages that follow is to be taken; None: all of it."""
    return _HEAD.pack(_FORMAT, ChangeKind.PART, 0, 0) + (b"" if taking is None else taking.to_bytes())


def read_entries(payload: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The entries that a message carries. Raises ValueError."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the changelog holds {len(payload)} bytes that are no entries: {error}") from error


class ChangelogReader:
    """Takes messages apart, fragments together."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, data: bytes) -> ChangelogMessage | None:
        """The message; None for a fragment that more follow. Raises ValueError for what is no message."""
        message = _parse(data)
        if message.kind is ChangeKind.FRAGMENT:
            self._parts.append(message.payload)
            return None
        if message.kind is ChangeKind.LAST_FRAGMENT:
            whole = b"".join([*self._parts, message.payload])
            self._parts.clear()
            return _parse(whole)
        return message


def _parse(data: bytes) -> ChangelogMessage:
    if len(data) < _HEAD.size or data[0] != _FORMAT:
        raise ValueError(
            f"the changelog holds {len(data)} bytes that begin {data[:8].hex()}: no change of state"
        )
    _, kind, name_length, fingerprint = _HEAD.unpack_from(data)
    try:
        known = ChangeKind(kind)
    except ValueError:
        raise ValueError(f"the changelog holds a message of unknown kind {kind}") from None
    payload_at = _HEAD.size + name_length
    return ChangelogMessage(known, data[_HEAD.size : payload_at].decode(), fingerprint, data[payload_at:])


def _cut(entries: pa.RecordBatch, limit: int) -> Iterator[bytes]:
    rows = entries.num_rows
    if rows > 1 and entries.nbytes > _TARGET_MESSAGE_BYTES:
        halves = True
    else:
        payload = bytes(entries.serialize())
        halves = rows > 1 and len(payload) > limit
    if halves:
        middle = rows // 2
        yield from _cut(entries.slice(0, middle), limit)
        yield from _cut(entries.slice(middle), limit)
    else:
        yield payload


def _fragments(message: bytes) -> Iterator[bytes]:
    if len(message) <= MAX_MESSAGE_BYTES:
        yield message
        return
    size = MAX_MESSAGE_BYTES - _HEAD.size
    for start in range(0, len(message), size):
        kind = ChangeKind.FRAGMENT if start + size < len(message) else ChangeKind.LAST_FRAGMENT
        yield _HEAD.pack(_FORMAT, kind, 0, 0) + message[start : start + size]
