"""The messages of the changelog: a change of the entries of one table, as one Arrow record batch.

A message has a head and a payload. The head has the kind of change (ChangeKind), the table, and a fingerprint of the
layout of its entries, so that state is never read as another type. The payload is an Arrow record batch without its
schema; a message of kind SCHEMA carries the schema once (table_schema.py).

No message is larger than LIMIT: batches are cut by rows, and a row that is too large is cut into fragments, which are
complete by the end of their transaction.
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
# Rows are divided by their size in memory, which is about that in a message; the margin is for the overhead of the
# message.
_TARGET_MESSAGE_BYTES: Final = 800_000


class ChangeKind(IntEnum):
    """The kind of change of the entries of a message."""

    PUT = 1
    """An entry was set, or appended to a list."""
    REMOVE = 2
    CLEAR = 3
    """The map or list of a key was removed."""
    DROP = 4
    """A namespace of a table was removed."""
    TIME = 5
    """The times that the operator has reached; belongs to no table."""
    FRAGMENT = 6
    """A part of a message; more follow."""
    LAST_FRAGMENT = 7
    SCHEMA = 8
    """The schema of the entries with a fingerprint."""
    PART = 9
    """The part of the following messages that is taken (type_coverage.py), up to the next of this kind; belongs to
    no table."""


class ChangelogMessage(msgspec.Struct, frozen=True):
    """A decoded message."""

    kind: ChangeKind
    table: str
    fingerprint: int
    payload: bytes


class StateChange(msgspec.Struct, frozen=True):
    """A change of some entries of a table."""

    kind: ChangeKind
    entries: pa.RecordBatch


def compute_fingerprint(description: str) -> int:
    """Returns the fingerprint of a table's layout, as releases without stored schemas wrote it."""
    return zlib.crc32(description.encode())


def write(table: str, fingerprint: int, changes: Iterable[StateChange]) -> Iterator[bytes]:
    """Yields the changes as messages, none larger than LIMIT."""
    name = table.encode()
    for change in changes:
        head = _HEAD.pack(_FORMAT, change.kind, len(name), fingerprint) + name
        for payload in _cut(change.entries, MAX_MESSAGE_BYTES - len(head)):
            yield from _fragments(head + payload)


def rewrite(message: ChangelogMessage) -> Iterator[bytes]:
    """Yields a message that was read, for writing it again."""
    name = message.table.encode()
    head = _HEAD.pack(_FORMAT, message.kind, len(name), message.fingerprint) + name
    yield from _fragments(head + message.payload)


def time_message(times: EventTimes) -> bytes:
    """Returns the message with the times that the operator has reached."""
    return _HEAD.pack(_FORMAT, ChangeKind.TIME, 0, 0) + times.to_bytes()


def part_message(taking: Taking | None) -> bytes:
    """Returns the message that says which part of the following messages to take; None: all."""
    return _HEAD.pack(_FORMAT, ChangeKind.PART, 0, 0) + (b"" if taking is None else taking.to_bytes())


def read_entries(payload: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the entries of a message. Raises ValueError."""
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"the changelog holds {len(payload)} bytes that are not entries: {error}") from error


class ChangelogReader:
    """Decodes messages, and joins fragments."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, data: bytes) -> ChangelogMessage | None:
        """Returns the message; None for a fragment that more follow. Raises ValueError for invalid bytes."""
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
            f"the changelog holds {len(data)} bytes that begin {data[:8].hex()}: not a change of state"
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
