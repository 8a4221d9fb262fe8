"""Event time: timestamps and watermarks (Flink's WatermarkStrategy with bounded out-of-orderness).

A record is expected at most `out_of_orderness_ms` after one with a greater timestamp. So the watermark is the greatest
timestamp so far, minus that, minus 1 ms: no later record should have a timestamp <= it. It is emitted after each batch
that raises it, and never decreases. The operator drops incoming watermarks, except the end of time: after this
operator, only its own event time counts.

An input without records would hold back all operators that wait for its watermark. After `idle_after_ms` of real time
without a record it is idle, until the next record. A stream whose own inputs are idle is idle at once.

Directly after a source, each of its *splits* (the partitions of topics) has its own watermark and idleness. Records are
in order within a split, but not between splits, because one is read ahead of the other. The watermark is then the least
of the splits that are neither idle nor ended; a split without records yet holds it (FLIP-27). If all splits that have
not ended are idle, it is their greatest.

The two halves may run in two places: a TimestampAssigner in Spark's worker, among the stateless operators behind a
Kafka source, and a WatermarkGenerator at the head of the StreamTask, which learns the greatest timestamp of each batch.
A WatermarkAssigner is both.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from ....schemas.types import OperatorConfig
from ...graph.operators import OperatorKind
from ...types import ClassOf, RecordType, TupleOf
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK, NO_WATERMARK
from ..records.timestamps import encode_timestamps
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, close_function, load, open_function, user_code

_INT: Final = RecordType.of(int)


class WatermarkParameters(msgspec.Struct, frozen=True):
    """The parameters of the operator in OperatorConfig.parameters."""

    out_of_orderness_ms: int = 0
    """0: timestamps never decrease."""
    idle_after_ms: int | None = None
    """None: never idle."""
    assigns_timestamps: bool = False
    """Whether there is a timestamp assigner for certain; programs of 0.1.0 do not say so."""


class _Split:
    """The event time of one split; of the whole stream if it has no splits."""

    __slots__ = ("ended", "idle", "last_record", "watermark")

    def __init__(self) -> None:
        self.watermark = NO_WATERMARK
        self.last_record = 0
        self.idle = self.ended = False


class TimestampAssigner(Operator):
    """Assigns timestamps, if there is an assigner."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        (self._assign,) = load(setup.config) or (None,)
        (self._record_type,) = setup.input_types
        self._column = _column_of(self._assign, self._record_type)
        self.greatest: int | None = None
        """The greatest timestamp since this was last set to None; None: there was no record."""

    def open(self) -> None:
        with user_code(self._setup.config):
            open_function(self._assign, self._setup.context)

    def close(self) -> None:
        with user_code(self._setup.config):
            close_function(self._assign)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        batch = self.assigned(batch)
        greatest = greatest_timestamp(batch)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)
        self.output.emit(batch)

    def assigned(self, batch: Batch) -> Batch:
        """Returns the records with their timestamps. Raises UserCodeError."""
        return batch if self._assign is None else batch.with_timestamps(self._timestamps(batch))

    def _timestamps(self, batch: Batch) -> pa.Int64Array:
        if self._column is not None and batch.is_columnar:
            return batch.columns(self._record_type)[self._column]
        records = OrderedCalls(batch)
        with user_code(self._setup.config, records):
            given = list(map(self._assign, records))
            records.end()
            return encode_timestamps("the timestamp assigner returned", given)


