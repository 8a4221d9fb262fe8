"""The keyed state of a function: value, list, map, reduction or aggregation of the current key (Flink's keyed state).

A descriptor has the name and the type of a state. Request the state in `open`, with a name that is unique in the
operator. A value that was never set is None, empty, or the descriptor's default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from ..types import RecordType
from .aggregate import AggregateFunction
from .state_ttl import StateTtlConfig

T = TypeVar("T")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
K = TypeVar("K")
V = TypeVar("V")
X = TypeVar("X")


@dataclass(frozen=True)
class StateDescriptor:
    """The name of a state, and its time to live."""

    name: str
    ttl_config: StateTtlConfig | None = field(default=None, kw_only=True, compare=False)

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Lets the state expire. Call it before the state is requested."""
        object.__setattr__(self, "ttl_config", ttl_config)

    @property
    def ttl(self) -> StateTtlConfig | None:
        """The time to live; None: the state does not expire."""
        config = self.ttl_config
        return config if config is not None and config.is_enabled else None


@dataclass(frozen=True)
class ValueStateDescriptor(StateDescriptor, Generic[T]):
    """One value. `value_type`: a Python type or one of `Types`; None: pickled."""

    value_type: Any = None
    default: T | None = None

    if TYPE_CHECKING:
        # A class gives type checkers the type of the state, too; other forms, such as `int | None`, do not. Without a
        # default the value may be None.
        @overload
        def __init__(
            self: ValueStateDescriptor[X | None],
            name: str,
            value_type: type[X],
            *,
            ttl_config: StateTtlConfig | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            value_type: type[T],
            default: T,
            *,
            ttl_config: StateTtlConfig | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            value_type: object = None,
            default: T | None = None,
            *,
            ttl_config: StateTtlConfig | None = None,
        ) -> None: ...
        def __init__(
            self, name: str, value_type: Any = None, default: Any = None, *, ttl_config: Any = None
        ) -> None: ...

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of the value."""
        return RecordType.of(self.value_type)


@dataclass(frozen=True)
class ListStateDescriptor(StateDescriptor, Generic[T]):
    """A list. `element_type`: a Python type or one of `Types`; None: pickled."""

    element_type: Any = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self, name: str, element_type: type[T], *, ttl_config: StateTtlConfig | None = None
        ) -> None: ...
        @overload
        def __init__(
            self, name: str, element_type: object = None, *, ttl_config: StateTtlConfig | None = None
        ) -> None: ...
        def __init__(self, name: str, element_type: Any = None, *, ttl_config: Any = None) -> None: ...

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of an element."""
        return RecordType.of(self.element_type)


@dataclass(frozen=True)
class MapStateDescriptor(StateDescriptor, Generic[K, V]):
    """A dictionary. Types as in ValueStateDescriptor."""

    key_type: Any = None
    value_type: Any = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            name: str,
            key_type: type[K],
            value_type: type[V],
            *,
            ttl_config: StateTtlConfig | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self,
            name: str,
            key_type: object = None,
            value_type: object = None,
            *,
            ttl_config: StateTtlConfig | None = None,
        ) -> None: ...
        def __init__(
            self, name: str, key_type: Any = None, value_type: Any = None, *, ttl_config: Any = None
        ) -> None: ...

    @property
    def key_record_type(self) -> RecordType:
        """Returns the record type of a key of the dictionary."""
        return RecordType.of(self.key_type)

    @property
    def value_record_type(self) -> RecordType:
        """Returns the record type of a value of the dictionary."""
        return RecordType.of(self.value_type)


class Reduces(Protocol[T]):
    """A ReduceFunction, as far as a state needs it."""

    def reduce(self, a: T, b: T) -> T:
        """Returns the combined value."""


@dataclass(frozen=True)
class ReducingStateDescriptor(StateDescriptor, Generic[T]):
    """One value, the reduction of all that were added. `reduce_function`: a ReduceFunction, or a callable of two
    values; `open` is not called."""

    reduce_function: Reduces[T] | Callable[[T, T], T]
    value_type: Any = None

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of the value."""
        return RecordType.of(self.value_type)

    @property
    def reduce(self) -> Callable[[T, T], T]:
        """Returns the function of two values."""
        function: Any = self.reduce_function
        reduce: Callable[[T, T], T] = getattr(function, "reduce", function)
        return reduce


@dataclass(frozen=True)
class AggregatingStateDescriptor(StateDescriptor, Generic[IN, ACC, OUT]):
    """An accumulator of all values that were added. `accumulator_type`: a Python type or one of `Types`; None:
    pickled."""

    aggregate_function: AggregateFunction[IN, ACC, OUT]
    accumulator_type: Any = None

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of the accumulator."""
        return RecordType.of(self.accumulator_type)


class ValueState(ABC, Generic[T]):
    """One value of the current key. T includes None if the descriptor has no default."""

    @abstractmethod
    def value(self) -> T:
        """The value, or the descriptor's default."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Sets the value. A value that is changed in place has to be set again."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the value."""


class ListState(ABC, Generic[T]):
    """A list of the current key."""

    @abstractmethod
    def __iter__(self) -> Iterator[T]: ...

    @abstractmethod
    def add(self, value: T) -> None:
        """Appends one element."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Appends elements."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replaces the list."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the list."""


class MapState(MutableMapping[K, V], ABC):
    """A dictionary of the current key. Set a value again after changing it in place."""


class ReducingState(ABC, Generic[T]):
    """The reduction of all values that were added for the current key."""

    @abstractmethod
    def get(self) -> T | None:
        """The reduction, or None if nothing was added."""

    @abstractmethod
    def add(self, value: T) -> None:
        """Reduces the state and a value to one."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the reduction."""


class AggregatingState(ABC, Generic[IN, OUT]):
    """The aggregation of all values that were added for the current key."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result, or None if nothing was added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Adds a value to the accumulator."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the accumulator."""


class ReadOnlyBroadcastState(Mapping[K, V], ABC):
    """A dictionary that is the same in all subtasks of an operator; read-only."""


class BroadcastState(MutableMapping[K, V], ABC):
    """The same dictionary, writable. Set a value again after changing it in place."""
