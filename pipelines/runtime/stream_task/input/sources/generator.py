"""The generator source: the records function(0), function(1), ..., as fast as the task requests them.

Index i belongs to subtask i % parallelism. With a rate, record i is due i / rate seconds after the start, in any
subtask: together the subtasks keep the rate. A subtask that is late catches up on at most _BURST_MS. After a restart,
time begins at the first remaining record. The function should depend on the index only: then a repeated record is the
same.

After a change of parallelism, the indices that no subtask had reached are divided again. Lower indices that were not
emitted go to the heir of the subtask that owned them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        self._polled = range(0)

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
        first = self._left[0]
        self._began = setup.wall_clock() - self._due_after(first.next - first.next % first.step)

    def poll(self, limit: int) -> PollResult:
        now = self._setup.wall_clock()
        stretch = self._current()
        if stretch is None:
            return PollResult(has_ended=True)
        end = stretch.before(self._parameters.count)
        left = limit if end is None else min(limit, -(-(end - stretch.next) // stretch.step))
        due, wait_s = self._due(now, stretch)
        count = min(left, due)
        if count == 0:
            return PollResult(wait_s=wait_s)
        indices = self._polled = range(stretch.next, stretch.next + count * stretch.step, stretch.step)
        in_order = OrderedCalls(indices)
        with user_code(self._config, in_order):
            values = [self._function(index) for index in in_order]
        following = _NumberRange(indices[-1] + stretch.step, stretch.step, stretch.end)
        self._left = (following, *self._left[1:])
        return PollResult(Batch.from_rows(pa.repeat(now, count), values), has_ended=self._current() is None)

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
        """Returns the first range with a remaining index, or None."""
        while True:
            first = self._left[0]
            end = first.before(self._parameters.count)
            if end is None or first.next < end:
                return first
            if len(self._left) == 1:
                return None
            self._left = self._left[1:]

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
