"""Process functions with broadcast state: on a first stream, keyed or not, and on a second one that every subtask
receives.

A broadcast record may change the state; a record of the first stream may only read it. While a broadcast record is
processed there is no current key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...functions import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastState,
    KeyedBroadcastContext,
    KeyedReadOnlyBroadcastContext,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
    TimerService,
)
from ...types import RecordType
from ..records.batch import Batch
from ..state_backend.broadcast_table import BroadcastTable
from ..state_backend.keyed_state_backend import KeyedStateBackend
from ..state_backend.state_handles import (
    KeyedStateAccess,
    NoKey,
    TableBroadcastState,
    TableReadOnlyBroadcastState,
)
from .function_contexts import FunctionContext, LocalOperatorTimes, ReadOnlyTimerService
from .keyed import KeyedOperator
from .keyed_process import TimedProcessOperator
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, close_function, load, open_function, user_code

MK = TypeVar("MK")
MV = TypeVar("MV")
_NO_TIMERS = "timers need a key, which a broadcast record does not have: register them in process_element"


class BroadcastTables:
    """The tables of the states that `broadcast` declares, by name."""

    def __init__(self, setup: OperatorSetup, backend: KeyedStateBackend) -> None:
        states: Mapping[str, Mapping[str, Any]] = setup.parameters["broadcast_states"]
        self._backend = backend
        self._names = frozenset(states)
        for name, types in states.items():
            backend.broadcast_table(
                name, RecordType.from_json(types["key_type"]), RecordType.from_json(types["value_type"])
            )

    def table(self, descriptor: MapStateDescriptor[Any, Any]) -> BroadcastTable:
        """Returns a table. Raises TypeError if there is no such state, ValueError if it has other types."""
        if descriptor.name not in self._names:
            raise TypeError(
                f"there is no broadcast state {descriptor.name!r}, only {', '.join(sorted(self._names))}:"
                " give its descriptor to broadcast()"
            )
        return self._backend.broadcast_table(
            descriptor.name, descriptor.key_record_type, descriptor.value_record_type
        )


class ReadingContext(FunctionContext, KeyedReadOnlyBroadcastContext[Any], BroadcastOnTimerContext[Any]):
    """The context of a record of the first stream, or of a timer."""

    def __init__(self, timers: TimerService, gathering: OutputCollector, tables: BroadcastTables) -> None:
        super().__init__(timers, gathering)
        self._tables = tables

    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> ReadOnlyBroadcastState[MK, MV]:
        return TableReadOnlyBroadcastState(self._tables.table(descriptor))


class ChangingContext(FunctionContext, BroadcastContext):
    """The context of a broadcast record."""

    def __init__(self, timers: TimerService, gathering: OutputCollector, tables: BroadcastTables) -> None:
        super().__init__(timers, gathering)
        self._tables = tables

    def get_broadcast_state(self, descriptor: MapStateDescriptor[MK, MV]) -> BroadcastState[MK, MV]:
        return TableBroadcastState(self._tables.table(descriptor))


class KeyedChangingContext(ChangingContext, KeyedBroadcastContext[Any]):
    """The context of a broadcast record, if the first stream is keyed."""

    def __init__(
        self,
        timers: TimerService,
        gathering: OutputCollector,
        tables: BroadcastTables,
        keyed: KeyedStateAccess,
    ) -> None:
        super().__init__(timers, gathering, tables)
        self._keyed = keyed

    def apply_to_keyed_state(
        self, descriptor: StateDescriptor, function: Callable[[Any, Any], object]
    ) -> None:
        self._keyed.for_each_key(descriptor, function)


class BroadcastProcessOperator(KeyedOperator):
    """Runs a BroadcastProcessFunction. Its backend holds broadcast state only."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        (self._function,) = load(setup.config)
        self._times = LocalOperatorTimes()
        self._gathering = OutputCollector()
        tables = BroadcastTables(setup, self.backend)
        clocks = ReadOnlyTimerService(
            setup, self._times, "timers need a key: call key_by before this operator"
        )
        self._reading = ReadingContext(clocks, self._gathering, tables)
        self._changing = ChangingContext(clocks, self._gathering, tables)

    def open(self) -> None:
        with user_code(self._config):
            open_function(self._function, self._setup.context)

    def close(self) -> None:
        with user_code(self._config):
            close_function(self._function)

    def advance_watermark(self, watermark: int) -> None:
        self._times.watermark = max(self._times.watermark, watermark)
        super().advance_watermark(watermark)

    def advance_clock(self, clock: int) -> None:
        self._times.clock = max(self._times.clock, clock)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        function, gathering = self._function, self._gathering
        call, context = (
            (function.process_broadcast_element, self._changing)
            if input_index
            else (function.process_element, self._reading)
        )
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            for timestamp, value in zip(batch.timestamps, records, strict=True):
                context.timestamp = timestamp
                gathering.add(timestamp, call(value, context))
        gathering.send(self.output)


class KeyedBroadcastProcessOperator(TimedProcessOperator):
    """Runs a KeyedBroadcastProcessFunction."""

    def __init__(self, setup: OperatorSetup) -> None:
        selector, function = load(setup.config)
        super().__init__(setup, (selector,), function, (function.process_element,))
        tables = BroadcastTables(setup, self.backend)
        self._context = ReadingContext(self._timers, self._gathering, tables)
        clocks = ReadOnlyTimerService(setup, self.backend, _NO_TIMERS)
        self._changing = KeyedChangingContext(clocks, self._gathering, tables, KeyedStateAccess(self.backend))

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if input_index == 0:
            super().process(batch)
            return
        context, gathering = self._changing, self._gathering
        self.backend.current_key = NoKey()
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            for timestamp, value in zip(batch.timestamps, records, strict=True):
                context.timestamp = timestamp
                self.backend.access_time = None
                gathering.add(timestamp, self._function.process_broadcast_element(value, context))
        gathering.send(self.output)
