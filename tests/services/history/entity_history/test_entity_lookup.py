"""Names that users type lead to one entity, or to the possible ones."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.history.entity_history.entities import Entity, EntityKind, EntityLifetime
from tailrace.services.history.entity_history.entity_lookup import AmbiguousEntity, EntityQuery, UnknownEntity

from .simulated_logs import annotate_log, history


@functools.cache
def expiring() -> Mapping[Entity, EntityLifetime]:
    annotator, _ = annotate_log(history("a_checkpoint_expires"))
    return annotator.entities.lives


SOURCE = "Source: Socket Stream -> Flat Map (1/1)"


@pytest.fixture(scope="module")
def lives() -> dict[Entity, object]:
    """Returns two jobs with one name, and one TaskExecutor."""
    annotator, _ = annotate_log(history("two_jobs_compete_for_the_last_slot"))
    return annotator.entities.lives  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("text", "job", "kind", "beginning"),
    [
        ("j1", None, "job", "j1"),
        ("job:j2", None, "job", "j2"),
        ("job_master/j2", None, "job", "j2"),
        ("te-1", None, "taskexecutor", "te-1"),
        ("te:te-1", None, "taskexecutor", "te-1"),
        ("task_executor/te-1", None, "taskexecutor", "te-1"),
        ("te-1/0", None, "slot", "te-1/0"),
        ("dispatcher", None, "role", "dispatcher"),
        ("Dispatcher", None, "role", "dispatcher"),
        ("resource", None, "role", "resource_manager"),
        ("client/test", None, "client", "test"),
        (SOURCE, "j1", "task", "j1/"),
        (f"j2/{SOURCE}", None, "task", "j2/"),
        (SOURCE.lower(), "j2", "task", "j2/"),
    ],
)
def test_name_leads_to_its_entity(
    lives: dict[Entity, object], text: str, job: str | None, kind: str, beginning: str
) -> None:
    entity = EntityQuery(text, job).find(lives)  # type: ignore[arg-type]
    assert entity.kind.value == kind
    assert entity.id.startswith(beginning)


def test_id_may_be_abbreviated_and_attempt_means_its_task() -> None:
    annotator, _ = annotate_log(history("one_task_fails_and_is_restarted_alone"))
    lives = annotator.entities.lives
    allocation = next(life for life in lives if life.kind.value == "allocation")
    assert EntityQuery(allocation.id[:6]).find(lives) == allocation
    for attempt, task in annotator.entities.task_of.items():
        assert EntityQuery(attempt).find(lives) == task


@pytest.mark.parametrize(
    ("text", "named"),
    [("j", "job:j1 (WindowWordCount); job:j2"), ("WindowWordCount", "job:j1"), (SOURCE, "--job")],
)
def test_ambiguous_name_is_rejected_with_candidates(
    lives: dict[Entity, object], text: str, named: str
) -> None:
    with pytest.raises(AmbiguousEntity) as refused:
        EntityQuery(text).find(lives)  # type: ignore[arg-type]
    assert named in str(refused.value)
    assert "KIND:ID" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "offered"),
    [("te-9", "did you mean te-1"), ("job:te-1", "`tailrace story` lists them"), ("zzzzzz", "2 jobs")],
)
def test_unknown_name_is_rejected_with_existing_ones(
    lives: dict[Entity, object], text: str, offered: str
) -> None:
    with pytest.raises(UnknownEntity) as refused:
        EntityQuery(text).find(lives)  # type: ignore[arg-type]
    assert offered in str(refused.value)


def test_checkpoint_is_named_with_prefix_of_its_job() -> None:
    annotator, _ = annotate_log(history("a_checkpoint_expires"))
    assert str(EntityQuery("j/1").find(annotator.entities.lives)) == "checkpoint:j1/1"
    assert str(EntityQuery("2", "j1").find(annotator.entities.lives)) == "checkpoint:j1/2"


@pytest.mark.parametrize("live", ["j1", "j2"])
def test_name_of_several_jobs_means_only_live_one(lives: dict[Entity, EntityLifetime], live: str) -> None:
    (name,) = {life.names[0] for entity, life in lives.items() if entity.kind is EntityKind.JOB}
    assert EntityQuery(name).find(lives, {live}) == Entity(EntityKind.JOB, live)
    for several in (set(), {"j1", "j2"}):
        with pytest.raises(AmbiguousEntity):
            EntityQuery(name).find(lives, several)


def test_vertex_may_have_name_of_entity_kind() -> None:
    entity = Entity(EntityKind.TASK, "j/v/0")
    lives = {entity: EntityLifetime(0, 0, names=("Client: x (1/2)", "a"))}
    assert EntityQuery("Client: x (1/2)").find(lives) == entity


@given(st.text(max_size=40), st.none() | st.text(max_size=5))
def test_any_name_is_found_or_rejected_in_one_sentence(text: str, job: str | None) -> None:
    lives = expiring()
    try:
        assert EntityQuery(text, job).find(lives) in lives
    except (UnknownEntity, AmbiguousEntity) as refused:
        assert repr(text) in str(refused)
