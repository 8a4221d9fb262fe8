"""The tree over a moment: each path names one place, and everything has a path."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.history.state_diff import diff_states
from tailrace.services.history.state_tree import (
    NoSuchPath,
    NotADirectory,
    Parts,
    StateTree,
    escape,
    format_path,
    list_entries,
    parse,
    state_path,
    unescape,
)
from tailrace.services.history.time_travel import cluster_moment

from ..snapshots.simulated_logs import LONG
from .apply_difference import apply_difference
from .recorded_history import SEEDS, record_live_moments
from .test_state_diff import replica_at


def plain(found: Any) -> Any:
    entries = list_entries(found)
    return found if entries is None else {name: plain(entries[name]) for name in entries}


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_cover_exactly_the_moment(seed: int) -> None:
    replica = replica_at(seed, len(record_live_moments(seed)) * 2 // 3)
    whole, tree = cluster_moment(replica), StateTree(replica, {"offset": replica.offset})
    assert tree.at(("offset",)) == replica.offset
    assert plain(tree.at(("leaders",))) == plain(whole.leaders)
    for address, data in whole.roles.items():
        assert plain(tree.at(state_path(address))) == plain(data)
    kinds = {address.partition("/")[0] for address in whole.roles}
    assert set(tree.root) == {"offset", "leaders", *kinds}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_walked_path_leads_to_its_value(seed: int) -> None:
    tree = StateTree(replica_at(seed, len(record_live_moments(seed)) // 2), {})
    count = 0
    for parts, result in tree.walk(()):
        count += 1
        if count % 17 == 0:
            here: Parts = ("leaders",)
            assert parse(format_path(parts), here) == parts
            assert plain(tree.at(parts)) == plain(result)
    assert count > 100


@given(st.text(max_size=6) | st.text("./%2F5f", max_size=6))
def test_any_key_is_one_name(key: str) -> None:
    name = escape(key)
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert unescape(name) == key
    assert parse(format_path((key, "x")), ()) == (key, "x")


def test_relative_path_starts_at_current_place() -> None:
    here = ("a", "b")
    assert parse("c", here) == ("a", "b", "c")
    assert parse("../c/./d/", here) == ("a", "c", "d")
    assert parse("/", here) == ()
    assert parse("../../../..", here) == ()
    assert parse("", here) == here


def test_unknown_path_is_rejected_with_similar_names() -> None:
    tree = StateTree(replica_at(0, 60), {"offset": 60})
    with pytest.raises(NoSuchPath, match="there is no dispatchr in /: did you mean dispatcher"):
        tree.at(("dispatchr",))
    with pytest.raises(NotADirectory, match="/offset is a value"):
        tree.at(("offset", "x"))


def test_wildcard_matches_every_name() -> None:
    tree = StateTree(replica_at(LONG, 150), {})
    results = list(tree.matching((), ("task_executor", "te-[13]", "resource_id")))
    assert [tree.at(result) for result in results] == ["te-1", "te-3"]
    assert list(tree.matching((), ("*", "te-9"))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_of_difference_has_path_in_one_moment(seed: int) -> None:
    a, b = replica_at(seed, 40), replica_at(seed, 90)
    difference = diff_states(a, b)
    assert apply_difference(difference, cluster_moment(a)) == cluster_moment(b)
    trees = [StateTree(replica, {"feature_level": replica.leadership.feature_level}) for replica in (a, b)]
    for change in difference.changes:
        parts = tuple(map(str, change.path))
        assert any(_is_there(tree, parts) for tree in trees), change.path


def _is_there(tree: StateTree, parts: Parts) -> bool:
    try:
        tree.at(parts)
    except LookupError:
        return False
    return True
