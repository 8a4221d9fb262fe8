"""Laws of stories that are collected before it is certain whose is wanted, and of tellers that find out less."""

from __future__ import annotations

import functools

import pytest

from tailrace.schemas.event import Record
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import EffectTree
from tailrace.services.history.entity_history.entities import Entity, EntityKind, EntityLifetime
from tailrace.services.history.entity_history.entity_candidates import EntityCandidates
from tailrace.services.history.entity_history.entity_lookup import AmbiguousEntity, EntityQuery, UnknownEntity
from tailrace.services.history.entity_history.event_annotator import EventAnnotator
from tailrace.services.history.entity_history.timeline import EntityHistory, EntityHistoryBuilder
from tailrace.services.history.projection import HistoryProjection

from .simulated_logs import HISTORIES, annotate_log, history
from .test_properties import in_memory

_ENTITIES = 5
"""How many of a history's are asked for, in how many words each."""


def collected(records: tuple[Record, ...], wanted: EntityQuery) -> tuple[Entity, EntityHistory | None]:
    """Who is meant, and the story that was collected on the way."""
    teller = EventAnnotator(HistoryProjection(past=False))
    candidates = EntityCandidates(wanted, teller, lambda each: EntityHistoryBuilder(each, teller))
    for record in records:
        candidates.add(teller.annotate(record))
    found, timeline = candidates.select()
    return found, None if timeline is None else timeline.build()


@functools.cache
def by_itself(name: str, entity: Entity) -> EntityHistory:
    """The story of one, which was known from the beginning."""
    teller = EventAnnotator()
    timeline = EntityHistoryBuilder(entity, teller)
    for record in history(name):
        event = teller.annotate(record)
        if entity in event.entities:
            timeline.add(event)
    return timeline.build()


def as_people_say(entity: Entity, life: EntityLifetime) -> list[str]:
    """Some of the ways to ask for it."""
    return [str(entity), entity.id[: max(1, len(entity.id) - 1)], *life.names[:2]]


@pytest.mark.parametrize("name", HISTORIES)
def test_a_story_is_the_same_however_it_is_asked_for(name: str) -> None:
    records = history(name)
    lives = annotate_log(records)[0].entities.lives
    for entity, life in list(lives.items())[:: max(1, len(lives) // _ENTITIES)]:
        for text in as_people_say(entity, life):
            try:
                expected = EntityQuery(text).find(lives)
            except (AmbiguousEntity, UnknownEntity) as error:
                with pytest.raises(type(error)):
                    collected(records, EntityQuery(text))
                continue
            found, story = collected(records, EntityQuery(text))
            assert found == expected
            if story is None:
                # A job that a program builds has its name late, and so has the instance of a TaskExecutor.
                assert expected.kind in (EntityKind.JOB, EntityKind.TASK_EXECUTOR)
                assert not EntityQuery(text).matches(expected, EntityLifetime(0, 0))
                continue
            assert story == by_itself(name, expected)


def test_of_too_many_who_fit_none_is_collected() -> None:
    records = history("seed 6")
    teller = EventAnnotator()
    candidates = EntityCandidates(
        EntityQuery("", plain=True), teller, lambda each: EntityHistoryBuilder(each, teller)
    )
    for record in records:
        candidates.add(teller.annotate(record))
    assert len(teller.entities.lives) > 40
    with pytest.raises(AmbiguousEntity):
        candidates.select()


@pytest.mark.parametrize("name", HISTORIES)
def test_causes_and_effects_need_not_know_whom_events_concern(name: str) -> None:
    records = history(name)
    log = in_memory(records)
    teller, brief = EventAnnotator(), EventAnnotator(HistoryProjection(past=False), concerned=False)
    offsets = range(0, len(records), max(1, len(records) // 8))
    trees = [(EffectTree(each, teller), EffectTree(each, brief)) for each in offsets]
    for record in records:
        known, event = teller.annotate(record), brief.annotate(record)
        assert (event.entry.ignored, event.severity, event.root, event.has_waited, event.entities) == (
            known.entry.ignored,
            known.severity,
            known.root,
            known.has_waited,
            (),
        )
        assert brief.text(event) == teller.text(known)
        for whole, part in trees:
            whole.add(known)
            part.add(event)
    for whole, part in trees:
        assert part.tree() == whole.tree()
    for record in records[:: max(1, len(records) // 10)]:
        assert cause_chains.trace_causes(brief, log, record.offset) == cause_chains.trace_causes(
            teller, log, record.offset
        )
