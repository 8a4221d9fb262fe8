"""Differences entity by entity: nothing is left out, and backwards they say the opposite."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.history.entity_diff import EntityChange, entity_differences

from .recorded_history import SEEDS, record_live_moments
from .test_state_diff import replica_at

OPPOSITE = {
    EntityChange.APPEARED: EntityChange.GONE,
    EntityChange.GONE: EntityChange.APPEARED,
    EntityChange.CHANGED: EntityChange.CHANGED,
}


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_change_belongs_to_one_entity_and_back_is_the_opposite(seed: int, data: st.DataObject) -> None:
    offsets = st.integers(0, len(record_live_moments(seed)) - 1)
    a, b = (replica_at(seed, data.draw(offsets)) for _ in range(2))
    found, there = entity_differences(a, b)
    told = [change for each in there for change in each.changes]
    assert sorted(map(repr, told)) == sorted(map(repr, found.changes))
    assert len({each.entity for each in there}) == len(there)
    _, back = entity_differences(b, a)
    assert {(each.entity, OPPOSITE[each.became]) for each in there} == {
        (each.entity, each.became) for each in back
    }
    by_entity = {each.entity: each.facts for each in back}
    for each in there:
        assert by_entity[each.entity] == {name: (now, was) for name, (was, now) in each.facts.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_told_of_what_is_the_same(seed: int) -> None:
    a = replica_at(seed, 50)
    found, there = entity_differences(a, a)
    assert (found.changes, there) == ((), [])