class WatermarkGenerator(Operator):
    """Emits watermarks after batches with timestamps."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._setup = setup
        self._parameters = msgspec.convert(dict(setup.parameters), WatermarkParameters)
        self._watermark = NO_WATERMARK
        self._upstream_idle = False
        self._idle = False
        self._split = _Split()
        self._splits: dict[Hashable, _Split] = {None: self._split}

    def read_splits(self, splits: Iterable[Hashable]) -> None:
        """Called before `open` with the splits that the records come from."""
        self._splits = {split: _Split() for split in splits}

    def add_split(self, split: Hashable) -> None:
        """Adds a split after `open`: it holds event time until its first record, or until it is idle."""
        added = self._splits[split] = _Split()
        added.last_record = self._setup.wall_clock()

    def begin_split(self, split: Hashable) -> None:
        """Announces that the next records belong to this split."""
        self._split = self._splits[split]

    def end_split(self, split: Hashable) -> None:
        """Announces that this split has ended."""
        self._splits[split].ended = True
        self._emit_watermark()

    def open(self) -> None:
        now = self._setup.wall_clock()
        for split in self._splits.values():
            split.last_record = now

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self.process_timed(batch, greatest_timestamp(batch))

    def process_timed(self, batch: Batch, greatest: int) -> None:
        """Takes the results of records with this greatest timestamp; there may be none."""
        split = self._split
        split.last_record, split.idle = self._setup.wall_clock(), False
        self._emit_idle(False)
        self.output.emit(batch)
        reached = greatest - self._parameters.out_of_orderness_ms - 1
        if reached > split.watermark:
            split.watermark = reached
            self._emit_watermark()

    def advance_watermark(self, watermark: int) -> None:
        if watermark == MAX_WATERMARK:
            self._watermark = watermark
            self.output.emit_watermark(watermark)

    @property
    def next_clock(self) -> int:
        idle_after = self._parameters.idle_after_ms
        since = [split.last_record for split in self._present if not split.idle]
        return MAX_WATERMARK if idle_after is None or not since else min(since) + idle_after - 1

    def advance_clock(self, clock: int) -> None:
        idle_after = self._parameters.idle_after_ms
        if idle_after is not None and clock != MAX_WATERMARK:
            now = self._setup.wall_clock()
            for split in self._present:
                split.idle = now - split.last_record >= idle_after
            self._emit_watermark()
            self._emit_idle(self._upstream_idle or self._is_silent)

    def set_idle(self, idle: bool) -> None:
        self._upstream_idle = idle
        self._emit_idle(idle or self._is_silent)

    @property
    def _present(self) -> list[_Split]:
        """Returns the splits that have not ended."""
        return [split for split in self._splits.values() if not split.ended]

    @property
    def _is_silent(self) -> bool:
        """Whether the strategy has an idle time, and no split has emitted a record for that time."""
        return self._parameters.idle_after_ms is not None and all(split.idle for split in self._present)

    def _emit_watermark(self) -> None:
        present = self._present
        active = [split.watermark for split in present if not split.idle]
        reached = min(active) if active else max((split.watermark for split in present), default=NO_WATERMARK)
        if reached > self._watermark:
            self._watermark = reached
            self.output.emit_watermark(reached)

    def _emit_idle(self, idle: bool) -> None:
        if idle is not self._idle:
            self._idle = idle
            self.output.emit_idle(idle)


class WatermarkAssigner(WatermarkGenerator):
    """Assigns timestamps, if there is an assigner, and emits watermarks."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        self._timestamps = TimestampAssigner(setup)

    def open(self) -> None:
        super().open()
        self._timestamps.open()

    def close(self) -> None:
        self._timestamps.close()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        super().process(self._timestamps.assigned(batch))


def assigns_timestamps(config: OperatorConfig) -> bool:
    """Whether an operator is a strategy that replaces the timestamps of records."""
    if config.kind != OperatorKind.WATERMARKS:
        return False
    return msgspec.json.decode(config.parameters or "{}", type=WatermarkParameters).assigns_timestamps


def greatest_timestamp(batch: Batch) -> int:
    """Returns the greatest timestamp of a batch that is not empty."""
    return int(np.max(batch.timestamp_column().to_numpy()))


def _column_of(assign: Any, record_type: RecordType) -> int | None:
    """Returns the column that the assigner reads, if it does nothing else: then it is not called."""
    if not isinstance(assign, (operator.attrgetter, operator.itemgetter)):
        return None
    fields: Any = assign.__reduce__()[1]
    columns = record_type.columns()
    match record_type, fields:
        case ClassOf(), (str(name),):
            found = next((i for i, (column, _) in enumerate(columns) if column == name), None)
        case TupleOf(), (int(index),) if 0 <= index < len(columns):
            found = index
        case _:
            found = None
    return found if found is not None and columns[found][1] == _INT else None
