"""Drives the subtasks of one operator without tasks: records go to the subtasks of their keys, and the state is
restored at other parallelisms, in memory or on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tailrace.pipelines.graph.key_groups import key_group_of
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.runtime.state_backend.entry_store import OpenStore, open_heap_store
from tailrace.pipelines.runtime.state_backend.stateful import Origin

from .harness import Clock, Collected, Commit, Item, Records, Subject, feed

MAX_PARALLELISM = 8


@dataclass(frozen=True)
class Restore:
    """A savepoint from which the operator continues."""

    parallelism: int
    open_store: OpenStore = open_heap_store
    is_full: bool = True
    """Whether each subtask writes all of its state anew; otherwise what it began with, and its changes since."""


@dataclass(frozen=True)
class Crash:
    """Each subtask begins again from its last commit."""


Step = Item | Restore | Crash


class _Subtask:
    """One subtask, its file of all state, and the changelog since."""

    def __init__(self, operator: Operator, index: int, parallelism: int) -> None:
        self.operator = operator
        self.index = index
        self.origin = Origin(index, parallelism, MAX_PARALLELISM)
        self.file: list[bytes] = []
        self.changelog: list[bytes] = []

    def commit(self) -> None:
        self.operator.before_commit()
        self.changelog += self.operator.take_changes()

    def write_file(self) -> None:
        own = self.origin.key_groups
        cuts = sorted({own.start, (own.start + own.stop) // 2, own.stop})
        sections = [range(*pair) for pair in pairwise(cuts)]
        self.file = [message for _, message in self.operator.full(sections)]
        self.changelog = []

    @property
    def messages(self) -> list[bytes]:
        return self.file + self.changelog


class RescaledOperator:
    """The subtasks of a subject. `key_of`: the key of a record of the first input; None: records have no keys and go to
    the subtasks in turn. Records of other inputs go to every subtask."""

    def __init__(self, subject: Subject, key_of: Callable[[Any], Any] | None) -> None:
        self._subject = subject
        self._key_of = key_of
        self._turn = 0
        self._now = 0
        self.output = Collected()
        self._open_store: OpenStore = open_heap_store
        self._subtasks: list[_Subtask] = []
        self._start(1, [])

    def run(self, steps: Iterable[Step]) -> Counter[Any]:
        """Takes the steps to the end of the input, and returns how often each record was emitted, with its
        timestamp."""
        for step in steps:
            self._take(step)
        for subtask in self._subtasks:
            subtask.operator.advance_clock(MAX_WATERMARK)
            subtask.operator.advance_watermark(MAX_WATERMARK)
            subtask.operator.finish()
            subtask.commit()
            subtask.operator.close()
        return Counter((at, repr(value)) for at, value in self.output.records)

    def _take(self, step: Step) -> None:
        match step:
            case Restore(parallelism, open_store, is_full):
                self._commit()
                for subtask in self._subtasks:
                    if is_full:
                        subtask.write_file()
                    subtask.operator.close()
                self._open_store = open_store
                self._start(parallelism, self._subtasks)
            case Crash():
                for subtask in self._subtasks:
                    subtask.operator.close()
                    subtask.operator = self._make(subtask.index, len(self._subtasks))
                    for message in subtask.messages:
                        subtask.operator.restore(message)
                    subtask.operator.open()
            case Commit():
                self._commit()
            case Records():
                self._process(step)
            case _:
                if isinstance(step, Clock):
                    self._now = max(self._now, step.time + 1)
                for subtask in self._subtasks:
                    feed(subtask.operator, self._subject, step)

    def _commit(self) -> None:
        for subtask in self._subtasks:
            subtask.commit()

    def _process(self, step: Records) -> None:
        parallelism = len(self._subtasks)
        parts: list[list[Any]] = [[] for _ in self._subtasks]
        for record in step.records:
            if step.input_index:
                for part in parts:
                    part.append(record)
            else:
                parts[self._receiver(record[1], parallelism)].append(record)
        for subtask, part in zip(self._subtasks, parts, strict=True):
            feed(subtask.operator, self._subject, Records(part, step.input_index))

    def _receiver(self, value: Any, parallelism: int) -> int:
        if self._key_of is None:
            self._turn += 1
            return self._turn % parallelism
        group = key_group_of(self._key_of(value), MAX_PARALLELISM)
        return next(subtask.index for subtask in self._subtasks if group in subtask.origin.key_groups)

    def _start(self, parallelism: int, origins: list[_Subtask]) -> None:
        self._subtasks = [
            _Subtask(self._make(index, parallelism), index, parallelism) for index in range(parallelism)
        ]
        for subtask in self._subtasks:
            operator = subtask.operator
            for origin in origins:
                operator.restore_from(origin.origin)
                for message in origin.messages:
                    operator.restore(message)
            if origins:
                operator.restore_from(None)
            operator.open()
            subtask.commit()
            subtask.write_file()

    def _make(self, index: int, parallelism: int) -> Operator:
        context = TaskContext(
            operator_name="Subject",
            subtask_index=index,
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
        )
        return self._subject.make(self.output, context, lambda: self._now, self._open_store)
