"""The runtime context of a rich function: its subtask, metrics, accumulators and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from .state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class Counter(ABC):
    """A counter that only a function changes."""

    @abstractmethod
    def inc(self, n: float = 1) -> None:
        """Adds n."""

    @property
    @abstractmethod
    def value(self) -> float:
        """The count in this attempt."""


class MetricGroup(ABC):
    """The metrics of one subtask of an operator: soft state, seen in heartbeats, never in the log."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """Returns the counter of that name; the same object each time."""

    @abstractmethod
    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Registers a number that is read when metrics are reported."""


class KeyedStateStore(ABC):
    """The states of the current key, by descriptor."""

    @abstractmethod
    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Returns a state with one value for each key. Raises TypeError if the stream has no keys."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Returns a state with a list for each key. Raises TypeError if the stream has no keys."""

    @abstractmethod
    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Returns a state with a dictionary for each key. Raises TypeError if the stream has no keys."""

    @abstractmethod
    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Returns a state with a reduction for each key. Raises TypeError if the stream has no keys."""

    @abstractmethod
    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor[IN, Any, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Returns a state with an aggregation for each key. Raises TypeError if the stream has no keys."""


class RuntimeContext(KeyedStateStore):
    """The argument of `open`. State is that of the current key, and exists on keyed streams only."""

    job_id: str
    job_name: str
    operator_name: str
    subtask_index: int
    """From 0."""
    parallelism: int
    max_parallelism: int
    attempt_number: int
    """From 0."""

    @property
    @abstractmethod
    def metrics(self) -> MetricGroup:
        """The metrics of this subtask of the operator."""

    @abstractmethod
    def accumulator(self, name: str) -> Counter:
        """Returns the job's accumulator of that name: it sums over all subtasks, and is part of the
        JobExecutionResult.

        It does not contain uncommitted counts of failed attempts.
        """

    def __reduce__(self) -> Any:
        raise TypeError("a RuntimeContext exists only while its task runs")
