"""Records in flight that were written as an older form of their type: classes may be anywhere in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import BufferCodec
from tailrace.pipelines.runtime.records.older_records import OlderRecordReader
from tailrace.pipelines.types import RecordType


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Later:
    """A Point with one more field."""

    x: int
    y: int
    name: str = "new"


class Pair(NamedTuple):
    first: Point | None
    second: list[Point]


class LaterPair(NamedTuple):
    first: Later | None
    second: list[Later]
    third: Later | None = None


# The later form of a class has its name.
Later.__name__, LaterPair.__name__ = "Point", "Pair"
P, Q = Point(1, 2), Later(1, 2)


@pytest.mark.parametrize(
    ("written", "declared", "values", "expected"),
    [
        (Point, Later, [P], [Q]),
        (list[Point], list[Later], [[P], []], [[Q], []]),
        (tuple[int, Point], tuple[int, Later], [(5, P)], [(5, Q)]),
        (Pair, LaterPair, [Pair(P, [P, P]), Pair(None, [])], [LaterPair(Q, [Q, Q]), LaterPair(None, [])]),
        (tuple[Pair, int], tuple[LaterPair, int], [(Pair(P, []), 1)], [(LaterPair(Q, []), 1)]),
        (list[Pair], list[LaterPair], [[Pair(None, [P])]], [[LaterPair(None, [Q])]]),
    ],
)
def test_class_anywhere_in_a_record_may_have_a_new_field(
    written: Any, declared: Any, values: list[Any], expected: list[Any]
) -> None:
    before, now = RecordType.of(written), RecordType.of(declared)
    data = BufferCodec(before).payload(Batch.from_rows(pa.array([7] * len(values), pa.int64()), values))
    found = OlderRecordReader(before, now).read_payload(data, 0)
    assert list(found.values) == expected
