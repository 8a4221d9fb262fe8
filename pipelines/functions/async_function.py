"""Functions that asyncio runs, and when a call is repeated (Flink's AsyncFunction and AsyncRetryStrategy)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from .context import RuntimeContext
from .intervals import checked_count
from .rich import IN, OUT

_MILLISECOND = timedelta(milliseconds=1)


class AsyncFunction(ABC, Generic[IN, OUT]):
    """Requests the results of each record, many records at a time.

    All methods run in the thread of asyncio's loop, which all tasks of the process share: none may block it. `open` and
    `close` may be `async def`, so that a client's session can be created and closed there.
    """

    def open(self, context: RuntimeContext) -> Awaitable[None] | None:
        """Called before the first record."""

    def close(self) -> Awaitable[None] | None:
        """Called after the last record, also after a failure."""

    @abstractmethod
    async def async_invoke(self, value: IN) -> Iterable[OUT] | None:
        """Returns the records to emit, or None. It must not change its argument, which is state of the operator."""

    def timeout(self, value: IN) -> Iterable[OUT] | None:
        """Returns the records to emit for a record without results in time. By default the job fails."""
        del value
        raise TimeoutError("the function has returned no result in time")


@dataclass(frozen=True, kw_only=True)
class AsyncRetryStrategy(ABC):
    """When the function is called again for a record. The operator's timeout is for all calls of a record together."""

    max_attempts: int = 3
    """The number of calls for a record, with the first one."""
    exception_predicate: Callable[[Exception], object] | None = None
    """Whether a call that raised this is repeated; None: whatever it raised."""
    result_predicate: Callable[[Any], object] | None = None
    """Whether a call that returned this is repeated; None: no."""

    def __post_init__(self) -> None:
        checked_count("max_attempts of a retry strategy", self.max_attempts, 1)
        for name in ("exception_predicate", "result_predicate"):
            predicate = getattr(self, name)
            if predicate is not None and (isinstance(predicate, type) or not callable(predicate)):
                raise ValueError(
                    f"the {name} of a retry strategy is {predicate!r}: give a function, such as"
                    " lambda error: isinstance(error, OSError)"
                )

    @abstractmethod
    def delay_s(self, attempts: int) -> float:
        """Returns the seconds before the next call, after so many calls."""

    def retries_exception(self, attempts: int, error: Exception) -> bool:
        """Whether to call again after an exception."""
        predicate = self.exception_predicate
        return attempts < self.max_attempts and (predicate is None or bool(predicate(error)))

    def retries_result(self, attempts: int, result: Any) -> bool:
        """Whether to call again after a result."""
        predicate = self.result_predicate
        return attempts < self.max_attempts and predicate is not None and bool(predicate(result))


@dataclass(frozen=True, kw_only=True)
class FixedDelayRetryStrategy(AsyncRetryStrategy):
    """Calls again after the same time."""

    delay: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_delay("delay", self.delay)

    def delay_s(self, attempts: int) -> float:
        del attempts
        return self.delay.total_seconds()


@dataclass(frozen=True, kw_only=True)
class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy):
    """Calls again after a time that grows with each call."""

    initial_delay: timedelta = 100 * _MILLISECOND
    max_delay: timedelta = timedelta(seconds=10)
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_delay("initial_delay", self.initial_delay)
        _check_delay("max_delay", self.max_delay)
        if not self.multiplier > 0:
            raise ValueError(
                f"the multiplier of a retry strategy is {self.multiplier!r}, not a number above 0"
            )

    def delay_s(self, attempts: int) -> float:
        longest, first = self.max_delay.total_seconds(), self.initial_delay.total_seconds()
        try:
            return min(longest, first * self.multiplier ** (attempts - 1))
        except OverflowError:
            return longest


def _check_delay(name: str, delay: object) -> None:
    if not isinstance(delay, timedelta) or delay < timedelta(0):
        raise ValueError(f"the {name} of a retry strategy is {delay!r}: give a timedelta of 0 or more")
