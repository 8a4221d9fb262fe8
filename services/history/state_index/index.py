"""The history index: the states of a log at marks, every so many offsets, so that no state is far from one.

It is a by-product. Whoever folds a log from its beginning, or from a mark, writes down the marks that it passes, and
the next one begins at the newest of them. It lies on this machine, in a file for each log and release, may be deleted
at any time, and holds nothing that the log does not say. So whatever is wrong with it ends in one warning and a longer
way: one that is damaged, another log's or another release's is thrown away; where none can be read or written, it goes
on without.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ....infra.logging_setup import logger
from ....schemas.event import Record
from ...core.replica import Replica
from ...log import EventLog, LogTruncated
from ...log.event_log import read_to_end
from ...snapshots.encoding import LEADERSHIP, decode
from ...snapshots.fingerprint import code_fingerprint, schema_fingerprint
from ...snapshots.state_delta import Key, join
from .. import log_position
from ..lazy_states import LazyStates
from .index_file import FORMAT, RELEASE, ChangedStates, IndexMark, IndexSegment, StateIndexFile, remove
from .sqlite import CorruptIndex, IndexUnavailable, OutdatedIndex

INTERVAL = 5_000
"""Offsets from one mark to the next: a tail of as many events takes a tenth of a second."""
_MAX_NAME_LENGTH = 80
_log = logger(__name__)
T = TypeVar("T")


def index_directory() -> Path:
    """Where indexes are kept: `history` in TAILRACE_CACHE_DIR, XDG_CACHE_HOME/tailrace or ~/.cache/tailrace."""
    # It takes longer to import than most indexes to open.
    from ....infra.jars import cache_dir

    return cache_dir() / "history"


class StateIndex:
    """The index of one log. Nothing is opened before it is asked for something. For one thread at a time."""

    def __init__(
        self, log: EventLog, cluster: str, *, directory: Path | None = None, interval: int = INTERVAL
    ) -> None:
        self._log = log
        self._cluster = cluster
        self._directory = directory
        self.interval = interval
        self._file: StateIndexFile | None = None
        self._path: Path | None = None
        self._given_up = False
        self._generation = 0
        self._known_to_fit: set[int] = set()

    @property
    def path(self) -> Path | None:
        """The index's file, once it was opened."""
        return self._path

    @property
    def generation(self) -> int:
        """How often the index was thrown away: marks of one generation can't be added to another."""
        return self._generation

    def not_after(self, time: int) -> log_position.TimeMark | None:
        """The newest mark up to which no event has a time above; None: nothing is known. Raises LogUnavailable."""
        mark = self._asked(lambda file: self._if_usable(file.not_after(time)))
        return None if mark is None else log_position.TimeMark(mark.offset, mark.latest)

    def newest(self, at_most: int) -> IndexMark | None:
        """The newest mark that is not above an offset. Raises LogUnavailable."""
        if self._is_before_all(at_most):
            return None
        return self._asked(lambda file: self._if_usable(file.newest(at_most)))

    def restore(self, replica: Replica, at_most: int) -> IndexMark | None:
        """Puts the replica, in which nothing was folded yet, at the newest mark that is not above `at_most`.

        None, and nothing is changed, where there is none. Raises LogUnavailable.
        """

        if self._is_before_all(at_most):
            return None

        def restored(file: StateIndexFile) -> IndexMark | None:
            mark = self._if_usable(file.newest(at_most))
            if mark is not None:
                _resume(replica, mark, file.states(mark))
            return mark

        return self._asked(restored)

    def write(self, mark: IndexMark, before: int | None, changed: ChangedStates, generation: int) -> bool:
        """Adds a mark behind the one of offset `before`, if it is not there. False: there is no use in going on."""
        return self._written(lambda file: file.write(mark, before, changed), generation)

    def stretches(self, at_most: int) -> list[IndexSegment]:
        """What stories need of the events up to a mark that is not above `at_most`; empty where there is none."""
        return self._asked(lambda file: file.stretches(at_most)) or []

    def write_stretch(self, stretch: IndexSegment, generation: int) -> bool:
        """Adds one behind those there are, if it is not there. False: there is no use in going on."""
        return self._written(lambda file: file.write_stretch(stretch), generation)

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _asked(self, ask: Callable[[StateIndexFile], T], *, creates: bool = False) -> T | None:
        """What the file answers; None where there is no file that would. `creates`: one that can be written to."""
        for _ in range(2):
            if self._given_up:
                return None
            try:
                if self._file is None:
                    self._open(creates=creates)
                return None if self._file is None else ask(self._file)
            except CorruptIndex as error:
                self._discard(error)
            except IndexUnavailable as error:
                self._give_up(str(error))
        return None

    def _written(self, write: Callable[[StateIndexFile], object], generation: int) -> bool:
        """Whether it could be written, by who knows the index of that generation."""

        def written(file: StateIndexFile) -> bool:
            if self._generation != generation or not file.writable:
                return False
            write(file)
            return True

        return bool(self._asked(written, creates=True))

    def _is_before_all(self, offset: int) -> bool:
        """Whether no mark is as early: then the index is not opened, which takes longer than to fold so little."""
        return offset < self.interval - 1

    def _open(self, *, creates: bool) -> None:
        first = _read_first_event(self._log)
        if first is None:
            return
        told = f"{first.offset}\x1f{first.header.event_id}\x1f{first.header.time}\x1f{first.body.AVRO_NAME}"
        begin = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
        name = re.sub(r"[^\w.-]", "_", self._cluster, flags=re.ASCII)[:_MAX_NAME_LENGTH]
        try:
            directory = self._directory or index_directory()
        except RuntimeError as error:
            raise IndexUnavailable(f"there is no place for it: {error}") from error
        self._path = directory / f"{name}-{begin}-{schema_fingerprint()}.sqlite"
        if not creates and not self._path.exists():
            return
        about = {
            "format": str(FORMAT),
            "cluster": self._cluster,
            "first_event": begin,
            RELEASE: code_fingerprint(),
            "interval": str(self.interval),
        }
        self._file = StateIndexFile.open(self._path, about)

    def _if_usable(self, mark: IndexMark | None) -> IndexMark | None:
        """The mark, if the log holds its last event. Raises Damaged."""
        if mark is None or mark.offset in self._known_to_fit:
            return mark
        found = next(read_to_end(self._log, mark.last, end=mark.last + 1), [])
        if [(each.header.event_id, each.header.time) for each in found] != [(mark.event_id, mark.event_time)]:
            raise CorruptIndex(
                f"it is of another log: {self._log.topic} has another event at offset {mark.last}"
            )
        self._known_to_fit.add(mark.offset)
        return mark

    def _discard(self, why: CorruptIndex) -> None:
        # With each release it is built anew, and nothing is wrong with that.
        tell = _log.debug if isinstance(why, OutdatedIndex) else _log.warning
        tell("throws a history index away, and builds another", index=str(self._path), reason=str(why))
        self.close()
        self._known_to_fit.clear()
        self._generation += 1
        try:
            if self._path is not None:
                remove(self._path)
        except IndexUnavailable as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        _log.warning("goes on without a history index", index=str(self._path), reason=reason)
        self.close()
        self._given_up = True


def _resume(replica: Replica, mark: IndexMark, pieces: dict[str, dict[Key, bytes]]) -> None:
    """Raises Damaged."""
    try:
        stored = {address: join(found) for address, found in pieces.items()}
        leadership = decode(LEADERSHIP, stored.pop(LEADERSHIP))
        awake = msgspec.json.decode(mark.awake, type=list[str])
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise CorruptIndex(f"a state at offset {mark.offset} can't be read: {error!r}") from error
    replica.resume(LazyStates(stored), awake, leadership, mark.last)


def _read_first_event(log: EventLog) -> Record | None:
    """The log's first event; None where it has none, or its beginning is gone."""
    try:
        return next(read_to_end(log), [None])[0]
    except LogTruncated:
        return None
