"""An exported log as lines of JSON: to look at, to search, and to hand to any program.

    {"tailrace_log": 1, "cluster": ..., "check": "..."}                                  the description, padded
    {"offset": 0, "type": "...", "header": {...}, "body": {...}, "check": "..."}         an event
    {"offset": 1, "value": "...", "check": "..."}                                        what is no event, in base64

`check` is the CRC-32 of what lies before it on its line, in hexadecimal. Bytes are in base64, times in microseconds
since the epoch. Where a body holds a number that JSON has no word for (NaN, an infinity), `value` has the event as the
log has it, and counts. Lines are in the order of offsets: a place is found by halving the file.
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ....schemas import avro
from ....schemas.body import Body
from ....schemas.catalog import EVENTS
from ....schemas.event import Event, Record
from ....schemas.types import Header
from ...log.codec import Codec
from ...log.event_log import LARGEST_EVENT, Unreadable
from .errors import CorruptArchive, NotAnArchive, UnknownEventType
from .manifest import ArchiveManifest, Item, padded, parse_description

MAGIC = b"{"
_CHECK = b',"check":"%08x"}'
_CHECK_SIZE = len(_CHECK % 0)
_OFFSET = re.compile(rb'\{"offset":(-?\d+)[,}]')
_LONGEST = 8 * LARGEST_EVENT
"""Bytes of a line: a character may take six."""
_BATCH = 1_000
_NEAR = 1 << 20
"""Bytes that are read rather than halved."""
_PREFIX = "tailrace."


class JsonLinesWriter:
    """Writes into a file that can be sought."""

    def __init__(self, file: BinaryIO, description: ArchiveManifest) -> None:
        """`description`: as far as it is known."""
        self._file = file
        file.write(_head(description))

    def write(self, items: Sequence[Item]) -> None:
        """The next ones, in order. Raises OSError."""
        lines = []
        for item in items:
            line = self._event(item) if isinstance(item, Record) else _bytes(item)
            lines.append(b"%b%b\n" % (line, _CHECK % zlib.crc32(line)))
        self._file.writelines(lines)

    def finish(self, description: ArchiveManifest) -> None:
        """What the file says of itself."""
        self._file.seek(0)
        self._file.write(_head(description))

    def abandon(self) -> None:
        """Nothing more is written."""

    def _event(self, record: Record) -> bytes:
        body = record.body
        name = body.AVRO_NAME
        line = b'{"offset":%d,"type":"%b","header":%b,"body":%b' % (
            record.offset,
            name.removeprefix(_PREFIX).encode(),
            _encode(record.header),
            _encode(body),
        )
        if name in _with_doubles() and _is_beyond_json(body):
            value = _codec().encode(Event(record.header, body))
            line += b',"value":%b' % _encode(value)
        return line


class _Line(msgspec.Struct):
    offset: int
    type: str | None = None
    header: msgspec.Raw = msgspec.Raw()
    body: msgspec.Raw = msgspec.Raw()
    value: bytes | None = None


class JsonLinesReader:
    """Reads a file of any release that is compatible; for one thread."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        """Raises NoArchive; DamagedArchive where nothing can be read of it."""
        self._path = path
        self._file = file
        head = file.readline(_LONGEST)
        self._start = len(head)
        if not head.startswith(b'{"tailrace_log":'):
            raise NotAnArchive(
                f"{path} is no exported log: its first line does not begin with "
                '{"tailrace_log":; `tailrace log export` writes one'
            )
        text = head.removesuffix(b"\n").rstrip(b" ")
        why = _fault(text)
        if why is not None:
            raise CorruptArchive(path, "line 1 (its description)", why, None)
        self.description: ArchiveManifest = parse_description(path, text)
        self._lines = msgspec.json.Decoder(_Line)
        self._headers = msgspec.json.Decoder(Header)
        self._bodies: dict[str, msgspec.json.Decoder[Body]] = {}

    def read(self, start: int) -> Iterator[list[Item]]:
        """All from offset `start` on. Raises DamagedArchive, UnknownEvent when it comes to it."""
        at = self._find(start)
        self._file.seek(at)
        last: int | None = None
        batch: list[Item] = []
        description = self.description
        while line := self._file.readline(_LONGEST):
            why = _fault(line.removesuffix(b"\n"))
            try:
                item = self._item(line) if why is None else None
            except (msgspec.DecodeError, ValueError) as error:
                item, why = None, " ".join(str(error).split())
            except UnknownEventType:
                if batch:
                    yield batch
                raise
            if item is None or not self._follows(item.offset, last, at):
                if batch:
                    yield batch
                raise self._damaged(at, why or f"offset {item.offset if item else '?'} is not the next one")
            last = item.offset
            at += len(line)
            if last < start:
                continue
            batch.append(item)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
        reached = description.first - 1 if last is None and at == self._start else last
        if reached is not None and reached != description.last:
            raise self._damaged(at, f"it ends after offset {reached}, and should with {description.last}")

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()

    def _follows(self, offset: int, last: int | None, at: int) -> bool:
        """Whether the offset may stand on the line behind that of `last`; None: that was not read."""
        if last is None:
            return at != self._start or offset == self.description.first
        return offset == last + 1 or (offset > last and self._has_gaps)

    @property
    def _has_gaps(self) -> bool:
        return not self.description.whole or self.description.gaps > 0

    def _item(self, line: bytes) -> Item:
        """Raises DecodeError, ValueError (Undecodable); UnknownEvent."""
        found = self._lines.decode(line)
        if found.type is None:
            return Unreadable(
                str(self._path), 0, found.offset, "no event when it was exported", None, found.value
            )
        if found.value is not None:
            event = _codec().decode(found.value)
            return Record(found.offset, event.header, event.body)
        body = self._bodies.get(found.type)
        if body is None:
            kind = EVENTS.get(_PREFIX + found.type)
            if kind is None:
                raise UnknownEventType(self._path, found.offset, found.type)
            body = self._bodies[found.type] = msgspec.json.Decoder(kind)
        return Record(found.offset, self._headers.decode(found.header), body.decode(found.body))

    def _find(self, offset: int) -> int:
        """Where a line begins that is not behind that of `offset`, and not far before it."""
        low, high = self._start, self._file.seek(0, 2)
        while high - low > _NEAR:
            middle = (low + high) // 2
            self._file.seek(middle)
            behind = middle + len(self._file.readline(_LONGEST))
            found = _OFFSET.match(self._file.readline(_LONGEST))
            if found is None or behind >= high or int(found.group(1)) > offset:
                # What is damaged is met on the way, if it lies before the offset.
                high = middle
            else:
                low = behind
        return low

    def _damaged(self, at: int, why: str) -> CorruptArchive:
        """At that byte."""
        number = 1
        self._file.seek(0)
        left = at
        while left > 0 and (chunk := self._file.read(min(left, _NEAR))):
            number += chunk.count(b"\n")
            left -= len(chunk)
        return CorruptArchive(self._path, f"byte {at:,} (line {number:,})", why, self._last_before(at))

    def _last_before(self, at: int) -> int | None:
        """The offset on the last good line before that byte."""
        begin = max(self._start, at - _LONGEST)
        self._file.seek(begin)
        for line in reversed(self._file.read(at - begin).splitlines()):
            if _fault(line) is None and (found := _OFFSET.match(line)):
                return int(found.group(1))
        return None


_encode = msgspec.json.Encoder().encode


@functools.cache
def _codec() -> Codec:
    return Codec("")


def _head(description: ArchiveManifest) -> bytes:
    text = _encode(description).removesuffix(b"}")
    return padded(text + _CHECK % zlib.crc32(text)) + b"\n"


def _bytes(item: Unreadable) -> bytes:
    return b'{"offset":%d,"value":%b' % (item.offset, _encode(item.value))


def _fault(line: bytes) -> str | None:
    """What is wrong with the bytes of a line; None: they are what was written."""
    text = memoryview(line)[:-_CHECK_SIZE]
    if len(line) <= _CHECK_SIZE or not line.endswith(b'"}') or line[-_CHECK_SIZE:-10] != _CHECK[:-6]:
        return "the line has no checksum at its end"
    if line[-10:-2] != b"%08x" % zlib.crc32(text):
        return "the line's checksum is another"
    return None


@functools.cache
def _with_doubles() -> frozenset[str]:
    """The events that may hold a double, somewhere."""
    return frozenset(name for name in EVENTS if _has_double(avro.standalone(name)))


def _has_double(node: Any) -> bool:
    match node:
        case "double" | "float":
            return True
        case Mapping():
            return any(_has_double(node.get(key)) for key in ("type", "items", "values", "fields"))
        case list():
            return any(map(_has_double, node))
        case _:
            return False


def _is_beyond_json(value: Any) -> bool:
    """Whether a number in it is none to JSON."""
    match value:
        case float():
            return not math.isfinite(value)
        case msgspec.Struct():
            return any(_is_beyond_json(getattr(value, name)) for name in value.__struct_fields__)
        case Mapping():
            return any(map(_is_beyond_json, value.values()))
        case tuple() | list():
            return any(map(_is_beyond_json, value))
        case _:
            return False
