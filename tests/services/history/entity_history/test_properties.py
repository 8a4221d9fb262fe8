"""Laws of stories, over simulated histories: nothing is left untold, and causes lead somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.schemas.event import Event, Record
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
from tailrace.services.history.entity_history.event_annotator import EventAnnotator
from tailrace.services.history.entity_history.failure_chains import Severity
from tailrace.services.history.entity_history.timeline import EntityHistoryBuilder, LineMark
from tailrace.services.job_master.state import JobMasterState
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState

from .simulated_logs import HISTORIES, annotate_log, history

pytestmark = pytest.mark.parametrize("name", HISTORIES)


def test_every_event_belongs_to_a_story(name: str) -> None:
    teller, all_told = annotate_log(history(name))
    timelines = {each: EntityHistoryBuilder(each, teller, everything=True) for each in teller.entities.lives}
    for each in all_told:
        assert each.entities
        for entity in each.entities:
            timelines[entity].add(each)
    for entity, timeline in timelines.items():
        offsets = [line.offset for line in timeline.build().lines]
        own = [each.offset for each in all_told if entity in each.entities]
        # What a failure of its began with elsewhere is told besides.
        assert set(own) <= set(offsets)
        assert all(teller.chains.severity(each) >= Severity.FAILURE for each in set(offsets) - set(own))
        assert offsets == sorted(set(offsets))
        life = teller.entities.lives[entity]
        assert (life.first, life.last, life.events) == (own[0], own[-1], len(own))


def test_what_is_told_together_is_all_there_is(name: str) -> None:
    teller, all_told = annotate_log(history(name))
    for entity in teller.entities.lives:
        timeline = EntityHistoryBuilder(entity, teller)
        own = [each for each in all_told if entity in each.entities]
        for each in own:
            timeline.add(each)
        story = timeline.build()
        roots = [line for line in story.lines if not any(each.offset == line.offset for each in own)]
        assert sum(line.count for line in story.lines) + story.details == len(own) + len(roots)
        for line in story.lines:
            assert line.text
            assert line.who
            assert (line.mark is LineMark.IGNORED) == (line.ignored is not None)
        stood_out = {each.offset for each in own if each.severity >= Severity.FAILURE or each.entry.ignored}
        hidden = {offset for offset in stood_out if not any(_has(line, offset) for line in story.lines)}
        assert not hidden


def _has(line: Any, offset: int) -> bool:
    return bool(line.offset <= offset <= line.until)


def test_why_ends_at_a_client_an_election_the_clock_or_a_fact(name: str) -> None:
    records = history(name)
    teller, _ = annotate_log(records)
    log = in_memory(records)
    for record in records[:: max(1, len(records) // 25)]:
        found = cause_chains.trace_causes(teller, log, record.offset)
        offsets = [line.offset for line in found.lines]
        assert offsets[0] == record.offset
        assert offsets == sorted(set(offsets), reverse=True)
        assert [line.cause for line in found.lines] == [*offsets[1:], None]
        assert found.began is not ChainStart.UNKNOWN
        first = records[offsets[-1]]
        assert (found.began is ChainStart.CLIENT) == first.header.sender.startswith("client/")
        assert (found.began is ChainStart.ELECTION) == first.body.AVRO_NAME.endswith("LeaderElected")


def test_effects_are_the_inverse_of_why(name: str) -> None:
    records = history(name)
    teller, all_told = annotate_log(records)
    for record in records[:: max(1, len(records) // 10)]:
        above = {
            each.offset for each in all_told if record.offset in teller.chains.causes_upward(each.offset)
        }
        for everything in (True, False):
            found = EffectTree(record.offset, teller, everything=everything)
            for each in all_told:
                found.add(each)
            tree = found.tree()
            assert tree is not None
            assert found.count == len(above) - 1
            assert sum(_count(each) for each in _all(tree)) == len(above)
        if everything:
            assert {each.line.offset for each in _all(tree)} == above


def _all(tree: Effect) -> Iterator[Effect]:
    yield tree
    for each in tree.effects:
        yield from _all(each)


def _count(effect: Effect) -> int:
    return effect.line.count + effect.left_out


def test_whatever_a_state_names_has_a_story_under_its_id(name: str) -> None:
    records = history(name)
    teller = EventAnnotator()
    for number, record in enumerate(records):
        teller.annotate(record)
        if number % 40 and number != len(records) - 1:
            continue
        for state in teller.fold.replica.states.values():
            for entity in _entities(state):
                assert entity in teller.entities.lives, f"{entity} at {record.offset}"
            for attempt in state.executions if isinstance(state, JobMasterState) else ():
                found = EntityQuery(attempt).find(teller.entities.lives)
                assert found == teller.entities.task_of[attempt]


def _entities(state: object) -> Iterator[Entity]:
    match state:
        case JobMasterState():
            yield job(state.job_id)
            pool = state.slots
            for each in (*pool.requests, *pool.slots, *pool.returning):
                yield allocation(each)
            for execution in state.executions.values():
                yield task(state.job_id, execution.vertex_id, execution.subtask_index)
            for each in state.connections:
                yield task_executor_of(each)
            for number in state.checkpoints.pending:
                yield checkpoint(state.job_id, number)
            for completed in state.checkpoints.completed:
                yield checkpoint(state.job_id, completed.checkpoint_id)
        case ResourceManagerState():
            for each in (*state.workers, *state.pool.workers):
                yield task_executor_of(each)
            for each in state.job_masters:
                yield job(each)
            for resource_id, worker in state.slot_manager.slots.workers.items():
                for number in worker.slots:
                    yield slot(resource_id, number)
        case TaskExecutorState():
            for each in state.slots.allocated:
                yield allocation(each)
            for running in state.tasks.values():
                yield task(running.job_id, running.vertex_id, running.subtask_index)
        case DispatcherState():
            for of_job in state.jobs.values():
                yield job(of_job.job_id)
                yield Entity(EntityKind.CLIENT, of_job.requester.partition("/")[2])
        case _:
            pass


def test_a_failure_began_with_a_failure(name: str) -> None:
    teller, all_told = annotate_log(history(name))
    for each in all_told:
        assert (each.root is not None) == (each.severity >= Severity.FAILURE)
        if each.root is not None:
            assert each.root in teller.chains.causes_upward(each.offset)
            assert teller.failures[each.root].root == each.root
        assert not (each.entry.ignored and each.severity)


def in_memory(records: tuple[Record, ...]) -> MemoryEventLog:
    """The same events at the same offsets."""
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in records])
    return log


def test_behind_a_snapshot_things_belong_together_as_before(name: str) -> None:
    records = history(name)
    whole, all_told = annotate_log(records)
    half = len(records) // 2
    before, _ = annotate_log(records[:half])
    replica, late = before.fold.replica, EventAnnotator()
    late.fold.replica.restore(replica.states, replica.leadership, replica.offset)
    late.entities.adopt()
    for record, known in zip(records[half:], all_told[half:], strict=True):
        found = late.annotate(record)
        assert found.entry.ignored == known.entry.ignored
        mine = {each for each in found.entities if each.kind is EntityKind.TASK}
        # What is said of attempts that are long over says nothing of their tasks any more.
        of_attempts = {whole.entities.task_of[each] for each in late.entities.task_of}
        assert mine <= set(known.entities)
        assert mine or not {each for each in known.entities if each in of_attempts} or _is_late(record, late)
        assert {late.entities.name(each) for each in mine} == {whole.entities.name(each) for each in mine}


def _is_late(record: Record, teller: EventAnnotator) -> bool:
    """Whether it is about an attempt that the states had forgotten."""
    attempt = getattr(record.body, "execution_attempt_id", None)
    return attempt is not None and attempt not in teller.entities.task_of


def test_who_follows_a_story_hears_of_each_event_at_once(name: str) -> None:
    records = history(name)
    teller, all_told = annotate_log(records)
    half = len(records) // 2
    for entity in teller.entities.lives:
        timeline = EntityHistoryBuilder(entity, teller)
        own = [each for each in all_told if entity in each.entities]
        for each in own:
            if each.offset < half:
                timeline.add(each)
        details = timeline.build().details
        heard = [line for each in own if each.offset >= half for line in timeline.next(each)]
        details = timeline.build().details - details
        late = [each for each in own if each.offset >= half]
        assert all(line.count == 1 for line in heard)
        brought_in = [line for line in heard if all(line.offset != each.offset for each in late)]
        assert len(heard) == len(late) - details + len(brought_in)
        assert all(line.mark is LineMark.ROOT for line in brought_in)
