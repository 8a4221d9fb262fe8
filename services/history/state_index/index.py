"""The history index: the states of a log at marks, at regular offsets, so that each state is near a mark.

    <cluster>-<first event>-<types of the states>/
        <offset>.<latest time>.mark     the pieces of the states (snapshots/state_delta.py) that changed since the
                                        mark before; or all pieces, as soon as the changes are larger
        <offset>.segment                the data for `story` of the events between the mark before and this one
    <offset>.history                what a HistoryProjection has beside the states of the mark: the parts that changed
                                    since the file before; or all parts, as soon as the changes are larger

The index is a cache. A reader that folds a log from its beginning, or from a mark, writes the marks that it passes. The
index is on this machine, and may be deleted at any time. An index that is damaged, or of another log or release, is
deleted with a warning. If no index can be read or written, the reader continues without one.

Files are written atomically, and have a digest. Their content depends only on the log: several processes that build an
index at once write the same files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ....infra.logging_setup import logger
from ....schemas.event import Record
from ...core.replica import Replica
from ...log import EventLog, LogTruncated
from ...log.event_log import read_to_end
from ...snapshots.encoding import LEADERSHIP, decode
from ...snapshots.fingerprint import code_fingerprint, schema_fingerprint
from ...snapshots.state_delta import Key, join
from ..lazy_states import LazyStates
from ..log_position import TimeMark

INTERVAL = 5_000
"""Offsets from one mark to the next: a tail of as many events takes a tenth of a second."""
_MAX_NAME_LENGTH = 80
_DIGEST = 16
_LEVEL = 1
_MARK = re.compile(r"(\d+)\.(-?\d+)\.mark")
_SEGMENT = re.compile(r"(\d+)\.segment")
_HISTORY = re.compile(r"(\d+)\.history")
_log = logger(__name__)
T = TypeVar("T")

Pieces = dict[str, dict[Key, bytes]]
"""Address -> the pieces of its state."""


class CorruptIndex(Exception):
    """The index is damaged, or of another log; the message has the reason."""


class OutdatedIndex(CorruptIndex):
    """Another release wrote the index, and its states may differ; or another process has deleted it."""


class IndexMark(msgspec.Struct, frozen=True):
    """The stored states after all events up to `offset`."""

    offset: int
    latest: int
    """The highest time of all events up to here, in microseconds since the epoch."""
    last: int
    """The offset of the last event; the offsets between have no events."""
    event_id: str
    """The id of that event, and its time: another log has another event there."""
    event_time: int
    active: list[str]
    """The addresses whose states are not quiescent."""
    release: str
    before: int | None
    """The offset of the mark whose pieces `changed` refers to; None: `changed` has all pieces."""
    changed: list[tuple[str, str, bytes, bytes | None]]
    """(address, field, key, piece); None for a removed piece."""

    @property
    def size(self) -> int:
        """The bytes of the pieces."""
        return sum(len(data or b"") for _, _, _, data in self.changed)

    def apply(self, pieces: Pieces) -> None:
        """Changes the pieces of the mark before into the pieces of this one."""
        for address, field, key, data in self.changed:
            if data is not None:
                pieces.setdefault(address, {})[field, key] = data
            elif (state := pieces.get(address)) is not None:
                state.pop((field, key), None)
                if not state:
                    # The replica has no state of this address any more.
                    del pieces[address]


class RestoredMark(msgspec.Struct, frozen=True):
    """The mark from which a reader continues."""

    offset: int
    latest: int
    pieces: Pieces
    changes_size: int
    """The bytes of the changes since the last mark with all pieces."""


class IndexSegment(msgspec.Struct, frozen=True):
    """The data for `story` of the events after the mark `before` (None: from the first on) up to `offset`."""

    offset: int
    before: int | None
    data: bytes


class IndexHistory(msgspec.Struct, frozen=True):
    """The parts of a history at the mark of the same offset (HistoryProjection.stored)."""

    offset: int
    before: int | None
    """The offset of the file whose parts `changed` refers to; None: `changed` has all parts."""
    changed: list[tuple[str, str, bytes | None]]
    """(field, key, part); None for a removed part."""

    @property
    def size(self) -> int:
        """The bytes of the parts."""
        return sum(len(data or b"") for _, _, data in self.changed)

    def apply(self, parts: dict[tuple[str, str], bytes]) -> None:
        """Changes the parts of the file before into the parts of this one."""
        for field, key, data in self.changed:
            if data is None:
                parts.pop((field, key), None)
            else:
                parts[field, key] = data


class RestoredHistory(msgspec.Struct, frozen=True):
    """The history from which a reader continues."""

    offset: int
    parts: dict[tuple[str, str], bytes]
    changes_size: int
    """The bytes of the changes since the last file with all parts."""


def index_directory() -> Path:
    """Returns the directory of indexes: `history` in the cache directory (TAILRACE_CACHE_DIR, or ~/.cache/tailrace)."""
    # The import takes longer than opening most indexes.
    from ....infra.jars import cache_dir

    return cache_dir() / "history"


class StateIndex:
    """The index of one log, opened at its first use. Not thread-safe."""

    def __init__(
        self, log: EventLog, cluster: str, *, directory: Path | None = None, interval: int = INTERVAL
    ) -> None:
        self._log = log
        self._cluster = cluster
        self._directory = directory
        self.interval = interval
        self.path: Path | None = None
        """The directory of the index, after its first use."""
        self._given_up = False
        self._verified: set[int] = set()

    def not_after(self, time: int) -> TimeMark | None:
        """Returns the newest mark up to which no event is later than `time`, or None. Raises LogUnavailable."""

        def find() -> TimeMark | None:
            found = next((mark for mark in reversed(self._marks()) if mark.time <= time), None)
            if found is not None:
                self._verify(self._read_mark(found))
            return found

        return self._read(find)

    def restore(self, replica: Replica, at_most: int) -> RestoredMark | None:
        """Restores a new replica at the newest mark up to `at_most`.

        Returns None and changes nothing if there is no mark. Raises LogUnavailable.
        """

        def restored() -> RestoredMark | None:
            chain: list[IndexMark] = []
            wanted: int | None = at_most
            for place in reversed(self._marks()):
                if wanted is None or place.offset > wanted:
                    continue
                if chain and place.offset != wanted:
                    break
                chain.append(self._read_mark(place))
                wanted = chain[-1].before
            if not chain:
                return None
            if wanted is not None:
                raise CorruptIndex(f"it has no mark at offset {wanted}")
            self._verify(chain[0])
            pieces: Pieces = {}
            for mark in reversed(chain):
                mark.apply(pieces)
            _resume(replica, chain[0], pieces)
            return RestoredMark(
                chain[0].offset, chain[0].latest, pieces, sum(mark.size for mark in chain[:-1])
            )

        # Before the first mark the index is not opened: folding so few events is faster.
        return None if at_most < self.interval - 1 else self._read(restored)

    def write(self, mark: IndexMark) -> bool:
        """Adds a mark if it is missing. Returns False if the index cannot be written any more."""
        return self._write(f"{mark.offset:020}.{mark.latest}.mark", mark, mark.before, _MARK)

    def segments(self, at_most: int) -> list[IndexSegment]:
        """Returns the segments up to `at_most`, from the first event of the log on without a gap."""

        def find() -> list[IndexSegment]:
            found: list[IndexSegment] = []
            for offset in sorted(int(file[1]) for file in self._files(_SEGMENT)):
                if offset <= at_most:
                    segment = self._load(f"{offset:020}.segment", IndexSegment)
                    if segment.before != (found[-1].offset if found else None):
                        break
                    found.append(segment)
            return found

        return self._read(find) or []

    def write_segment(self, segment: IndexSegment) -> bool:
        """Adds a segment if it is missing. Returns False if the index cannot be written any more."""
        return self._write(f"{segment.offset:020}.segment", segment, segment.before, _SEGMENT)

    def restore_history(self, at_most: int) -> RestoredHistory | None:
        """Returns the newest history up to `at_most` that has a mark; None if there is none."""

        def restored() -> RestoredHistory | None:
            marks = {mark.offset for mark in self._marks() if mark.offset <= at_most}
            offset = max(marks & {int(file[1]) for file in self._files(_HISTORY)}, default=None)
            chain: list[IndexHistory] = []
            while offset is not None:
                chain.append(self._load(f"{offset:020}.history", IndexHistory))
                offset = chain[-1].before
            if not chain:
                return None
            parts: dict[tuple[str, str], bytes] = {}
            for each in reversed(chain):
                each.apply(parts)
            return RestoredHistory(chain[0].offset, parts, sum(each.size for each in chain[:-1]))

        return None if at_most < self.interval - 1 else self._read(restored)

    def write_history(self, history: IndexHistory) -> bool:
        """Adds a history if it is missing. Returns False if the index cannot be written any more."""
        return self._write(f"{history.offset:020}.history", history, history.before, _HISTORY)

    def _read(self, read: Callable[[], T]) -> T | None:
        """Returns the result of `read`; None if there is no usable index."""
        for _ in range(2):
            try:
                return None if self._given_up or self._locate() is None else read()
            except CorruptIndex as error:
                self._discard(error)
            except (OSError, RuntimeError) as error:
                self._give_up(error)
        return None

    def _write(
        self,
        name: str,
        content: IndexMark | IndexSegment | IndexHistory,
        before: int | None,
        kind: re.Pattern[str],
    ) -> bool:
        try:
            path = None if self._given_up else self._locate()
            if path is None:
                return False
            if before is not None and all(int(file[1]) != before for file in self._files(kind)):
                return False
            if not (path / name).exists():
                path.mkdir(parents=True, exist_ok=True)
                _write_file(path / name, msgspec.msgpack.encode(content))
            return True
        except (OSError, RuntimeError) as error:
            if not (_is_forbidden(error) and self._files(_MARK)):
                self._give_up(error)
            return False

    def _locate(self) -> Path | None:
        """The index's directory; None for a log without a first event. Raises RuntimeError, LogUnavailable."""
        if self.path is None:
            first = _read_first_event(self._log)
            if first is None:
                return None
            identity = (
                f"{first.offset}\x1f{first.header.event_id}\x1f{first.header.time}\x1f{first.body.AVRO_NAME}"
            )
            begin = hashlib.blake2b(f"{identity}\x1f{self.interval}".encode(), digest_size=8).hexdigest()
            name = re.sub(r"[^\w.-]", "_", self._cluster, flags=re.ASCII)[:_MAX_NAME_LENGTH]
            directory = self._directory or index_directory()
            self.path = directory / f"{name}-{begin}-{schema_fingerprint()}"
        return self.path

    def _files(self, kind: re.Pattern[str]) -> list[re.Match[str]]:
        assert self.path is not None
        try:
            return [found for name in os.listdir(self.path) if (found := kind.fullmatch(name))]
        except FileNotFoundError:
            return []

    def _marks(self) -> list[TimeMark]:
        return sorted(
            (TimeMark(int(file[1]), int(file[2])) for file in self._files(_MARK)), key=lambda m: m.offset
        )

    def _read_mark(self, place: TimeMark) -> IndexMark:
        mark = self._load(f"{place.offset:020}.{place.time}.mark", IndexMark)
        if mark.release != code_fingerprint():
            raise OutdatedIndex("it was made by another release")
        if (mark.offset, mark.latest) != (place.offset, place.time):
            raise CorruptIndex(f"its mark at offset {place.offset} has another content than name")
        return mark

    def _load(self, name: str, kind: type[T]) -> T:
        assert self.path is not None
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            raise OutdatedIndex("another process has deleted it") from None
        digest, packed = data[:_DIGEST], data[_DIGEST:]
        if hashlib.blake2b(packed, digest_size=_DIGEST).digest() != digest:
            raise CorruptIndex(f"the digest of {name} is wrong")
        try:
            return msgspec.msgpack.decode(zlib.decompress(packed), type=kind)
        except (msgspec.MsgspecError, zlib.error) as error:
            raise CorruptIndex(f"{name} can't be read: {error}") from error

    def _verify(self, mark: IndexMark) -> None:
        """Raises CorruptIndex if the log does not have the last event of the mark."""
        if mark.offset in self._verified:
            return
        found = next(read_to_end(self._log, mark.last, end=mark.last + 1), [])
        if [(record.header.event_id, record.header.time) for record in found] != [
            (mark.event_id, mark.event_time)
        ]:
            raise CorruptIndex(
                f"it is of another log: {self._log.topic} has another event at offset {mark.last}"
            )
        self._verified.add(mark.offset)

    def _discard(self, why: CorruptIndex) -> None:
        # Each release builds its own index; that is no reason for a warning.
        report = _log.debug if isinstance(why, OutdatedIndex) else _log.warning
        report("throws a history index away, and builds another", index=str(self.path), reason=str(why))
        self._verified.clear()
        assert self.path is not None
        shutil.rmtree(self.path, ignore_errors=True)
        if self._files(_MARK):
            self._give_up(OSError(errno.EPERM, "it can't be deleted"))

    def _give_up(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or str(error)
        _log.warning("continues without a history index", index=str(self.path), reason=reason)
        self._given_up = True


def _write_file(path: Path, data: bytes) -> None:
    """Writes a file atomically. A power cut may damage it; then its digest is wrong."""
    packed = zlib.compress(data, _LEVEL)
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(hashlib.blake2b(packed, digest_size=_DIGEST).digest() + packed)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _is_forbidden(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def _resume(replica: Replica, mark: IndexMark, pieces: Pieces) -> None:
    """Raises CorruptIndex."""
    try:
        stored: dict[str, Any] = {address: join(found) for address, found in pieces.items()}
        leadership = decode(LEADERSHIP, stored.pop(LEADERSHIP))
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise CorruptIndex(f"a state at offset {mark.offset} can't be read: {error!r}") from error
    replica.resume(LazyStates(stored), mark.active, leadership, mark.last)


def _read_first_event(log: EventLog) -> Record | None:
    """Returns the first event of the log; None if it has none, or its beginning is gone."""
    try:
        return next(read_to_end(log), [None])[0]
    except LogTruncated:
        return None
