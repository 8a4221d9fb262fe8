"""A small batch is converted as a large one is; values that Arrow converts or rejects are left to Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.records.small_batches import SmallBatchCodec
from tailrace.pipelines.types import RecordType, RecordTypeError


@dataclass
class Word:
    """A class with columns."""

    word: str
    count: int
    more: list[float | None]


@dataclass(kw_only=True)
class ByKeyword:
    """A class that is constructed by keyword."""

    anything: Any
    x: int | None = None


class Point(NamedTuple):
    """A named tuple."""

    x: float
    at: tuple[str, bytes]


integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(),
    int: integers,
    float: floats,
    bool: st.booleans(),
    bytes: st.binary(),
    int | None: st.none() | integers,
    list[int | None]: st.lists(st.none() | integers),
    tuple[str, tuple[int, bool], list[str]]: st.tuples(
        st.text(), st.tuples(integers, st.booleans()), st.lists(st.text())
    ),
    Word: st.builds(Word, st.text(), integers, st.lists(st.none() | floats)),
    ByKeyword: st.builds(ByKeyword, anything=st.sets(integers), x=st.none() | integers),
    Point: st.builds(Point, floats, st.tuples(st.text(), st.binary())),
    None: st.none() | st.text() | st.sets(integers),
}
records = st.sampled_from(list(VALUES)).flatmap(
    lambda hint: st.tuples(st.just(hint), st.lists(st.tuples(integers, VALUES[hint]), min_size=1, max_size=5))
)


@given(records)
def test_values_of_declared_type_survive_round_trip(of: tuple[Any, list[tuple[int, Any]]]) -> None:
    hint, pairs = of
    timestamps, values = [t for t, _ in pairs], [v for _, v in pairs]
    data = SmallBatchCodec(RecordType.of(hint)).encode(timestamps, values)
    assert data is not None
    back = SmallBatchCodec(RecordType.from_json(RecordType.of(hint).to_json())).decode(data)
    assert back == (timestamps, values)
    assert list(map(type, back[1])) == list(map(type, values))


class Colour(StrEnum):
    """A subclass of str."""

    RED = "red"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, 1),
        (str, "\ud800"),
        (str, Colour.RED),
        (int, True),
        (int, 2**63),
        (float, 1),
        (bool, 1),
        (list[int], (1,)),
        (tuple[str, tuple[int, int]], ("a", [1, 2])),
        (tuple[str, tuple[int, int]], ("a", (1, 2, 3))),
        (tuple[str, Word], ("a", Word("a", 1, []))),
    ],
)
def test_values_of_similar_type_are_left_to_arrow(hint: object, value: object) -> None:
    assert SmallBatchCodec(RecordType.of(hint)).encode([0], [value]) is None


@pytest.mark.parametrize(
    ("hint", "value"), [(tuple[int, int], [1, 2]), (tuple[int, int], (1,)), (Word, ("a", 1, []))]
)
def test_record_of_other_shape_is_rejected(hint: object, value: object) -> None:
    with pytest.raises(RecordTypeError):
        SmallBatchCodec(RecordType.of(hint)).encode([0], [value])
