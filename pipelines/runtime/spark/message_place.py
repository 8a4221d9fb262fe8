"""The place of a message in its topic: partition and offset in one integer, so that Spark carries one column, not two.

A column is a good part of what a message costs in Spark's JVM. The place of a row that is no message is negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ..common.failures import TaskError

if TYPE_CHECKING:
    import pyarrow as pa

PLACE: Final = "place"
"""The name of the column."""
NO_MESSAGE: Final = -1
"""The place of a row that is no message."""
_OFFSET_BITS: Final = 48
"""For the offset: at a million messages per second, a partition reaches the greatest one after nine years."""
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1
_PARTITIONS: Final = 1 << (63 - _OFFSET_BITS)
SQL: Final = f"(shiftleft(CAST(partition AS BIGINT), {_OFFSET_BITS}) | `offset`)"
"""The place in an expression of Spark's."""


def to_place(partition: int, offset: int) -> int:
    """Returns the place of a message."""
    return partition << _OFFSET_BITS | offset


def partition_at(place: int) -> int:
    """Returns the partition of a place."""
    return place >> _OFFSET_BITS


def offset_at(place: int) -> int:
    """Returns the offset of a place."""
    return place & _OFFSETS


def to_partitions(places: pa.Int64Array) -> pa.Int64Array:
    """Returns the partitions of places."""
    import pyarrow.compute as pc

    return pc.shift_right(places, _OFFSET_BITS)


def to_offsets(places: pa.Int64Array) -> pa.Int64Array:
    """Returns the offsets of places."""
    import pyarrow.compute as pc

    return pc.bit_wise_and(places, _OFFSETS)


def check_partitions(topic: str, partitions: Iterable[int]) -> None:
    """Raises TaskError for a partition that no place has room for."""
    last = max(partitions, default=0)
    if last >= _PARTITIONS:
        raise TaskError(
            f"partition {last} of topic {topic} cannot be read, the greatest one is {_PARTITIONS - 1}; use a topic"
            " with fewer partitions"
        )
