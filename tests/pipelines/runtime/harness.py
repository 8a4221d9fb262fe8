"""Drives one operator without a task: a program of inputs, times and commits, and its output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import cloudpickle

from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.runtime.state_backend.entry_store import OpenStore, open_heap_store
from tailrace.pipelines.types import PICKLED, RecordType
from tailrace.schemas.types import OperatorConfig

Record = tuple[int, Any]
"""Timestamp and value."""


@dataclass(frozen=True)
class Records:
    """Records that arrive together, on one input."""

    records: Sequence[Record]
    input_index: int = 0


@dataclass(frozen=True)
class Watermark:
    """The event time reaches this value."""

    time: int


@dataclass(frozen=True)
class Clock:
    """The processing time reaches this value; the wall clock is a millisecond ahead."""

    time: int


@dataclass(frozen=True)
class Commit:
    """A transaction ends."""


Item = Records | Watermark | Clock | Commit


@dataclass
class Collected:
    """An Output that appends to lists."""

    records: list[Record] = field(default_factory=list)
    sides: dict[str, list[Record]] = field(default_factory=dict)
    watermarks: list[int] = field(default_factory=list)
    idle: list[bool] = field(default_factory=list)

    def emit(self, batch: Batch) -> None:
        assert len(batch)
        self.records += zip(batch.timestamps, batch.values, strict=True)

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.sides.setdefault(tag, []).extend(zip(batch.timestamps, batch.values, strict=True))

    def emit_watermark(self, watermark: int) -> None:
        self.watermarks.append(watermark)

    def emit_idle(self, idle: bool) -> None:
        self.idle.append(idle)


@dataclass(frozen=True)
class Subject:
    """An operator that is created again after each crash."""

    kind: str
    functions: tuple[Any, ...]
    parameters: dict[str, Any]
    input_types: tuple[RecordType, ...] = (PICKLED,)
    columnar: bool = False
    """Whether records come as columns."""

    def make(
        self,
        output: Collected,
        context: TaskContext | None = None,
        wall_clock: Callable[[], int] = lambda: 0,
        open_store: OpenStore = open_heap_store,
    ) -> Operator:
        """Creates the operator; it is not open yet."""
        config = OperatorConfig(
            operator_id="o", name="Subject", kind=self.kind, parameters=json.dumps(self.parameters),
            code=cloudpickle.dumps(self.functions), location="program.py:7",
        )  # fmt: skip
        setup = OperatorSetup(
            config=config,
            context=context or TaskContext(operator_name="Subject"),
            cluster="c",
            job_id="j",
            send=no_sink,
            input_types=self.input_types,
            wall_clock=wall_clock,
            open_store=open_store,
        )
        operator = build_operator(setup)
        operator.output = output
        return operator

    def batch(self, item: Records) -> Batch:
        """Creates a batch of rows or columns."""
        batch = Batch([at for at, _ in item.records], [value for _, value in item.records])
        if not self.columnar:
            return batch
        record_type = self.input_types[item.input_index]
        return Batch.from_columns(batch.timestamp_column(), batch.columns(record_type), record_type)


def no_sink(*_: Any, **__: Any) -> None:
    raise AssertionError("the operator is no sink")


def run(subject: Subject, program: Iterable[Item], *, crash: bool = False, ends: bool = True) -> Collected:
    """Runs the program and returns its output. `crash`: after each commit, a new attempt restores the changelog.

    After every second commit a full snapshot is written, and the changelog before it is dropped.
    """
    collected, changelog = Collected(), list[bytes]()
    whole = False
    now = 0

    def wall_clock() -> int:
        return now

    operator = subject.make(collected, wall_clock=wall_clock)
    operator.open()
    for item in program:
        if isinstance(item, Clock):
            now = max(now, item.time + 1)
        if isinstance(item, Commit):
            operator.before_commit()
            changelog += operator.take_changes()
            if crash:
                if whole := not whole:
                    changelog = [message for _, message in operator.full([range(128)])]
                operator.close()
                operator = subject.make(collected, wall_clock=wall_clock)
                for message in changelog:
                    operator.restore(message)
                operator.open()
        else:
            feed(operator, subject, item)
    if ends:
        operator.advance_clock(MAX_WATERMARK)
        operator.advance_watermark(MAX_WATERMARK)
        operator.finish()
        operator.before_commit()
        list(operator.take_changes())
    operator.close()
    return collected


def feed(operator: Operator, subject: Subject, item: Item) -> None:
    """Processes one item that is no commit."""
    match item:
        case Records(records, input_index):
            if records:
                operator.process(subject.batch(item), input_index)
        case Watermark(time):
            operator.advance_watermark(time)
        case Clock(time):
            if operator.next_clock <= time:
                operator.advance_clock(time)
        case Commit():
            raise AssertionError("commits are run's")


def batches(records: Sequence[Record], cuts: Sequence[int]) -> list[Item]:
    """Yields the records in batches, cut before these positions."""
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(records)}), len(records)]
    return [Records(records[a:b]) for a, b in pairwise(places) if b > a]
