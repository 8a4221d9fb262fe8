"""A state's bytes are divided into pieces; the changed pieces between two states turn one into the other."""

from __future__ import annotations

import functools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.snapshots import state_delta
from tailrace.services.snapshots.encoding import encode
from tailrace.services.snapshots.state_delta import Key, changes, join, split

from .simulated_logs import WALKS, create_quiet_replica, history


@pytest.fixture(params=[(2, 16), (64, 1024)], ids=["small", "usual"], autouse=True)
def _sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes maps of two entries large: the maps of simulated histories are small."""
    monkeypatch.setattr(state_delta, "LARGE_MAP", request.param[0])
    monkeypatch.setattr(state_delta, "LARGE_FIELD", request.param[1])


@functools.cache
def along(name: int) -> tuple[dict[str, msgspec.Struct], ...]:
    """Yields the states after each event."""
    replica, results = create_quiet_replica(), []
    for record in history(name):
        replica.apply(record)
        results.append({**replica.states, "leadership": replica.leadership})
    return tuple(results)


def put(held: dict[Key, bytes], changed: dict[Key, bytes | None]) -> None:
    for key, data in changed.items():
        if data is None:
            del held[key]
        else:
            held[key] = data


@pytest.mark.parametrize("name", WALKS)
def test_joined_pieces_equal_divided_bytes(name: int) -> None:
    for states in along(name)[::7]:
        for state in states.values():
            assert join(split(state)) == encode(state)


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_delta_turns_earlier_state_into_later_one_without_repetition(name: int, data: st.DataObject) -> None:
    states = along(name)
    some = sorted(data.draw(st.sets(st.integers(0, len(states) - 1), min_size=2, max_size=12)))
    address = data.draw(st.sampled_from(sorted(states[some[-1]])))
    before, held = None, dict[Key, bytes]()
    for place in some:
        after = states[place].get(address)
        if after is None:
            continue
        changed = changes(before, after)
        assert all(held.get(key) != value for key, value in changed.items()), "it was so before"
        put(held, changed)
        assert held == split(after)
        assert join(held) == encode(after)
        before = after


def test_entry_of_large_map_is_one_piece() -> None:
    jobs: Map[str, Job] = Map({str(n): Job(str(n), "client/c", Phase.ENDED, n) for n in range(1000)})
    state = DispatcherState(jobs=jobs)
    later = DispatcherState(jobs=jobs.set("17", Job("17", "client/c", Phase.ENDED, 2000)).delete("18"))
    changed = changes(state, later)
    assert {key for _, key in changed} == {msgspec.msgpack.encode("17"), msgspec.msgpack.encode("18")}
    assert changes(later, later) == {}
