"""A source that a user has written: pipelines/functions/custom_source.py has its contract.

Each subtask lists the splits and keeps those whose number it owns, so subtasks need no coordinator. The changelog has
the found splits, the position in each, and whether the list is complete. A split that has ended stays in the state, so
it is not read again. After a change of parallelism each split goes to the owner of its number.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa

from ......schemas.types import OperatorConfig
from .....functions import Source as UserSource
from .....functions import SourceReader, SourceReaderContext, SourceRecords, SourceSplit
from .....sentinels import dump_code, load_code
from ....common.failures import TaskError, format_key
from ....operators.user_functions import load, user_code
from ....records.batch import Batch
from ....records.timestamps import encode_timestamps
from ....state_backend.stateful import Origin
from .source import PollResult, Source, SourceSetup

_MAX_MESSAGE_BYTES: Final = 900_000
"""Bytes of a split or a position in the changelog, below Kafka's usual limit of 1 MiB."""


class _Found(msgspec.Struct, frozen=True, tag="f", array_like=True):
    """A split belongs to the subtask."""

    split_id: str
    value: bytes


class _Reached(msgspec.Struct, frozen=True, tag="r", array_like=True):
    """The position in a split."""

    split_id: str
    position: bytes
    has_ended: bool


class _Listed(msgspec.Struct, frozen=True, tag="l", array_like=True):
    """The splits of the subtask are found."""


_Change = _Found | _Reached | _Listed
_CHANGE: Final = msgspec.msgpack.Decoder(_Change)


class _CommittedSplit:
    """A split as the changelog has it."""

    def __init__(self, value: bytes) -> None:
        self.value = value
        self.position: bytes | None = None
        """None: the beginning."""
        self.has_ended = False


class _CommittedSplits:
    """The splits of a subtask as the changelog has them."""

    def __init__(self) -> None:
        self.splits: dict[str, _CommittedSplit] = {}
        self.is_listed = False

    def apply(self, change: _Change) -> None:
        match change:
            case _Found(split_id, value):
                self.splits.setdefault(split_id, _CommittedSplit(value))
            case _Reached(split_id, position, has_ended):
                split = self.splits[split_id]
                split.position, split.has_ended = position, has_ended
            case _Listed():
                self.is_listed = True

    def messages(self) -> Iterator[bytes]:
        """Yields the whole state as messages."""
        for split_id, split in self.splits.items():
            yield _message(_Found(split_id, split.value))
            if split.position is not None:
                yield _message(_Reached(split_id, split.position, split.has_ended))
        if self.is_listed:
            yield _message(_Listed())


class _OpenSplit:
    """A split that has not ended, with its reader."""

    def __init__(self, split: SourceSplit, position: Any) -> None:
        self.split = split
        self.position = position
        self.has_ended = False
        self.reader: SourceReader[Any] | None = None
        self.poll_at = 0.0
        """Of the wall clock (ms)."""
        self.is_woken = False
        self.has_records = False
        """Whether there were records since the last commit."""

    def is_due(self, now: int) -> bool:
        return self.is_woken or self.poll_at <= now


