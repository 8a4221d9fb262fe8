"""The laws of the tenants' turns: no request is lost or overtaken, no tenant waits for long, no limit is exceeded."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.dispatcher.tenant_turns import (
    MAX_WAITING,
    MAX_WAITING_BYTES,
    MINUTE_S,
    TenantTurns,
)

TENANTS = ("", "a", "b", "c")
LIMITS = {"a": None, "b": 3, "c": 1}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(TENANTS)),
        st.tuples(st.just("take"), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(["1", "20", "59.5", "60"])),
        st.tuples(st.just("new leader"), st.just("")),
    ),
    max_size=80,
)


@given(STEPS)
def test_requests_are_taken_in_order_and_never_more_than_limit_in_any_minute(
    steps: list[tuple[str, str]],
) -> None:
    turns, now = TenantTurns[int](LIMITS), 0.0
    added: dict[str, list[int]] = {tenant: [] for tenant in TENANTS}
    taken: dict[str, list[int]] = {tenant: [] for tenant in TENANTS}
    times: dict[str, list[float]] = {tenant: [] for tenant in TENANTS}
    for number, (step, value) in enumerate(steps):
        if step == "add":
            turns.add(value, number, 1)
            added[value].append(number)
        elif step == "wait":
            now += float(value)
        elif step == "new leader":
            turns = TenantTurns[int](LIMITS)
            for tenant in TENANTS:
                for request in added[tenant][len(taken[tenant]) :]:
                    turns.add(tenant, request, 1)
                for time in times[tenant]:
                    if now - time < MINUTE_S:
                        turns.count(tenant, time)
        else:
            had_next, found = turns.has_next(now), turns.take(now)
            assert had_next == (found is not None)
            if found is not None:
                tenant, request = found
                taken[tenant].append(request)
                times[tenant].append(now)
            else:
                waiting = {tenant for tenant in TENANTS if len(taken[tenant]) < len(added[tenant])}
                assert all(_used(times[tenant], now) >= (LIMITS.get(tenant) or 1) for tenant in waiting)
                assert waiting <= {"b", "c"}
    for tenant in TENANTS:
        assert taken[tenant] == added[tenant][: len(taken[tenant])]
        assert turns.is_empty(tenant) == (taken[tenant] == added[tenant])
        limit = LIMITS.get(tenant)
        assert limit is None or all(_used(times[tenant], end) <= limit for end in times[tenant])


def _used(times: list[float], end: float) -> int:
    return sum(end - MINUTE_S < time <= end for time in times)


@given(
    flood=st.integers(1, 50),
    others=st.lists(st.sampled_from(["a", "b", "c"]), max_size=30),
    before=st.integers(0, 20),
)
def test_flood_delays_request_of_another_tenant_by_one_turn_of_each(
    flood: int, others: list[str], before: int
) -> None:
    turns = TenantTurns[str]({})
    for number in range(flood):
        turns.add("flood", f"flood-{number}", 1)
    for number, tenant in enumerate(others):
        turns.add(tenant, f"{number}", 1)
    for _ in range(before):
        turns.take(0)
    turns.add("quiet", "mine", 1)
    passed: list[str] = []
    while (found := turns.take(0)) is not None and found[1] != "mine":
        passed.append(found[0])
    assert found == ("quiet", "mine")
    assert all(count == 1 for count in Counter(passed).values())


@given(st.lists(st.integers(0, 2 * MAX_WAITING_BYTES), max_size=2 * MAX_WAITING))
def test_memory_of_tenant_is_bounded_by_limits_and_largest_request(sizes: list[int]) -> None:
    turns, held = TenantTurns[int]({}), list[int]()
    for size in sizes:
        if not turns.is_full("a"):
            turns.add("a", size, size)
            held.append(size)
    assert len(held) <= MAX_WAITING
    assert sum(held[:-1]) < MAX_WAITING_BYTES or not held[:-1]
    while turns.take(0) is not None:
        pass
    assert turns.is_empty("a")
    assert not turns.is_full("a")


def test_requests_before_restart_of_reader_count_for_minute() -> None:
    turns = TenantTurns[str]({"c": 1})
    turns.add("c", "first", 1)
    turns.add("c", "second", 1)
    assert turns.take(0) == ("c", "first")
    turns.clear()
    turns.add("c", "second", 1)
    assert turns.take(MINUTE_S - 1) is None
    assert turns.take(MINUTE_S) == ("c", "second")
