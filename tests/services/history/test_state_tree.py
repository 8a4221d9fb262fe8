"""The tree over a moment: each path names one place, and all that is known has one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.history.state_diff import apply_difference, diff_states
from tailrace.services.history.state_tree import (
    NoSuchPath,
    NotADirectory,
    Parts,
    StateTree,
    change_path,
    escape,
    format_path,
    list_entries,
    parse,
    unescape,
)
from tailrace.services.history.time_travel import cluster_moment

from ..snapshots.simulated_logs import LONG
from .recorded_history import SEEDS, record_live_moments
from .test_state_diff import replica_at


def plain(found: Any) -> Any:
    entries = list_entries(found)
    return found if entries is None else {name: plain(entries[name]) for name in entries}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_a_moment_holds_is_at_a_path_and_nothing_else(seed: int) -> None:
    replica = replica_at(seed, len(record_live_moments(seed)) * 2 // 3)
    whole, tree = cluster_moment(replica), StateTree(replica, {"offset": replica.offset})
    assert tree.at(("offset",)) == replica.offset
    assert plain(tree.at(("leaders",))) == plain(whole.leaders)
    for address, data in whole.roles.items():
        assert plain(tree.at(change_path(("roles", address)))) == plain(data)
    kinds = {address.partition("/")[0] for address in whole.roles}
    assert set(tree.root) == {"offset", "leaders", *kinds}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_path_that_is_walked_leads_back_to_what_was_found(seed: int) -> None:
    tree = StateTree(replica_at(seed, len(record_live_moments(seed)) // 2), {})
    count = 0
    for parts, found in tree.walk(()):
        count += 1
        if count % 17 == 0:
            here: Parts = ("leaders",)
            assert parse(format_path(parts), here) == parts
            assert plain(tree.at(parts)) == plain(found)
    assert count > 100


@given(st.text(max_size=6) | st.text("./%2F5f", max_size=6))
def test_any_key_is_one_name(key: str) -> None:
    name = escape(key)
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert unescape(name) == key
    assert parse(format_path((key, "x")), ()) == (key, "x")


def test_paths_are_read_from_where_one_is() -> None:
    here = ("a", "b")
    assert parse("c", here) == ("a", "b", "c")
    assert parse("../c/./d/", here) == ("a", "c", "d")
    assert parse("/", here) == ()
    assert parse("../../../..", here) == ()
    assert parse("", here) == here


def test_what_is_not_there_is_told_with_what_is_near() -> None:
    tree = StateTree(replica_at(0, 60), {"offset": 60})
    with pytest.raises(NoSuchPath, match="there is no dispatchr in /: did you mean dispatcher"):
        tree.at(("dispatchr",))
    with pytest.raises(NotADirectory, match="/offset is a value"):
        tree.at(("offset", "x"))


def test_wildcards_take_every_name_that_matches() -> None:
    tree = StateTree(replica_at(LONG, 150), {})
    found = list(tree.matching((), ("task_executor", "te-[13]", "resource_id")))
    assert [tree.at(each) for each in found] == ["te-1", "te-3"]
    assert list(tree.matching((), ("*", "te-9"))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_of_a_difference_is_at_a_path_of_one_of_its_moments(seed: int) -> None:
    a, b = replica_at(seed, 40), replica_at(seed, 90)
    found = diff_states(a, b)
    assert apply_difference(found, cluster_moment(a)) == cluster_moment(b)
    trees = [StateTree(each, {"feature_level": each.leadership.feature_level}) for each in (a, b)]
    for change in found.changes:
        parts = change_path(change.path)
        assert any(_is_there(tree, parts) for tree in trees), change.path


def _is_there(tree: StateTree, parts: Parts) -> bool:
    try:
        tree.at(parts)
    except LookupError:
        return False
    return True
