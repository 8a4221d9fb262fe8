"""Every key belongs to one key group, and every key group to one subtask, in every process."""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest
from hash_seeds import output_with_hash_seed
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.key_groups import (
    UPPER_BOUND,
    UnstableKey,
    default_max_parallelism,
    key_group_of,
    key_groups_of_subtask,
    subtask_of,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = (
    scalars
    | st.tuples(scalars, scalars)
    | st.frozensets(scalars)
    | st.tuples(scalars, st.tuples(st.frozensets(scalars), scalars))
)
plans = st.integers(1, 500).flatmap(lambda most: st.tuples(st.just(most), st.integers(1, most)))


@given(keys, plans)
def test_record_goes_to_exactly_one_subtask(key: Any, plan: tuple[int, int]) -> None:
    max_parallelism, parallelism = plan
    group = key_group_of(key, max_parallelism)
    owners = [
        s for s in range(parallelism) if group in key_groups_of_subtask(s, max_parallelism, parallelism)
    ]
    assert owners == [subtask_of(key, max_parallelism, parallelism)]


@given(plans)
def test_subtasks_own_contiguous_ranges_of_all_key_groups(plan: tuple[int, int]) -> None:
    max_parallelism, parallelism = plan
    ranges = [key_groups_of_subtask(s, max_parallelism, parallelism) for s in range(parallelism)]
    assert [group for groups in ranges for group in groups] == list(range(max_parallelism))
    assert all(len(groups) >= 1 for groups in ranges)


class Letter(enum.StrEnum):
    A = "a"


class Pair(NamedTuple):
    x: int
    y: str


@dataclass(frozen=True)
class Place:
    x: int
    y: str


noon = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("key", "equal"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (2**200, float(2**200)),
        ("a", Letter.A),
        ((1, "a"), Pair(1, "a")),
        (frozenset("abc"), frozenset("cba")),
        (noon, noon.astimezone(timezone(timedelta(hours=8)))),
    ],
)
def test_equal_keys_have_same_key_group(key: Any, equal: Any) -> None:
    assert key == equal
    assert key_group_of(key, 1 << 15) == key_group_of(equal, 1 << 15)


class Colour(enum.Enum):
    RED = object()


GOLDEN = {
    "word": 8,
    "": 55,
    1: 60,
    -1.5: 122,
    None: 52,
    b"word": 28,
    ("a", 1): 80,
    frozenset({"a", "b"}): 76,
    Colour.RED: 30,
    Place(1, "a"): 67,
    uuid.UUID(int=1): 82,
    date(2024, 5, 1): 73,
}


def test_key_groups_are_stable() -> None:
    """State is stored by key group: if one of these changes, every savepoint is lost."""
    assert {key: key_group_of(key, 128) for key in GOLDEN} == GOLDEN


@pytest.mark.parametrize(
    "keys", [[f"k{i}" for i in range(10)], list(range(10)), [f"user{i}" for i in range(100)]]
)
def test_keys_that_differ_in_last_digit_are_spread(keys: list[object]) -> None:
    shares = Counter(subtask_of(key, 128, 2) for key in keys)
    assert min(shares[0], shares[1]) >= len(keys) // 5


def test_key_groups_do_not_depend_on_process() -> None:
    program = (
        "from tailrace.pipelines.graph.key_groups import key_group_of\n"
        "print([key_group_of(k, 128) for k in ('word', frozenset('abcdefgh'), ('a', 1.5))])"
    )
    assert output_with_hash_seed(program, "1") == output_with_hash_seed(program, "2")


@pytest.mark.parametrize("key", [["list"], {"a": 1}, object(), {1}, lambda: None, ("a", object())])
def test_key_without_stable_form_is_rejected(key: object) -> None:
    with pytest.raises(UnstableKey, match="let the key selector return"):
        key_group_of(key, 128)


def test_words_are_spread_over_subtasks() -> None:
    subtasks = [subtask_of(f"word{i}", 128, 4) for i in range(10_000)]
    assert all(2_000 < subtasks.count(subtask) < 3_000 for subtask in range(4))


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (170, 256), (171, 256), (30_000, UPPER_BOUND)],
)
def test_default_max_parallelism_is_that_of_flink(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected
