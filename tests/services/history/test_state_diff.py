"""Differences of states: applied to the first moment they give the second, and they contain only changes."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.core.replica import Replica
from tailrace.services.history.state_diff import (
    StateDifference,
    compare,
    diff_states,
)
from tailrace.services.history.time_travel import cluster_moment

from ..snapshots.simulated_logs import create_quiet_replica
from .apply_difference import DiffMismatch, apply_change, apply_difference
from .recorded_history import SEEDS, record_live_moments


def replica_at(seed: int, offset: int) -> Replica:
    known, replica = record_live_moments(seed)[offset], create_quiet_replica()
    replica.restore(known.states, known.leadership, known.offset)
    return replica


def as_json(value: object) -> bytes:
    """Returns JSON that preserves the order of keys."""
    return msgspec.json.encode(value)


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=example_count(15))
@given(data=st.data())
def test_difference_applied_to_first_moment_gives_second(seed: int, data: st.DataObject) -> None:
    """In both directions, with the hash; also after the difference was written and read."""
    offsets = st.integers(0, len(record_live_moments(seed)) - 1)
    a, b = (replica_at(seed, data.draw(offsets)) for _ in range(2))
    first, second = cluster_moment(a), cluster_moment(b)
    before = as_json(first)
    difference = diff_states(a, b)
    assert as_json(apply_difference(difference, first)) == as_json(second)
    read = msgspec.json.decode(as_json(difference), type=StateDifference)
    assert as_json(apply_difference(read, first)) == as_json(second)
    assert as_json(first) == before, "nothing was changed in place"
    assert bool(difference.changes) == (first.state_hash != second.state_hash)


@pytest.mark.parametrize("seed", SEEDS)
def test_difference_is_rejected_for_other_moment(seed: int) -> None:
    a, b = replica_at(seed, 30), replica_at(seed, 40)
    with pytest.raises(DiffMismatch, match="begins at offset 30"):
        apply_difference(diff_states(a, b), cluster_moment(b))


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats(0, 2, width=16) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc12"), inner, max_size=3),
    max_leaves=12,
)


@given(before=PLAIN, after=PLAIN)
def test_comparison_distinguishes_types(before: Any, after: Any) -> None:
    """1, 1.0 and True are equal in Python, and not in JSON."""
    before, after = ordered({"x": before}), ordered({"x": after})
    original, result = copy.deepcopy(before), before
    changes = list(compare(before, after, ()))
    for change in changes:
        result = apply_change(result, change, 0)
    assert as_json(result) == as_json(after)
    assert before == original
    assert bool(changes) == (as_json(before) != as_json(after))


def ordered(value: Any) -> Any:
    match value:
        case dict():
            return {key: ordered(value[key]) for key in sorted(value)}
        case list():
            return [ordered(item) for item in value]
        case _:
            return value


def test_growth_at_end_of_list_is_the_only_change() -> None:
    (change,) = compare([1, 2], [1, 2, 3], ("x",))
    assert (change.at, change.before, change.after) == (2, [], [3])
    (change,) = compare([1, 2, 3], [2, 3], ("x",))
    assert (change.at, change.before, change.after) == (0, [1], [])
    assert [change.path for change in compare([1, [2, 3], 4], [1, [2, 5], 4], ("x",))] == [("x", 1, 1)]
