"""Properties of histories over simulated clusters: no event is missing, and causes lead to their origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.schemas.event import Event, Record
from tailrace.schemas.job_master import AcknowledgeCheckpoint
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history.entity_history import cause_chains
from tailrace.services.history.entity_history.cause_chains import ChainStart, Effect, EffectTree
from tailrace.services.history.entity_history.entities import (
    Entity,
    EntityKind,
    allocation,
    checkpoint,
    job,
    slot,
    task,
    task_executor_of,
)
from tailrace.services.history.entity_history.entity_lookup import EntityQuery
from tailrace.services.history.entity_history.event_annotator import EventAnnotator, LineMark
from tailrace.services.history.entity_history.failure_chains import Severity
from tailrace.services.history.entity_history.timeline import EntityHistoryBuilder
from tailrace.services.job_master.state import StartedJob, TerminatedJob
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState

from .simulated_logs import HISTORIES, annotate_log, history

pytestmark = pytest.mark.parametrize("name", HISTORIES)


def test_every_event_belongs_to_history(name: str) -> None:
    annotator, all_told = annotate_log(history(name))
    timelines = {
        life: EntityHistoryBuilder(life, annotator, everything=True) for life in annotator.entities.lives
    }
    for event in all_told:
        assert event.entities
        for entity in event.entities:
            timelines[entity].add(event)
    for entity, timeline in timelines.items():
        offsets = [line.offset for line in timeline.build().lines]
        own = [annotated_event.offset for annotated_event in all_told if entity in annotated_event.entities]
        # What a failure of its began with elsewhere is told besides.
        assert set(own) <= set(offsets)
        assert all(
            annotator.chains.severity(offset) >= Severity.FAILURE for offset in set(offsets) - set(own)
        )
        assert offsets == sorted(set(offsets))
        life = annotator.entities.lives[entity]
        assert (life.first, life.last, life.events) == (own[0], own[-1], len(own))


def test_histories_together_have_every_event(name: str) -> None:
    annotator, all_told = annotate_log(history(name))
    for entity in annotator.entities.lives:
        timeline = EntityHistoryBuilder(entity, annotator)
        own = [event for event in all_told if entity in event.entities]
        for annotated_event in own:
            timeline.add(annotated_event)
        story = timeline.build()
        roots = [
            line
            for line in story.lines
            if not any(outgoing_event.offset == line.offset for outgoing_event in own)
        ]
        assert sum(line.count for line in story.lines) + story.details == len(own) + len(roots)
        for line in story.lines:
            assert line.text
            assert line.who
            assert (line.mark is LineMark.IGNORED) == (line.ignored is not None)
        stood_out = {item.offset for item in own if item.severity >= Severity.FAILURE or item.entry.ignored}
        hidden = {offset for offset in stood_out if not any(_has(line, offset) for line in story.lines)}
        assert not hidden


def _has(line: Any, offset: int) -> bool:
    return bool(line.offset <= offset <= line.until)


def test_causes_end_at_client_election_clock_or_fact(name: str) -> None:
    records = history(name)
    annotator, _ = annotate_log(records)
    log = in_memory(records)
    for record in records[:: max(1, len(records) // 25)]:
        chain = cause_chains.trace_causes(annotator, log, record.offset)
        offsets = [line.offset for line in chain.lines]
        assert offsets[0] == record.offset
        assert offsets == sorted(set(offsets), reverse=True)
        assert [line.cause for line in chain.lines] == [*offsets[1:], None]
        assert chain.began is not ChainStart.UNKNOWN
        first = records[offsets[-1]]
        assert (chain.began is ChainStart.CLIENT) == first.header.sender.startswith("client/")
        assert (chain.began is ChainStart.ELECTION) == first.body.AVRO_NAME.endswith("LeaderElected")


def test_effects_are_inverse_of_causes(name: str) -> None:
    records = history(name)
    annotator, all_told = annotate_log(records)
    for record in records[:: max(1, len(records) // 10)]:
        above = {
            event.offset
            for event in all_told
            if record.offset in annotator.chains.causes_upward(event.offset)
        }
        for everything in (True, False):
            result = EffectTree(record.offset, annotator, everything=everything)
            for annotated_event in all_told:
                result.add(annotated_event)
            tree = result.tree()
            assert tree is not None
            assert result.count == len(above) - 1
            assert sum(_count(effect) for effect in _all(tree)) == len(above)
        if everything:
            assert {item.line.offset for item in _all(tree)} == above


def _all(tree: Effect) -> Iterator[Effect]:
    yield tree
    for effect in tree.effects:
        yield from _all(effect)


def _count(effect: Effect) -> int:
    return effect.line.count + effect.left_out


def test_every_id_in_state_has_history(name: str) -> None:
    records = history(name)
    annotator = EventAnnotator()
    for number, record in enumerate(records):
        annotator.annotate(record)
        if number % 40 and number != len(records) - 1:
            continue
        for state in annotator.fold.replica.states.values():
            for entity in _entities(state):
                assert entity in annotator.entities.lives, f"{entity} at {record.offset}"
            for attempt in state.executions if isinstance(state, StartedJob) else ():
                result = EntityQuery(attempt).find(annotator.entities.lives)
                assert result == annotator.entities.task_of[attempt]


def _entities(state: object) -> Iterator[Entity]:
    match state:
        case StartedJob():
            yield job(state.job_id)
            pool = state.slots
            for item in (*pool.requests, *pool.slots):
                yield allocation(item)
            for execution in state.executions.values():
                yield task(state.job_id, execution.vertex_id, execution.subtask_index)
            for connection in state.connections:
                yield task_executor_of(connection)
            for number in state.checkpoints.pending:
                yield checkpoint(state.job_id, number)
            for completed in state.checkpoints.completed:
                yield checkpoint(state.job_id, completed.checkpoint_id)
        case ResourceManagerState():
            for item in (*state.workers, *state.pool.workers):
                yield task_executor_of(item)
            for master in state.job_masters:
                yield job(master)
            for resource_id, worker in state.slot_manager.slots.workers.items():
                for number in worker.slots:
                    yield slot(resource_id, number)
        case TaskExecutorState():
            for item in state.slots.allocated:
                yield allocation(item)
            for running in state.tasks.values():
                yield task(running.job_id, running.vertex_id, running.subtask_index)
        case DispatcherState():
            for of_job in state.jobs.values():
                yield job(of_job.job_id)
                yield Entity(EntityKind.CLIENT, of_job.requester.partition("/")[2])
        case _:
            pass


def test_failure_has_failure_as_origin(name: str) -> None:
    annotator, all_told = annotate_log(history(name))
    for event in all_told:
        assert (event.root is not None) == (event.severity >= Severity.FAILURE)
        if event.root is not None:
            assert event.root in annotator.chains.causes_upward(event.offset)
            assert annotator.failures[event.root].root == event.root
        assert not (event.entry.ignored and event.severity)


def in_memory(records: tuple[Record, ...]) -> MemoryEventLog:
    """Returns an in-memory log of the same events at the same offsets."""
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in records])
    return log


def test_entities_are_the_same_after_snapshot(name: str) -> None:
    records = history(name)
    whole, all_told = annotate_log(records)
    half = len(records) // 2
    before, _ = annotate_log(records[:half])
    replica, late = before.fold.replica, EventAnnotator()
    late.fold.replica.restore(replica.states, replica.leadership, replica.offset)
    late.fold.name_tasks()
    late.entities.adopt()
    for record, known in zip(records[half:], all_told[half:], strict=True):
        event = late.annotate(record)
        assert event.entry.ignored == known.entry.ignored
        mine = {entity for entity in event.entities if entity.kind is EntityKind.TASK}
        # What is said of attempts that are long over says nothing of their tasks any more.
        of_attempts = {whole.entities.task_of[item] for item in late.entities.task_of}
        assert mine <= set(known.entities)
        assert (
            mine
            or not {entity for entity in known.entities if entity in of_attempts}
            or _is_late(record, late)
        )
        for entity in mine:
            # The state of a job that is over has no names: a task that is reported late is named by its id.
            is_over = isinstance(
                replica.states.get(f"job_master/{entity.id.partition('/')[0]}"), TerminatedJob
            )
            names = {whole.entities.name(entity), entity.id} if is_over else {whole.entities.name(entity)}
            assert late.entities.name(entity) in names


def _is_late(record: Record, annotator: EventAnnotator) -> bool:
    """Returns whether the event is about attempts that the states had already removed."""
    body: Any = record.body
    about = body.acknowledgements if isinstance(body, AcknowledgeCheckpoint) else [body]
    attempts = [getattr(each, "execution_attempt_id", None) for each in about]
    return all(attempt is not None and attempt not in annotator.entities.task_of for attempt in attempts)


def test_follower_of_history_gets_each_event_at_once(name: str) -> None:
    records = history(name)
    annotator, all_told = annotate_log(records)
    half = len(records) // 2
    for entity in annotator.entities.lives:
        timeline = EntityHistoryBuilder(entity, annotator)
        own = [event for event in all_told if entity in event.entities]
        for annotated_event in own:
            if annotated_event.offset < half:
                timeline.add(annotated_event)
        details = timeline.build().details
        on_event = [
            line
            for outgoing_event in own
            if outgoing_event.offset >= half
            for line in timeline.next(outgoing_event)
        ]
        details = timeline.build().details - details
        late = [item for item in own if item.offset >= half]
        assert all(line.count == 1 for line in on_event)
        brought_in = [line for line in on_event if all(line.offset != element.offset for element in late)]
        assert len(on_event) == len(late) - details + len(brought_in)
        assert all(line.mark is LineMark.ROOT for line in brought_in)
