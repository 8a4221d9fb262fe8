"""Window joins and co-groups: `a.join(b).where(key).equal_to(key).window(assigner).apply(function)`.

As in Flink, both are a window over the union of the two streams, whose records are tagged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

from ...functions import CoGroupFunction, JoinFunction, OutputTag, ProcessWindowFunction, TaggedUnion
from ...functions.join_adapters import CoGroupedWindow, JoinedWindow, TaggedKey, as_one, as_two, tagged_type
from ...types import RecordType
from .. import signatures
from ..keys import Key, common_key_type, key_of
from ..signatures import check_function
from ..source_location import caller_location
from ..transformations import Physical
from ..type_hints import result_type
from ..windows import WindowAssigner
from .settings import OnlyInPrograms

if TYPE_CHECKING:
    from .data_stream import DataStream, SingleOutputStreamOperator, WindowedStream

A = TypeVar("A")
B = TypeVar("B")
K = TypeVar("K")
R = TypeVar("R")
W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)


class MakeWindowed(Protocol[W_co]):
    """Makes the last object of the chain, a WindowedJoin or a WindowedCoGroup."""

    def __call__(
        self,
        windowed: WindowedStream[TaggedUnion[Any, Any], Any],
        types: tuple[RecordType, RecordType],
        name: str,
    ) -> W_co: ...


class JoinedStreams(OnlyInPrograms, Generic[A, B]):
    """Two streams whose records are joined within windows."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    @overload
    def where(self, key: Callable[[A], K], key_type: object = ...) -> Where[B, K, WindowedJoin[A, B]]: ...
    @overload
    def where(self, key: str | int, key_type: object = ...) -> Where[B, Any, WindowedJoin[A, B]]: ...
    def where(
        self, key: Callable[[A], Any] | str | int, key_type: object = None
    ) -> Where[B, Any, WindowedJoin[A, B]]:
        """Sets the key of the first stream, as for `key_by`."""
        own = key_of(self._first.record_type, key, key_type, "where")
        return Where(self._first, self._second, own, WindowedJoin)


class CoGroupedStreams(OnlyInPrograms, Generic[A, B]):
    """Two streams whose records are grouped within windows."""

    def __init__(self, first: DataStream[A], second: DataStream[B]) -> None:
        self._first = first
        self._second = second

    @overload
    def where(self, key: Callable[[A], K], key_type: object = ...) -> Where[B, K, WindowedCoGroup[A, B]]: ...
    @overload
    def where(self, key: str | int, key_type: object = ...) -> Where[B, Any, WindowedCoGroup[A, B]]: ...
    def where(
        self, key: Callable[[A], Any] | str | int, key_type: object = None
    ) -> Where[B, Any, WindowedCoGroup[A, B]]:
        """Sets the key of the first stream, as for `key_by`."""
        own = key_of(self._first.record_type, key, key_type, "where")
        return Where(self._first, self._second, own, WindowedCoGroup)


class Where(OnlyInPrograms, Generic[B, K, W]):
    """Two streams, of which the first has a key."""

    def __init__(
        self, first: DataStream[Any], second: DataStream[B], key: Key, make: MakeWindowed[W]
    ) -> None:
        self._first = first
        self._second = second
        self._key = key
        self._make = make

    def equal_to(self, key: Callable[[B], K] | str | int, key_type: object = None) -> EqualTo[W]:
        """Sets the key of the second stream, of the same type."""
        other = key_of(self._second.record_type, key, key_type, "equal_to")
        common = common_key_type(self._key, other, "equal_to")
        selector = TaggedKey(self._key.selector, other.selector)
        return EqualTo(self._first, self._second, Key(selector, common), self._make)


class EqualTo(OnlyInPrograms, Generic[W]):
    """Two streams with keys."""

    def __init__(
        self, first: DataStream[Any], second: DataStream[Any], key: Key, make: MakeWindowed[W]
    ) -> None:
        self._first = first
        self._second = second
        self._key = key
        self._make = make

    def window(self, assigner: WindowAssigner) -> W:
        """Groups the records of both streams by key and window."""
        types = self._first.record_type, self._second.record_type
        tagged = tagged_type(*types)
        one = _tagged(self._first, as_one, tagged, "Tag First")
        two = _tagged(self._second, as_two, tagged, "Tag Second")
        keyed = one.union(two).key_by(self._key.selector, self._key.record_type)
        return self._make(keyed.window(assigner), types, str(assigner))


class _WindowedPair(OnlyInPrograms, Generic[A, B]):
    """The common part. Frozen: each setter returns a changed copy."""

    def __init__(
        self,
        windowed: WindowedStream[TaggedUnion[A, B], Any],
        types: tuple[RecordType, RecordType],
        name: str,
    ) -> None:
        self._windowed = windowed
        self._types = types
        self._name = name

    def allowed_lateness(
        self, lateness: timedelta | None = None, *, seconds: float = 0, milliseconds: int = 0
    ) -> Self:
        """Keeps a window for this time after it has fired; the window fires again for each late record."""
        changed = self._windowed.allowed_lateness(lateness, seconds=seconds, milliseconds=milliseconds)
        return type(self)(changed, self._types, self._name)

    def side_output_late_data(self, tag: OutputTag[TaggedUnion[A, B]]) -> Self:
        """Sends records that are too late for their windows to a side output of the join; by default they are
        dropped."""
        return type(self)(self._windowed.side_output_late_data(tag), self._types, self._name)

    def _applied(
        self, name: str, function: ProcessWindowFunction[Any, Any, Any], of: RecordType
    ) -> SingleOutputStreamOperator[Any]:
        fired = self._windowed._fired(
            "apply",
            of,
            aggregation="none",
            window_function=function,
            accumulator_type=self._windowed._keyed.record_type,
        )
        return fired.name(f"{name}({self._name})")


class WindowedJoin(_WindowedPair[A, B]):
    """The pairs of records of two streams that have one key in one window."""

    def apply(
        self, function: Callable[[A, B], R] | JoinFunction[A, B, R], output_type: object = None
    ) -> SingleOutputStreamOperator[R]:
        """Emits one record for each pair. The timestamp of a result is the window's last millisecond."""
        of = _result(function, signatures.JOIN, output_type)
        return self._applied("Window Join", JoinedWindow(function, *self._types), of)


class WindowedCoGroup(_WindowedPair[A, B]):
    """The records of two streams, grouped by key and window."""

    def apply(
        self,
        function: Callable[[Iterable[A], Iterable[B]], Iterable[R]] | CoGroupFunction[A, B, R],
        output_type: object = None,
    ) -> SingleOutputStreamOperator[R]:
        """Emits any number of records for each key and window with a record of either stream: also an outer join.
        The timestamp of a result is the window's last millisecond."""
        of = _result(function, signatures.CO_GROUP, output_type)
        return self._applied("Co-Group", CoGroupedWindow(function), of)


def _result(function: object, signature: signatures.Signature, output_type: object) -> RecordType:
    check_function(function, signature, operator="apply", location=caller_location())
    return result_type(function, signature) if output_type is None else RecordType.of(output_type)


def _tagged(
    stream: DataStream[Any], tag: Callable[[Any], TaggedUnion[Any, Any]], of: RecordType, name: str
) -> DataStream[TaggedUnion[Any, Any]]:
    tagged = stream.map(tag, of).name(name)
    before = stream._program.transformations[stream._id]
    if isinstance(before, Physical) and before.parallelism is not None:
        tagged.set_parallelism(before.parallelism)  # so that both are chained
    return tagged
