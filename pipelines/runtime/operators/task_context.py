"""The context of a rich function: its subtask, metrics, accumulators, and the state of the current key.

Metrics belong to one operator of one attempt, accumulators to the subtask: two operators that use the same name count
together (accumulators.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from ...functions import (
    AggregatingState,
    AggregatingStateDescriptor,
    Counter,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MetricGroup,
    ReducingState,
    ReducingStateDescriptor,
    RuntimeContext,
    ValueState,
    ValueStateDescriptor,
)
from ..state_backend.accumulators import Accumulators

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class StateBackend(Protocol):
    """The interface of the state of the current key, which a keyed operator puts into its context."""

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]: ...

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]: ...

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]: ...

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]: ...

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, Any, OUT]
    ) -> AggregatingState[IN, OUT]: ...


class Count(Counter):
    """A counter in memory."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0.0

    def inc(self, n: float = 1) -> None:
        self._value += n

    @property
    def value(self) -> float:
        return self._value


class Metrics(MetricGroup):
    """The metrics of one operator of one subtask."""

    def __init__(self) -> None:
        self._counters: dict[str, Count] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def counter(self, name: str) -> Counter:
        return self._counters.setdefault(name, Count())

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        self._gauges[name] = read

    def values(self) -> Mapping[str, float]:
        """Returns all counters and gauges by name, without gauges that cannot be read now."""
        found = {name: counter.value for name, counter in self._counters.items()}
        for name, read in self._gauges.items():
            with contextlib.suppress(Exception):
                found[name] = float(read())
        return found


class TaskContext(RuntimeContext):
    """The context of one operator. Without arguments it is that of a single subtask without a job, for tests and
    Spark's workers."""

    def __init__(
        self,
        *,
        job_id: str = "",
        job_name: str = "",
        operator_name: str = "",
        subtask_index: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        attempt_number: int = 0,
        accumulators: Accumulators | None = None,
    ) -> None:
        self.job_id = job_id
        self.job_name = job_name
        self.operator_name = operator_name
        self.subtask_index = subtask_index
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.attempt_number = attempt_number
        self.state_backend: StateBackend | None = None
        """Set by keyed operators before they open their function."""
        self._metrics = Metrics()
        self._accumulators = Accumulators() if accumulators is None else accumulators

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    def accumulator(self, name: str) -> Counter:
        return self._accumulators.counter(name)

    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        return self._keyed(descriptor).get_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        return self._keyed(descriptor).get_list_state(descriptor)

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        return self._keyed(descriptor).get_map_state(descriptor)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        return self._keyed(descriptor).get_reducing_state(descriptor)

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, Any, OUT]
    ) -> AggregatingState[IN, OUT]:
        return self._keyed(descriptor).get_aggregating_state(descriptor)

    def _keyed(self, descriptor: Any) -> StateBackend:
        if self.state_backend is None:
            raise TypeError(
                f"operator {self.operator_name!r} requests the state {descriptor.name!r}, but its stream has no keys:"
                " call key_by before it"
            )
        return self.state_backend
