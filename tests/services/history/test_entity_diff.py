"""Differences per entity: complete, and the reverse of a difference is its inverse."""

from __future__ import annotations

import pytest
from example_count import example_count
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
@settings(max_examples=example_count(15))
@given(data=st.data())
def test_every_change_belongs_to_one_entity_and_reverse_is_inverse(seed: int, data: st.DataObject) -> None:
    offsets = st.integers(0, len(record_live_moments(seed)) - 1)
    a, b = (replica_at(seed, data.draw(offsets)) for _ in range(2))
    difference, there = entity_differences(a, b)
    changes = [change for difference in there for change in difference.changes]
    assert sorted(map(repr, changes)) == sorted(map(repr, difference.changes))
    assert len({entity_difference.entity for entity_difference in there}) == len(there)
    _, back = entity_differences(b, a)
    assert {(item.entity, OPPOSITE[item.became]) for item in there} == {
        (element.entity, element.became) for element in back
    }
    by_entity = {value.entity: value.facts for value in back}
    for entity_difference in there:
        assert by_entity[entity_difference.entity] == {
            name: (now, was) for name, (was, now) in entity_difference.facts.items()
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_unchanged_entity_has_no_difference(seed: int) -> None:
    a = replica_at(seed, 50)
    difference, there = entity_differences(a, a)
    assert (difference.changes, there) == ((), [])
