"""Laws of stories that are collected before it is certain whose is wanted, and of tellers that find out less."""

from __future__ import annotations

import functools

import pytest

from tailrace.schemas.event import Record
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import Effects
from tailrace.services.history.entity_history.entities import Entity, Kind, Life
from tailrace.services.history.entity_history.entity_candidates import Candidates
from tailrace.services.history.entity_history.entity_lookup import Ambiguous, Unknown, Wanted
from tailrace.services.history.entity_history.event_annotator import Teller
from tailrace.services.history.entity_history.timeline import Story, Timeline
from tailrace.services.history.projection import Fold

from .simulated_logs import HISTORIES, history, told
from .test_properties import in_memory

_ENTITIES = 5
"""How many of a history's are asked for, in how many words each."""


def collected(records: tuple[Record, ...], wanted: Wanted) -> tuple[Entity, Story | None]:
    """Who is meant, and the story that was collected on the way."""
    teller = Teller(Fold(past=False))
    candidates = Candidates(wanted, teller, lambda each: Timeline(each, teller))
    for record in records:
        candidates.add(teller.tell(record))
    found, timeline = candidates.chosen()
    return found, None if timeline is None else timeline.told()


@functools.cache
def by_itself(name: str, entity: Entity) -> Story:
    """The story of one, which was known from the beginning."""
    teller = Teller()
    timeline = Timeline(entity, teller)
    for record in history(name):
        event = teller.tell(record)
        if entity in event.entities:
            timeline.add(event)
    return timeline.told()


def as_people_say(entity: Entity, life: Life) -> list[str]:
    """Some of the ways to ask for it."""
    return [str(entity), entity.id[: max(1, len(entity.id) - 1)], *life.names[:2]]


@pytest.mark.parametrize("name", HISTORIES)
def test_a_story_is_the_same_however_it_is_asked_for(name: str) -> None:
    records = history(name)
    lives = told(records)[0].entities.lives
    for entity, life in list(lives.items())[:: max(1, len(lives) // _ENTITIES)]:
        for text in as_people_say(entity, life):
            try:
                expected = Wanted(text).find(lives)
            except (Ambiguous, Unknown) as error:
                with pytest.raises(type(error)):
                    collected(records, Wanted(text))
                continue
            found, story = collected(records, Wanted(text))
            assert found == expected
            if story is None:
                # A job that a program builds has its name late, and so has the instance of a TaskExecutor.
                assert expected.kind in (Kind.JOB, Kind.TASK_EXECUTOR)
                assert not Wanted(text).fits(expected, Life(0, 0))
                continue
            assert story == by_itself(name, expected)


def test_of_too_many_who_fit_none_is_collected() -> None:
    records = history("seed 6")
    teller = Teller()
    candidates = Candidates(Wanted("", plain=True), teller, lambda each: Timeline(each, teller))
    for record in records:
        candidates.add(teller.tell(record))
    assert len(teller.entities.lives) > 40
    with pytest.raises(Ambiguous):
        candidates.chosen()


@pytest.mark.parametrize("name", HISTORIES)
def test_causes_and_effects_need_not_know_whom_events_concern(name: str) -> None:
    records = history(name)
    log = in_memory(records)
    teller, brief = Teller(), Teller(Fold(past=False), concerned=False)
    offsets = range(0, len(records), max(1, len(records) // 8))
    trees = [(Effects(each, teller), Effects(each, brief)) for each in offsets]
    for record in records:
        known, event = teller.tell(record), brief.tell(record)
        assert (event.entry.ignored, event.trouble, event.root, event.waited, event.entities) == (
            known.entry.ignored,
            known.trouble,
            known.root,
            known.waited,
            (),
        )
        assert brief.text(event) == teller.text(known)
        for whole, part in trees:
            whole.add(known)
            part.add(event)
    for whole, part in trees:
        assert part.tree() == whole.tree()
    for record in records[:: max(1, len(records) // 10)]:
        assert cause_chains.why(brief, log, record.offset) == cause_chains.why(teller, log, record.offset)
