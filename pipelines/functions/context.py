"""What a rich function can ask about its subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from .state import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Counter(ABC):
    """A number that only a function changes."""

    @abstractmethod
    def inc(self, n: float = 1) -> None:
        """Adds n."""

    @property
    @abstractmethod
    def value(self) -> float:
        """What it has come to in this attempt."""


class MetricGroup(ABC):
    """The metrics of one subtask of an operator: soft state, seen in heartbeats, never in the log."""

    @abstractmethod
    def counter(self, name: str) -> Counter:
        """The counter of that name; the same one each time."""

    @abstractmethod
    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """A number that is read when metrics are reported."""


class RuntimeContext(ABC):
    """Given to `open`. State is that of the current key, and only there on keyed streams."""

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
        """The job's accumulator of that name: sums over all subtasks, and part of the JobExecutionResult.

        What an attempt has counted and not committed is not in it.
        """

    @abstractmethod
    def get_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """One value for each key. Raises TypeError where the stream has no keys."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """A list for each key. Raises TypeError where the stream has no keys."""

    @abstractmethod
    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """A dictionary for each key. Raises TypeError where the stream has no keys."""

    def __reduce__(self) -> Any:
        raise TypeError("a RuntimeContext exists only while its task runs")
