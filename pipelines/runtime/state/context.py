"""The RuntimeContext of a function on a keyed stream: that of its subtask, with state."""

from __future__ import annotations

from typing import TypeVar

from ...functions import (
    Counter,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MetricGroup,
    RuntimeContext,
    ValueState,
    ValueStateDescriptor,
)
from .backend import KeyedStateBackend
from .handles import TableListState, TableMapState, TableValueState

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class KeyedRuntimeContext(RuntimeContext):
    """As the context it is made of, and with the state of a backend."""

    def __init__(self, context: RuntimeContext, backend: KeyedStateBackend) -> None:
        self._context = context
        self._backend = backend
        self.job_id = context.job_id
        self.job_name = context.job_name
        self.operator_name = context.operator_name
        self.subtask_index = context.subtask_index
        self.parallelism = context.parallelism
        self.max_parallelism = context.max_parallelism
        self.attempt_number = context.attempt_number

    @property
    def metrics(self) -> MetricGroup:
        return self._context.metrics

    def accumulator(self, name: str) -> Counter:
        return self._context.accumulator(name)

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        table = self._backend.value_table(descriptor.name, descriptor.record_type)
        return TableValueState(self._backend, table, descriptor.default)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        return TableListState(
            self._backend, self._backend.list_table(descriptor.name, descriptor.record_type)
        )

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        table = self._backend.map_table(
            descriptor.name, descriptor.key_record_type, descriptor.value_record_type
        )
        return TableMapState(self._backend, table)
