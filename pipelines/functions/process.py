"""Process functions: each record with its time, side outputs and, on keyed streams, state and timers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..flink_names import advise
from .rich import RichFunction
from .side_output import OutputTag

K = TypeVar("K")
IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
X = TypeVar("X")


class TimerService(ABC):
    """The timers of the current key. All times are milliseconds since the epoch. Two timers of one time are one."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The watermark (ms): no more records with a timestamp <= this are expected."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The processing time that the task has reached."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Calls `on_timer` when the watermark reaches the timestamp."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Calls `on_timer` when processing time reaches the timestamp."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Deletes a timer, if it exists."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Deletes a timer, if it exists."""

    if not TYPE_CHECKING:

        def __call__(self) -> NoReturn:
            raise TypeError("timer_service is a property, not a method as in PyFlink: write it without ()")


class Context(ABC):
    """The context of a process function."""

    @property
    @abstractmethod
    def timestamp(self) -> int:
        """The timestamp of the record, or the time of the timer (ms)."""

    @property
    @abstractmethod
    def timer_service(self) -> TimerService:
        """The current times; on keyed streams also timers. Registering a timer without a key raises TypeError."""

    @abstractmethod
    def output(self, tag: OutputTag[X], value: X) -> None:
        """Emits a record on a side output, with the current timestamp."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name)


class KeyedContext(Context, Generic[K]):
    """A Context with the current key."""

    @property
    @abstractmethod
    def current_key(self) -> K:
        """The key of the record or timer."""


class OnTimerContext(KeyedContext[K]):
    """The context of `on_timer`."""

    @property
    @abstractmethod
    def time_domain(self) -> str:
        """`event-time` or `processing-time`."""


class ProcessFunction(RichFunction, ABC, Generic[IN, OUT]):
    """Emits any number of records, also on side outputs, for each record."""

    @abstractmethod
    def process_element(self, value: IN, context: Context) -> Iterable[OUT] | None:
        """Returns records to emit, or None."""


class KeyedProcessFunction(RichFunction, ABC, Generic[K, IN, OUT]):
    """A ProcessFunction with state and timers of each key."""

    @abstractmethod
    def process_element(self, value: IN, context: KeyedContext[K]) -> Iterable[OUT] | None:
        """Returns records to emit, or None."""

    def on_timer(self, timestamp: int, context: OnTimerContext[K]) -> Iterable[OUT] | None:
        """Called when a timer of this function fires. Returns records to emit, or None."""
        del timestamp, context
        return None


class CoProcessFunction(RichFunction, ABC, Generic[IN1, IN2, OUT]):
    """A ProcessFunction for two connected streams."""

    @abstractmethod
    def process_element1(self, value: IN1, context: Context) -> Iterable[OUT] | None:
        """Processes a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, context: Context) -> Iterable[OUT] | None:
        """Processes a record of the second stream."""


class KeyedCoProcessFunction(RichFunction, ABC, Generic[K, IN1, IN2, OUT]):
    """A KeyedProcessFunction for two connected streams that are partitioned by keys of one type."""

    @abstractmethod
    def process_element1(self, value: IN1, context: KeyedContext[K]) -> Iterable[OUT] | None:
        """Processes a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: IN2, context: KeyedContext[K]) -> Iterable[OUT] | None:
        """Processes a record of the second stream."""

    def on_timer(self, timestamp: int, context: OnTimerContext[K]) -> Iterable[OUT] | None:
        """Called when a timer of this function fires. Returns records to emit, or None."""
        del timestamp, context
        return None


AnyProcessFunction = (
    ProcessFunction[Any, Any]
    | KeyedProcessFunction[Any, Any, Any]
    | CoProcessFunction[Any, Any, Any]
    | KeyedCoProcessFunction[Any, Any, Any, Any]
)
