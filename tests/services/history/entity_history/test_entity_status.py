"""What a story says has become of something is what the states of the roles say."""

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
from tailrace.services.job_master.state import JobMasterState
from tailrace.services.resource_manager.state import ResourceManagerState

from .simulated_logs import HISTORIES, annotate_log, history

_SUBMITTED = {ExecutionState.DEPLOYING, ExecutionState.SCHEDULED, ExecutionState.CREATED}


def story(teller: EventAnnotator, all_told: list[AnnotatedEvent], entity: Entity) -> EntityHistory:
    timeline = EntityHistoryBuilder(entity, teller)
    for each in all_told:
        if entity in each.entities:
            timeline.add(each)
    return timeline.build()


@pytest.mark.parametrize("name", HISTORIES)
def test_outcomes_are_those_of_the_states(name: str) -> None:
    teller, all_told = annotate_log(history(name))
    for view in cluster_view.jobs(teller.fold):
        found = story(teller, all_told, job(view.job_id))
        if view.status.value not in ("INITIALIZING", "CREATED"):
            assert found.outcome.partition(":")[0] == view.status.value
        assert found.over == (view.status.value in ("FINISHED", "CANCELED", "FAILED"))
        assert (found.root_cause is not None) or view.status.value != "FAILED"
    states = teller.fold.replica.states
    manager = states.get("resource_manager")
    if isinstance(manager, ResourceManagerState):
        for entity in [each for each in teller.entities.lives if each.kind is EntityKind.TASK_EXECUTOR]:
            registered = entity.id in manager.workers
            if registered:
                assert story(teller, all_told, entity).outcome.startswith(("registered", "its process"))
        for resource_id, worker in manager.slot_manager.slots.workers.items():
            assert task_executor_of(resource_id) in teller.entities.lives
            for number in worker.free:
                assert story(teller, all_told, slot(resource_id, number)).outcome.startswith("free")
    for state in states.values():
        if isinstance(state, JobMasterState):
            for execution in state.executions.values():
                if state.current[execution.vertex] != execution.execution_attempt_id:
                    continue
                found = story(teller, all_told, task(state.job_id, *execution.vertex))
                if execution.state not in _SUBMITTED:
                    assert execution.state.value in found.outcome or found.outcome.startswith("lost with")


def test_a_second_job_under_an_id_that_is_taken_does_not_touch_the_first() -> None:
    teller, all_told = annotate_log(history("a_job_id_is_taken"))
    assert story(teller, all_told, job("j1")).outcome == "RUNNING"


def test_a_rejected_job_is_over() -> None:
    teller, all_told = annotate_log(history("a_program_is_built_and_another_fails_to"))
    found = story(teller, all_told, job("j2"))
    assert found.outcome == "rejected: program:fails raised ValueError"
    assert found.over
    assert found.failed
    assert found.root_cause is not None
    assert "could not build its graph" in found.root_cause.text


def test_what_was_got_over_is_named_as_such() -> None:
    teller, all_told = annotate_log(history("one_task_fails_and_is_restarted_alone"))
    found = story(teller, all_told, job("j1"))
    assert (found.outcome, found.recovered) == ("FINISHED", True)
    teller, all_told = annotate_log(history("one_task_fails_and_is_restarted_alone")[:40])
    assert not story(teller, all_told, job("j1")).recovered, "its task does not run again yet"
    assert found.root_cause is not None
    assert found.root_cause.offset == 39
