"""The final status of an entity in its history equals that in the states of the roles."""

from __future__ import annotations

import pytest

from tailrace.schemas.types import ExecutionState
from tailrace.services.history import cluster_view
from tailrace.services.history.entity_history.entities import (
    Entity,
    EntityKind,
    job,
    slot,
    task,
    task_executor_of,
)
from tailrace.services.history.entity_history.event_annotator import AnnotatedEvent, EventAnnotator
from tailrace.services.history.entity_history.timeline import EntityHistory, EntityHistoryBuilder
from tailrace.services.job_master.state import StartedJob
from tailrace.services.resource_manager.state import ResourceManagerState

from .simulated_logs import HISTORIES, annotate_log, history

_SUBMITTED = {ExecutionState.DEPLOYING, ExecutionState.SCHEDULED, ExecutionState.CREATED}


def story(annotator: EventAnnotator, all_told: list[AnnotatedEvent], entity: Entity) -> EntityHistory:
    timeline = EntityHistoryBuilder(entity, annotator)
    for event in all_told:
        if entity in event.entities:
            timeline.add(event)
    return timeline.build()


@pytest.mark.parametrize("name", HISTORIES)
def test_status_equals_state_of_role(name: str) -> None:
    annotator, all_told = annotate_log(history(name))
    for view in cluster_view.jobs(annotator.fold):
        result = story(annotator, all_told, job(view.job_id))
        if view.status.value not in ("INITIALIZING", "CREATED"):
            assert result.outcome.partition(":")[0] == view.status.value
        assert result.over == (view.status.value in ("FINISHED", "CANCELED", "FAILED"))
        assert (result.root_cause is not None) or view.status.value != "FAILED"
    states = annotator.fold.replica.states
    manager = states.get("resource_manager")
    if isinstance(manager, ResourceManagerState):
        for entity in [life for life in annotator.entities.lives if life.kind is EntityKind.TASK_EXECUTOR]:
            registered = entity.id in manager.workers
            if registered:
                assert story(annotator, all_told, entity).outcome.startswith(("registered", "its process"))
        for resource_id, worker in manager.slot_manager.slots.workers.items():
            assert task_executor_of(resource_id) in annotator.entities.lives
            for number in worker.free:
                assert story(annotator, all_told, slot(resource_id, number)).outcome.startswith("free")
    for state in states.values():
        if isinstance(state, StartedJob):
            for execution in state.executions.values():
                if state.current_attempts[execution.vertex] != execution.execution_attempt_id:
                    continue
                result = story(annotator, all_told, task(state.job_id, *execution.vertex))
                if execution.state not in _SUBMITTED:
                    assert execution.state.value in result.outcome or result.outcome.startswith("lost with")


def test_second_job_with_same_id_does_not_change_first() -> None:
    annotator, all_told = annotate_log(history("a_job_id_is_taken"))
    assert story(annotator, all_told, job("j1")).outcome == "RUNNING"


def test_rejected_job_is_over() -> None:
    annotator, all_told = annotate_log(history("a_program_is_built_and_another_fails_to"))
    result = story(annotator, all_told, job("j2"))
    assert result.outcome == "rejected: program:fails raised ValueError"
    assert result.over
    assert result.failed
    assert result.root_cause is not None
    assert "JobGraphFailed job j2: program:fails raised ValueError" in result.root_cause.text


def test_recovered_failure_is_marked() -> None:
    annotator, all_told = annotate_log(history("one_task_fails_and_is_restarted_alone"))
    result = story(annotator, all_told, job("j1"))
    assert (result.outcome, result.recovered) == ("FINISHED", True)
    annotator, all_told = annotate_log(history("one_task_fails_and_is_restarted_alone")[:38])
    assert not story(annotator, all_told, job("j1")).recovered, "its task does not run again yet"
    assert result.root_cause is not None
    assert result.root_cause.offset == 37