class CustomSource(Source):
    """Reads the splits of one subtask: a bounded source one after the other, an unbounded one in turn."""

    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        self._source: UserSource[Any]
        (self._source,) = load(config)
        interval: timedelta | None = self._source.discovery_interval
        self._discovery_ms = None if interval is None else interval / timedelta(milliseconds=1)
        self._discover_at = 0.0
        self._committed = _CommittedSplits()
        self._restored: list[_Change] = []
        self._origin: Origin | None = None
        self._origins: dict[Origin, _CommittedSplits] = {}
        self._known: set[str] = set()
        """The ids of all found splits."""
        self._open: deque[_OpenSplit] = deque()
        self._moved: dict[str, _OpenSplit] = {}
        self._changes: list[_Change] = []
        self._readers = ExitStack()
        self._polled: tuple[str, Any] = ("", None)

    def restore(self, message: bytes) -> None:
        change: _Change = _CHANGE.decode(message)
        if self._origin is None:
            self._restored.append(change)
        else:
            self._origins.setdefault(self._origin, _CommittedSplits()).apply(change)

    def restore_from(self, origin: Origin | None) -> None:
        self._origin = origin

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        with user_code(self._config):
            self._source.open(setup.context)
        committed = self._committed
        for origin in self._origins.values():
            for split_id, split in origin.splits.items():
                if self._owns(_split_of(split_id, split)):
                    committed.splits[split_id] = split
        complete = [origin for origin in self._origins.values() if origin.is_listed]
        committed.is_listed = bool(complete) and len(complete) == next(iter(self._origins)).parallelism
        for change in self._restored:
            committed.apply(change)
        self._known.update(committed.splits)
        for split_id, split in committed.splits.items():
            if not split.has_ended:
                position = None if split.position is None else load_code(split.position)
                self._open.append(_OpenSplit(_split_of(split_id, split), position))
        if not committed.is_listed or self._discovery_ms is not None:
            self._discover()

    def poll(self, limit: int) -> PollResult:
        now = self._setup.wall_clock()
        if self._discovery_ms is not None and now >= self._discover_at:
            self._discover()
        for _ in range(len(self._open)):
            split = self._open[0]
            batch = self._read(split, limit, now) if split.is_due(now) else None
            if split.has_ended:
                self._open.popleft()
            elif batch is None or not self._source.bounded:
                self._open.rotate(-1)
            if batch is not None:
                return PollResult(batch, has_ended=self._has_ended)
        if self._has_ended:
            return PollResult(has_ended=True)
        due = [0.0 if split.is_woken else split.poll_at for split in self._open]
        if self._discovery_ms is not None:
            due.append(self._discover_at)
        return PollResult(wait_s=max(0.0, min(due) - now) / 1000)

    def place(self, index: int | None) -> str | None:
        split_id, position = self._polled
        behind = "the beginning" if position is None else f"position {format_key(position)}"
        return None if index is None else f"record {index + 1} behind {behind} of split {split_id!r}"

    def take_changes(self) -> Iterable[bytes]:
        changes, self._changes = self._changes, []
        for split_id, split in self._moved.items():
            changes.append(_Reached(split_id, self._written_position(split), split.has_ended))
            split.has_records = False
        self._moved.clear()
        for change in changes:
            self._committed.apply(change)
            yield _message(change)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._committed.messages())

    def close(self) -> None:
        with user_code(self._config), ExitStack() as stack:
            stack.callback(self._source.close)
            stack.push(self._readers.pop_all())

    @property
    def _has_ended(self) -> bool:
        return not self._open and self._discovery_ms is None

    def _owns(self, split: SourceSplit) -> bool:
        context = self._setup.context
        with user_code(self._config):
            number = self._source.split_number(split)
        if type(number) is not int:
            raise self._broken(f"split_number of split {split.split_id!r} is {number!r}, not an integer")
        return number % context.parallelism == context.subtask_index

    def _discover(self) -> None:
        with user_code(self._config):
            found: list[Any] = list(self._source.splits())
        if wrong := [split for split in found if not isinstance(split, SourceSplit)]:
            raise self._broken(f"splits returned {wrong[0]!r}, not a SourceSplit")
        if len({split.split_id for split in found}) < len(found):
            raise self._broken("splits returned two splits with the same id")
        for split in found:
            if split.split_id not in self._known and self._owns(split):
                self._known.add(split.split_id)
                self._changes.append(_Found(split.split_id, self._dumped(split.split_id, split.value)))
                self._open.append(_OpenSplit(split, None))
        if not self._committed.is_listed:
            self._changes.append(_Listed())
        if self._discovery_ms is not None:
            self._discover_at = self._setup.wall_clock() + self._discovery_ms

    def _read(self, split: _OpenSplit, limit: int, now: int) -> Batch | None:
        """Polls the reader of a split. Returns None if it has no records now."""
        split_id = split.split.split_id
        split.is_woken = False
        with user_code(self._config, place=lambda: f"split {split_id!r}"):
            reader = split.reader or self._create_reader(split)
            polled: Any = reader.poll(split.position, limit)
        if not isinstance(polled, SourceRecords):
            raise self._broken(f"poll of split {split_id!r} returned {polled!r}, not SourceRecords")
        with user_code(self._config, place=lambda: f"the records of a poll of split {split_id!r}"):
            records = list(polled.records)
            timestamps = None if polled.timestamps is None else list(polled.timestamps)
        self._polled = split_id, split.position
        split.position, split.has_ended = polled.position, polled.has_ended
        split.has_records |= bool(records)
        self._moved[split_id] = split
        if split.has_ended:
            with user_code(self._config):
                reader.close()
        if not records:
            wait_s: Any = polled.wait_s
            if not (isinstance(wait_s, (int, float)) and 0 < wait_s < math.inf):
                raise self._broken(
                    f"poll of split {split_id!r} returned no records and wait_s={wait_s!r}: give a number of"
                    " seconds above 0"
                )
            split.poll_at = now + wait_s * 1000
            return None
        if timestamps is None:
            return Batch.from_rows(pa.repeat(now, len(records)), records)
        if len(timestamps) != len(records):
            raise self._broken(
                f"poll of split {split_id!r} returned {len(records)} records and {len(timestamps)} timestamps"
            )
        try:
            times = encode_timestamps(f"poll of split {split_id!r} returned the timestamp", timestamps)
        except TypeError as error:
            raise self._broken(str(error)) from error
        return Batch.from_rows(times, records)

    def _create_reader(self, split: _OpenSplit) -> SourceReader[Any]:
        def wake() -> None:
            split.is_woken = True
            self._setup.wake()

        reader = self._source.create_reader(split.split, SourceReaderContext(self._setup.context, wake))
        split.reader = reader
        self._readers.callback(lambda: None if split.has_ended else reader.close())
        return reader

    def _written_position(self, split: _OpenSplit) -> bytes:
        split_id = split.split.split_id
        position = self._dumped(split_id, split.position)
        known = self._committed.splits.get(split_id)
        before = None if known is None else known.position
        if split.has_records and position == (dump_code(None) if before is None else before):
            raise self._broken(
                f"poll of split {split_id!r} returned records, and the position {format_key(split.position)} from which"
                " it was called: after a failure they would be read twice; return the position behind the records"
            )
        return position

    def _dumped(self, split_id: str, value: Any) -> bytes:
        try:
            data = dump_code(value, sends_program=False)
        except Exception as error:
            raise self._broken(
                f"the position or value {format_key(value)} of split {split_id!r} cannot be pickled: {error}"
            ) from error
        if len(data) > _MAX_MESSAGE_BYTES:
            raise self._broken(
                f"a position or value of split {split_id!r} has {len(data)} bytes, more than {_MAX_MESSAGE_BYTES}"
            )
        return data

    def _broken(self, what: str) -> TaskError:
        return TaskError(f"source {self._config.name!r} ({self._config.location}): {what}")


def _split_of(split_id: str, split: _CommittedSplit) -> SourceSplit:
    return SourceSplit(split_id, load_code(split.value))


def _message(change: _Change) -> bytes:
    return msgspec.msgpack.encode(change)
