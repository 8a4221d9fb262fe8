"""Histories that are collected before the entity is certain, and annotators that look up less, give the same result."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

from tailrace.schemas.event import Record
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import EffectTree
from tailrace.services.history.entity_history.entities import Entity, EntityKind, EntityLifetime
from tailrace.services.history.entity_history.entity_lookup import (
    AmbiguousEntity,
    EntityCandidates,
    EntityQuery,
    UnknownEntity,
)
from tailrace.services.history.entity_history.event_annotator import EventAnnotator
from tailrace.services.history.entity_history.timeline import EntityHistory, EntityHistoryBuilder
from tailrace.services.history.projection import HistoryProjection

from .simulated_logs import HISTORIES, annotate_log, history
from .test_properties import in_memory

_ENTITIES = 5
"""How many of a history's are asked for, in how many words each."""


def collected(records: tuple[Record, ...], wanted: EntityQuery) -> tuple[Entity, EntityHistory | None]:
    """Returns the requested entity, and the history that was collected meanwhile."""
    annotator = EventAnnotator(HistoryProjection(past=False))
    candidates = EntityCandidates(wanted, annotator, lambda entity: EntityHistoryBuilder(entity, annotator))
    for record in records:
        candidates.add(annotator.annotate(record))
    entity, timeline = candidates.select()
    return entity, None if timeline is None else timeline.build()


@functools.cache
def by_itself(name: str, entity: Entity) -> EntityHistory:
    """Returns the history of one entity that is known from the beginning."""
    annotator = EventAnnotator()
    timeline = EntityHistoryBuilder(entity, annotator)
    for record in history(name):
        event = annotator.annotate(record)
        if entity in event.entities:
            timeline.add(event)
    return timeline.build()


def as_people_say(entity: Entity, life: EntityLifetime) -> list[str]:
    """Yields some of the ways to name an entity."""
    return [str(entity), entity.id[: max(1, len(entity.id) - 1)], *life.names[:2]]


@pytest.mark.parametrize("name", HISTORIES)
def test_history_is_the_same_for_every_name_of_entity(name: str) -> None:
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
            result, story = collected(records, EntityQuery(text))
            assert result == expected
            if story is None:
                # A job that a program builds has its name late, and so has the instance of a TaskExecutor.
                assert expected.kind in (EntityKind.JOB, EntityKind.TASK_EXECUTOR)
                assert not EntityQuery(text).matches(expected, EntityLifetime(0, 0))
                continue
            assert story == by_itself(name, expected)


def test_too_many_candidates_collect_nothing() -> None:
    records = history("seed 6")
    annotator = EventAnnotator()
    candidates = EntityCandidates(
        EntityQuery(""), annotator, lambda entity: EntityHistoryBuilder(entity, annotator)
    )
    for record in records:
        candidates.add(annotator.annotate(record))
    assert len(annotator.entities.lives) > 40
    with pytest.raises(AmbiguousEntity):
        candidates.select()


@pytest.mark.parametrize("name", HISTORIES)
def test_causes_and_effects_need_no_entities_of_events(name: str) -> None:
    records = history(name)
    log = in_memory(records)
    annotator, brief = EventAnnotator(), EventAnnotator(HistoryProjection(past=False), concerned=False)
    offsets = range(0, len(records), max(1, len(records) // 8))
    trees = [(EffectTree(offset, annotator), EffectTree(offset, brief)) for offset in offsets]
    for record in records:
        known, event = annotator.annotate(record), brief.annotate(record)
        assert (event.entry.ignored, event.severity, event.root, event.has_waited, event.entities) == (
            known.entry.ignored,
            known.severity,
            known.root,
            known.has_waited,
            (),
        )
        assert brief.text(event) == annotator.text(known)
        for whole, part in trees:
            whole.add(known)
            part.add(event)
    for whole, part in trees:
        assert without_entities(part.tree()) == without_entities(whole.tree())
    for record in records[:: max(1, len(records) // 10)]:
        part, whole = (cause_chains.trace_causes(each, log, record.offset) for each in (brief, annotator))
        assert without_entities(part) == without_entities(whole)


def without_entities(value: Any) -> Any:
    """Returns causes or effects as data, without the entities that their lines name."""
    if isinstance(value, dict):
        return {name: without_entities(each) for name, each in value.items() if name != "entities"}
    if isinstance(value, list | tuple):
        return [without_entities(each) for each in value]
    return without_entities(msgspec.to_builtins(value)) if isinstance(value, msgspec.Struct) else value
