"""The paths of a cluster's nodes, and the order of its candidates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.election.paths import Paths, candidate, guid_of, in_order
from tailrace.services.election.settings import ZooKeeperSettings

PATHS = Paths.from_settings(ZooKeeperSettings(quorum="h:1", cluster_path="/tailrace/c"))


def test_node_paths_follow_documented_layout() -> None:
    assert PATHS.latch == "/tailrace/c/leaderlatch"
    assert PATHS.leader("resource_manager") == "/tailrace/c/leader/resource_manager_lock"


@given(st.lists(st.integers(-(2**31), 2**31 - 1), unique=True))
def test_candidates_are_sorted_by_number(numbers: list[int]) -> None:
    names = [f"{candidate(f'{abs(hash(number)):032x}')}{number:010d}" for number in numbers]
    assert in_order(names) == [name for _, name in sorted(zip(numbers, names, strict=True))]


@pytest.mark.parametrize("stranger", ["", "lock", "x-latch-1", "ab-latch-", "ab-latch-seven", "-latch-1"])
def test_other_node_is_no_candidate(stranger: str) -> None:
    assert in_order([stranger, "ab-latch-0000000007"]) == ["ab-latch-0000000007"]


def test_candidate_recognises_its_own_node() -> None:
    assert guid_of(candidate("ab12") + "0000000003") == "ab12"
