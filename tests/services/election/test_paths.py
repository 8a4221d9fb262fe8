"""Every role has nodes of its own, whatever clients call their jobs, and a node names its role."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.core.role import JOB_MASTER, address
from tailrace.services.election.paths import Paths, candidate, guid_of, in_order, role_of
from tailrace.services.election.settings import ZooKeeperSettings

PATHS = Paths.from_settings(ZooKeeperSettings(quorum="h:1", cluster_path="/tailrace/c"))
ROLES = ("dispatcher", "resource_manager", "rest_server")
JOB_IDS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True) | st.sampled_from(
    [f"{role}_lock" for role in ROLES] + ["job_manager_lock", "_lock", "dispatcher", "x-latch-1"]
)
ALL_ROLES = st.sampled_from(ROLES) | JOB_IDS.map(lambda job: address(JOB_MASTER, job))


def test_nodes_are_where_document_000_has_them() -> None:
    assert PATHS.latch("resource_manager") == "/tailrace/c/leaderlatch/resource_manager_lock"
    assert PATHS.leader("resource_manager") == "/tailrace/c/leader/resource_manager_lock"
    assert PATHS.latch("job_master/ab12") == "/tailrace/c/leaderlatch/ab12/job_manager_lock"
    assert PATHS.leader("job_master/ab12") == "/tailrace/c/leader/ab12/job_manager_lock"


@given(ALL_ROLES, ALL_ROLES)
def test_what_is_removed_with_a_role_is_no_other_roles(one: str, other: str) -> None:
    if one == other:
        return
    for path in (PATHS.latch(one), PATHS.leader(one), *PATHS.of_job(one)):
        for theirs in (PATHS.latch(other), PATHS.leader(other)):
            assert not f"{theirs}/".startswith(f"{path}/")


@given(ALL_ROLES)
def test_a_node_names_its_role(role: str) -> None:
    for above, path in ((PATHS.latches, PATHS.latch(role)), (PATHS.leaders, PATHS.leader(role))):
        assert role_of(path.removeprefix(f"{above}/").partition("/")[0]) == role


@given(st.lists(st.integers(-(2**31), 2**31 - 1), unique=True))
def test_contenders_are_in_the_order_of_their_numbers_not_of_their_names(numbers: list[int]) -> None:
    names = [f"{candidate(f'{abs(hash(number)):032x}')}{number:010d}" for number in numbers]
    assert in_order(names) == [name for _, name in sorted(zip(numbers, names, strict=True))]


@pytest.mark.parametrize("stranger", ["", "lock", "x-latch-1", "ab-latch-", "ab-latch-seven", "-latch-1"])
def test_what_is_no_contender_does_not_contend(stranger: str) -> None:
    assert in_order([stranger, "ab-latch-0000000007"]) == ["ab-latch-0000000007"]


def test_a_contender_knows_its_own() -> None:
    assert guid_of(candidate("ab12") + "0000000003") == "ab12"
