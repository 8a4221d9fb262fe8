"""The generator: the records function(0), function(1), ..., as fast as asked for.

Index i belongs to subtask i % parallelism. With a rate, record i is due i / rate seconds after the start, whichever
subtask makes it: together they keep the rate, taking turns. A subtask that has fallen behind makes up for at most
_BURST_MS; after a restart time begins anew at the first record that is left. The function should depend on nothing
but the index: then what is made twice is the same twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Final

import msgspec
import pyarrow as pa

from .....schemas.types import OperatorConfig
from ...batch import Batch
from ...operators.functions import load, user_code
from .source import Polled, Source, SourceSetup

_BURST_MS: Final = 1_000


class GeneratorParameters(msgspec.Struct, frozen=True):
    """As OperatorConfig.parameters has them."""

    count: int | None = None
    """Records of all subtasks together; None: no end."""
    rate: float | None = None
    """Records per second of all subtasks together; None: no limit."""


class GeneratorSource(Source):
    """The indices of one subtask; the position is the next of them."""

    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        self._parameters = msgspec.convert(json.loads(config.parameters), GeneratorParameters)
        (self._function,) = load(config)
        self._restored: int | None = None

    def restore(self, message: bytes) -> None:
        self._restored = msgspec.msgpack.decode(message, type=int)

    def open(self, setup: SourceSetup) -> None:
        self._setup = setup
        self._step = setup.context.parallelism
        self._next = setup.context.subtask_index if self._restored is None else self._restored
        self._said = self._next
        # The time at which index 0 would have been due.
        self._began = setup.wall_clock() - self._due_after(self._next - self._next % self._step)

    def poll(self, limit: int) -> Polled:
        now = self._setup.wall_clock()
        end = self._parameters.count
        left = limit if end is None else min(limit, -(-(end - self._next) // self._step))
        if left <= 0:
            return Polled(ended=True)
        due, wait_s = self._due(now)
        count = min(left, due)
        if count == 0:
            return Polled(wait_s=wait_s)
        indices = range(self._next, self._next + count * self._step, self._step)
        with user_code(self._config):
            values = [self._function(index) for index in indices]
        self._next = indices[-1] + self._step
        return Polled(
            Batch.of_rows(pa.repeat(now, count), values), ended=end is not None and self._next >= end
        )

    def take_changes(self) -> Iterable[bytes]:
        if self._next != self._said:
            self._said = self._next
            yield msgspec.msgpack.encode(self._next)

    def _due_after(self, index: int) -> float:
        """Milliseconds from index 0 to this one."""
        rate = self._parameters.rate
        return 0.0 if rate is None else index * 1000 / rate

    def _due(self, now: int) -> tuple[int, float]:
        """How many records may be made now; and where it is none, the seconds until the next."""
        rate = self._parameters.rate
        if rate is None:
            return 1 << 62, 0.0
        behind = now - self._began - self._due_after(self._next)
        if behind > _BURST_MS:
            self._began += behind - _BURST_MS
            behind = _BURST_MS
        if behind < 0:
            return 0, -behind / 1000
        return 1 + math.floor(behind * rate / 1000 / self._step), 0.0
