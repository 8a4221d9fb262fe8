"""The history index as a file: states at marks of a log, in SQLite.

    about(name, value)                                            whose index it is, and what wrote it
    marks(offset, last, event_id, event_time, latest, awake, checksum)
    pieces(address, field, key, since, until, crc, data)          a piece of a state (snapshots/pieces.py)
    stretches(offset, before, crc, data)                          what stories need of the events up to a mark, from the
                                                                  one `before` on (story/memory.py)

A piece is that of all marks from `since` to below `until`, so a mark costs what has changed since the one before.
SQLite does not notice when a byte of it has turned over. So each row of a mark's pieces has a CRC-32, and the mark the
sum of all of them: what is read is what was written, and all of it, or Damaged.

Several processes may write the same file: marks follow from the log alone, so whoever is first has written what the
others were about to.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from ...snapshots.state_delta import Key
from .sqlite import (
    CorruptIndex,
    IndexUnavailable,
    OutdatedIndex,
    compress,
    decompress,
    one_line,
    transaction,
    translate_errors,
)

FORMAT = 2
RELEASE = "release"
"""What of `about` may change without a word to anybody."""
_FOR_EVER = (1 << 62) - 1
_SUMS = 1 << 62
_PATIENCE_S = 5.0
_TABLES = f"""
CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE marks(
    "offset" INTEGER PRIMARY KEY, last INTEGER NOT NULL, event_id TEXT NOT NULL, event_time INTEGER NOT NULL,
    latest INTEGER NOT NULL, awake TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE pieces(
    address TEXT NOT NULL, field TEXT NOT NULL, key BLOB NOT NULL, since INTEGER NOT NULL,
    until INTEGER NOT NULL DEFAULT {_FOR_EVER}, crc INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY(address, field, key, since)) WITHOUT ROWID;
CREATE TABLE stretches("offset" INTEGER PRIMARY KEY, before INTEGER, crc INTEGER NOT NULL, data BLOB NOT NULL);
"""


ChangedStates = Iterable[tuple[str, Mapping[Key, bytes | None]]]
"""(address, its pieces that are others than at the mark before; None: is none any more)."""


class IndexMark(msgspec.Struct, frozen=True):
    """A place of the log whose states are kept: those behind all events up to `offset`."""

    offset: int
    last: int
    """The offset of the last event; what lies between is none."""
    event_id: str
    """Of that event, and its time: another log has another one there."""
    event_time: int
    latest: int
    """The highest time of all events up to here, in microseconds since the epoch."""
    awake: str
    """The addresses whose states are not at rest, as JSON."""
    checksum: int = 0
    """What the pieces and this row add up to."""


class IndexSegment(msgspec.Struct, frozen=True):
    """What stories need of the events up to the mark at `offset`, from behind the mark `before` on; None: the first."""

    offset: int
    before: int | None
    data: bytes


class StateIndexFile:
    """An open index. All methods raise Damaged and OutOfReach. For one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, *, writable: bool) -> None:
        self._connection = connection
        self.writable = writable

    @classmethod
    def open(cls, path: Path, about: Mapping[str, str]) -> Self:
        """The index at the path; a new one if there is none, and an unwritable one where nothing can be written.

        `about`: what it must say of itself.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return cls._opened(path, about, writable=True)
        except (IndexUnavailable, OSError) as error:
            if not path.is_file():
                raise IndexUnavailable(one_line(error)) from error
        return cls._opened(path, about, writable=False)

    @classmethod
    def _opened(cls, path: Path, about: Mapping[str, str], *, writable: bool) -> Self:
        with translate_errors():
            uri = f"{path.absolute().as_uri()}?mode={'rwc' if writable else 'ro'}"
            connection = sqlite3.connect(
                uri, timeout=_PATIENCE_S, isolation_level=None, uri=True, check_same_thread=False
            )
        found = cls(connection, writable=writable)
        try:
            with translate_errors():
                # A process that is killed leaves a journal, which is enough; what a power cut leaves is looked through.
                connection.execute("PRAGMA synchronous = OFF")
                if writable and found._is_empty():
                    found._create(about)
                said = dict(connection.execute("SELECT name, value FROM about").fetchall())
            if said != dict(about):
                different = sorted(name for name in {*said, *about} if said.get(name) != about.get(name))
                kind = OutdatedIndex if different == [RELEASE] else CorruptIndex
                raise kind(f"it was made for another {', '.join(different)}".replace("_", " "))
        except BaseException:
            connection.close()
            raise
        return found

    def _is_empty(self) -> bool:
        return bool(self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,))

    def _create(self, about: Mapping[str, str]) -> None:
        with transaction(self._connection):
            if self._is_empty():
                for statement in filter(None, map(str.strip, _TABLES.split(";"))):
                    self._connection.execute(statement)
                self._connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())

    def newest(self, at_most: int) -> IndexMark | None:
        """The mark with the highest offset that is not above."""
        return self._mark('WHERE "offset" <= ? ORDER BY "offset" DESC LIMIT 1', at_most)

    def not_after(self, time: int) -> IndexMark | None:
        """The mark with the highest offset up to which no event has a time above."""
        return self._mark('WHERE latest <= ? ORDER BY "offset" DESC LIMIT 1', time)

    def _mark(self, where: str, wanted: int) -> IndexMark | None:
        with translate_errors():
            row = self._connection.execute(
                f'SELECT "offset", last, event_id, event_time, latest, awake, checksum FROM marks {where}',
                (max(min(wanted, _FOR_EVER), -_FOR_EVER),),
            ).fetchone()
            return None if row is None else msgspec.convert(dict(zip(_FIELDS, row, strict=True)), IndexMark)

    def states(self, mark: IndexMark) -> dict[str, dict[Key, bytes]]:
        """Address -> the pieces of its state at the mark."""
        found: dict[str, dict[Key, bytes]] = {}
        total = _crc_of(mark)
        with translate_errors():
            rows = self._connection.execute(
                "SELECT address, field, key, data FROM pieces WHERE since <= ? AND until > ?",
                (mark.offset, mark.offset),
            )
            for address, field, key, kept in rows:
                data = decompress(kept)
                total += _crc(address, field, key, data)
                found.setdefault(address, {})[field, key] = data
        if total % _SUMS != mark.checksum:
            raise CorruptIndex(f"its states at offset {mark.offset} are not those that were written")
        return found

    def write(self, mark: IndexMark, before: int | None, changed: ChangedStates) -> None:
        """Adds a mark: `changed` has the pieces by address that are not as at the mark of offset `before`.

        Does nothing where another process has written it. Raises OutOfReach, too, where marks before it are gone.
        """
        with translate_errors(), transaction(self._connection):
            last = self.newest(_FOR_EVER)
            if last is not None and last.offset >= mark.offset:
                return
            if (None if last is None else last.offset) != before:
                raise IndexUnavailable("another process has begun it anew")
            total = 0 if last is None else last.checksum - _crc_of(last)
            for address, pieces in changed:
                for (field, key), data in pieces.items():
                    total += self._put(mark.offset, address, field, key, data)
            values = [getattr(mark, name) for name in _FIELDS[:-1]]
            self._connection.execute(
                "INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, (total + _crc_of(mark)) % _SUMS)
            )

    def _put(self, offset: int, address: str, field: str, key: bytes, data: bytes | None) -> int:
        """Ends the piece that was there, and begins the one that is; returns what that adds to the sum."""
        execute, which = self._connection.execute, (address, field, key)
        added = 0
        row = execute(
            f"SELECT since, crc FROM pieces WHERE address = ? AND field = ? AND key = ? AND until = {_FOR_EVER} "
            "ORDER BY since DESC LIMIT 1",
            which,
        ).fetchone()
        if row is not None:
            since, crc = row
            execute(
                "UPDATE pieces SET until = ? WHERE address = ? AND field = ? AND key = ? AND since = ?",
                (offset, *which, since),
            )
            added -= crc
        if data is not None:
            crc = _crc(address, field, key, data)
            execute(
                "INSERT INTO pieces(address, field, key, since, crc, data) VALUES (?, ?, ?, ?, ?, ?)",
                (*which, offset, crc, compress(data)),
            )
            added += crc
        return added

    def stretches(self, at_most: int) -> list[IndexSegment]:
        """Those up to the newest mark that has one and is not above, from the log's first event on without a gap."""
        found: list[IndexSegment] = []
        with translate_errors():
            rows = self._connection.execute(
                'SELECT "offset", before, crc, data FROM stretches WHERE "offset" <= ? ORDER BY "offset"',
                (at_most,),
            )
            for offset, before, crc, kept in rows:
                if before != (found[-1].offset if found else None):
                    break
                data = decompress(kept)
                if zlib.crc32(data, offset & 0xFFFFFFFF) != crc:
                    raise CorruptIndex(
                        f"what it has of the events before offset {offset} is not what was written"
                    )
                found.append(IndexSegment(offset, before, data))
        return found

    def write_stretch(self, stretch: IndexSegment) -> None:
        """Adds what stories need of the events up to a mark. Does nothing where another process has written it."""
        with translate_errors():
            self._connection.execute(
                "INSERT OR IGNORE INTO stretches VALUES (?, ?, ?, ?)",
                (
                    stretch.offset,
                    stretch.before,
                    zlib.crc32(stretch.data, stretch.offset & 0xFFFFFFFF),
                    compress(stretch.data),
                ),
            )

    def close(self) -> None:
        """Gives the file back."""
        self._connection.close()


def remove(path: Path) -> None:
    """Deletes an index, whatever it is. Raises OutOfReach."""
    try:
        # First the journal: SQLite would play it back into the file that comes next.
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise IndexUnavailable(one_line(error)) from error


def _crc(address: str, field: str, key: bytes, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%b\0%b\0%b" % (address.encode(), field.encode(), key)))


def _crc_of(mark: IndexMark) -> int:
    return zlib.crc32(repr([getattr(mark, name) for name in _FIELDS[:-1]]).encode())


_FIELDS = IndexMark.__struct_fields__
