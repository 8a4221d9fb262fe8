"""The generator source: the records function(0), function(1), ..., as fast as the task requests them.

Index i belongs to subtask i % parallelism. With a rate, record i is due i / rate seconds after the start, in any
subtask: together the subtasks keep the rate. A subtask that is late catches up on at most _BURST_MS. After a restart,
time begins at the first remaining record. The function should depend on the index only: then a repeated record is the
same.

After a change of parallelism, the indices that no subtask had reached are divided again. Lower indices that were not
emitted go to the heir of the subtask that owned them. An heir of several emits them in ascending order, so that event
time that follows the index is in order.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa

from ......schemas.types import OperatorConfig
from ....operators.user_functions import OrderedCalls, load, user_code
from ....records.batch import Batch
from ....state_backend.stateful import Origin
from .source import PollResult, Source, SourceSetup

_BURST_MS: Final = 1_000


class GeneratorParameters(msgspec.Struct, frozen=True):
    """The parameters of the source in OperatorConfig.parameters."""

    count: int | None = None
    """Records of all subtasks together; None: no end."""
    rate: float | None = None
    """Records per second of all subtasks together; None: no limit."""


class _NumberRange(msgspec.Struct, frozen=True, array_like=True):
    """The indices next, next + step, ... below the end."""

    next: int
    step: int
    end: int | None = None

    def before(self, count: int | None) -> int | None:
        """Returns the end of the range if there are only `count` indices in all."""
        ends = [end for end in (self.end, count) if end is not None]
        return min(ends) if ends else None


_RemainingRanges = tuple[_NumberRange, ...]
_NUMBER_RANGES: Final = msgspec.msgpack.Decoder(_RemainingRanges)


class GeneratorSource(Source):
    """Emits the records of one subtask's indices. The position is the list of remaining ranges; the last has no end."""

    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        self._parameters = msgspec.convert(json.loads(config.parameters), GeneratorParameters)
        (self._function,) = load(config)
        self._left: _RemainingRanges = ()
        self._written: _RemainingRanges = ()
        self._origin: Origin | None = None
        self._origins: dict[Origin, _RemainingRanges] = {}
        self._polled: Sequence[int] = range(0)

    def restore(self, message: bytes) -> None:
        left = _NUMBER_RANGES.decode(message)
        if self._origin is None:
            self._left = left
        else:
            self._origins[self._origin] = left

    def restore_from(self, origin: Origin | None) -> None:
        self._origin = origin

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        context = setup.context
        if not self._left:
            self._left = (
                _split_ranges(self._origins, context.subtask_index, context.parallelism)
                if self._origins
                else (_NumberRange(context.subtask_index, context.parallelism),)
            )
        self._written = self._left
        # The time at which index 0 would have been due.
        first = min(self._left, key=lambda stretch: stretch.next)
        self._began = setup.wall_clock() - self._due_after(first.next - first.next % first.step)

    def poll(self, limit: int) -> PollResult:
        now = self._setup.wall_clock()
        stretch = self._current()
        if stretch is None:
            return PollResult(has_ended=True)
        due, wait_s = self._due(now, stretch)
        indices = self._polled = self._next_indices(stretch, min(limit, due))
        if not indices:
            return PollResult(wait_s=wait_s)
        in_order = OrderedCalls(indices)
        with user_code(self._config, in_order):
            values = [self._function(index) for index in in_order]
        self._left = tuple(_after(each, indices[-1]) for each in self._left)
        return PollResult(
            Batch.from_rows(pa.repeat(now, len(indices)), values), has_ended=self._current() is None
        )

    def place(self, index: int | None) -> str | None:
        return None if index is None else f"index {self._polled[index]} of the generator"

    def take_changes(self) -> Iterable[bytes]:
        if self._left != self._written:
            self._written = self._left
            yield msgspec.msgpack.encode(self._left)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        if self._written:
            yield None, msgspec.msgpack.encode(self._written)

    def _current(self) -> _NumberRange | None:
        """Returns the range with the lowest remaining index, or None. Drops ranges without one."""
        *taken, last = self._left
        self._left = (*(each for each in taken if self._has_more(each)), last)
        remaining = [each for each in self._left if self._has_more(each)]
        return min(remaining, key=lambda each: each.next, default=None)

    def _has_more(self, stretch: _NumberRange) -> bool:
        end = stretch.before(self._parameters.count)
        return end is None or stretch.next < end

    def _next_indices(self, stretch: _NumberRange, limit: int) -> Sequence[int]:
        """Returns up to `limit` indices in ascending order. `stretch`: the range that begins first. The last range is
        above all others."""
        count = self._parameters.count
        if len(self._left) <= 2:
            end = stretch.before(count)
            left = limit if end is None else min(limit, -(-(end - stretch.next) // stretch.step))
            return range(stretch.next, stretch.next + left * stretch.step, stretch.step)
        taken = (range(each.next, each.before(count) or 0, each.step) for each in self._left[:-1])
        return list(islice(heapq.merge(*taken), limit))

    def _due_after(self, index: int) -> float:
        """Returns the milliseconds from index 0 to this one."""
        rate = self._parameters.rate
        return 0.0 if rate is None else index * 1000 / rate

    def _due(self, now: int, stretch: _NumberRange) -> tuple[int, float]:
        """Returns how many records may be emitted now, and, if none, the seconds until the next."""
        rate = self._parameters.rate
        if rate is None:
            return 1 << 62, 0.0
        behind = now - self._began - self._due_after(stretch.next)
        if behind > _BURST_MS:
            self._began += behind - _BURST_MS
            behind = _BURST_MS
        if behind < 0:
            return 0, -behind / 1000
        return 1 + math.floor(behind * rate / 1000 / stretch.step), 0.0


def _after(stretch: _NumberRange, index: int) -> _NumberRange:
    """Returns what is left of a range after an index."""
    if stretch.next > index:
        return stretch
    passed = (index - stretch.next) // stretch.step + 1
    return _NumberRange(stretch.next + passed * stretch.step, stretch.step, stretch.end)


def _split_ranges(
    origins: Mapping[Origin, _RemainingRanges], subtask: int, parallelism: int
) -> _RemainingRanges:
    """Returns the ranges that a subtask takes over from all old ones. Old subtasks without a position had not begun."""
    before = next(iter(origins)).parallelism
    left: list[_RemainingRanges] = [(_NumberRange(index, before),) for index in range(before)]
    for origin, stretches in origins.items():
        left[origin.subtask_index] = stretches
    untouched = max(stretches[-1].next for stretches in left)
    taken = [
        stretch
        for stretches in left[subtask::parallelism]
        for stretch in (*stretches[:-1], _NumberRange(stretches[-1].next, stretches[-1].step, untouched))
        if stretch.end is None or stretch.next < stretch.end
    ]
    return *taken, _NumberRange(untouched + (subtask - untouched) % parallelism, parallelism)
