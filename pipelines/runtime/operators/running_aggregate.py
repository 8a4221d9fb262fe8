"""reduce: reduces all records of a key so far to one.

It emits one record for each input record, with its timestamp. With `mini_batch`, it emits one record at each commit for
each key that changed, with the greatest timestamp of the changes. It also emits before it passes a watermark on, so
that no result is late after this operator. It emits copies if either record could be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..records.batch import Batch
from ..records.record_copying import create_copier
from .keyed import KeyedOperator, KeySelector
from .operator import OperatorSetup
from .user_functions import OrderedCalls, came_from, close_function, load, method_of, open_function, user_code

_MISSING: Final = object()


class RunningAggregate(KeyedOperator):
    """The common part of reduce and aggregate: a record for each key, and a function that combines another one with
    it."""

    def __init__(self, setup: OperatorSetup, selector: Callable[[Any], Any]) -> None:
        super().__init__(setup)
        self._record_type = setup.input_types[0]
        self._keys = KeySelector(selector, self._record_type, setup.parameters.get("key_field"))
        self._mini_batch = bool(setup.parameters.get("mini_batch"))
        self._copy = create_copier(self._record_type)
        self._table = self.backend.value_table("~reduced", self._record_type)
        # Keys to emit, and the greatest timestamp of their changes; with the changelog, also those not written to it
        # yet.
        self._held: dict[Any, int] = {}
        self._reduce: Callable[[Any, Any], Any]

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if self._mini_batch:
            self._gather(batch)
        else:
            self._run(batch)

    def advance_watermark(self, watermark: int) -> None:
        self._release()
        super().advance_watermark(watermark)

    def finish(self) -> None:
        self._release()

    def before_commit(self) -> None:
        self._release()

    def _run(self, batch: Batch) -> None:
        reduced = self._table.space()
        reduce, copy = self._reduce, self._copy
        given: list[Any] = []
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys.select(records)
            for key, value in zip(keys, records, strict=True):
                held = reduced.get(key, _MISSING)
                if held is not _MISSING:
                    value = reduce(held, value)
                reduced[key] = value
                given.append(value if copy is None else copy(value))
        self._table.touch(keys)
        self.output.emit(batch.with_values(given))

    def _gather(self, batch: Batch) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            self._fold(self._keys.select(records), batch.timestamps, records)

    def _fold(self, keys: Iterable[Any], timestamps: Iterable[int], values: Iterable[Any]) -> None:
        reduced = self._table.space()
        held_back, reduce = self._held, self._reduce
        for key, timestamp, value in zip(keys, timestamps, values, strict=True):
            held = reduced.get(key, _MISSING)
            reduced[key] = value if held is _MISSING else reduce(held, value)
            if held_back.get(key, timestamp) <= timestamp:
                held_back[key] = timestamp

    def _release(self) -> None:
        if self._held:
            held, self._held = self._held, {}
            self._table.touch(held)
            reduced = self._table.space()
            values = [reduced[key] for key in held]
            if self._copy is not None:
                with user_code(self._config):
                    values = list(map(self._copy, values))
            with came_from():
                self.output.emit(Batch(list(held.values()), values))


class RunningReduce(RunningAggregate):
    """Reduces by a user's function."""

    def __init__(self, setup: OperatorSetup) -> None:
        selector, self._function = load(setup.config)
        super().__init__(setup, selector)
        self._reduce = method_of(self._function, "reduce")

    def open(self) -> None:
        with user_code(self._config):
            open_function(self._function, self._setup.context)

    def close(self) -> None:
        with user_code(self._config):
            close_function(self._function)
