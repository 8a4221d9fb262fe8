"""Properties of the role contract (services/core/role.py) over whole logs: the scenarios and some random runs."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.resource_manager import DisconnectTaskManager, RegisterTaskExecutor
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import IllegalEvent
from tailrace.services.job_master.state import JobMasterState
from tailrace.services.log import Codec
from tailrace.services.task_executor.state import TaskExecutorState

from ..schemas.strategies import instances
from .async_simulator import AsyncSimulator
from .scenarios import SCENARIOS, walk
from .simulated_cluster.cluster import SECOND, header, new_replica, replay_to_replica

TESTS = Path(__file__).parents[1]
WALKS = range(5)
LOGS = [*SCENARIOS, *WALKS]


@functools.cache
def world_of(seed: int) -> AsyncSimulator:
    """Returns the world of a random run."""
    return walk(seed)


@functools.cache
def log_of(name: str | int) -> tuple[Record, ...]:
    """Returns the log of a scenario or of a random run."""
    return tuple(world_of(name).log if isinstance(name, int) else SCENARIOS[name]().log)


def quiet() -> Replica:
    """Returns a replica that logs no illegal events."""
    return new_replica(on_illegal=lambda *_: None)


def content_of(replica: Replica) -> tuple[Any, ...]:
    """Returns the whole content of a replica."""
    return dict(replica.states), replica.leadership, replica.offset


@functools.cache
def states_along(name: str | int) -> tuple[tuple[dict[str, Any], int], ...]:
    """Returns (states, time of the last event) after each event of a log."""
    replica, along = quiet(), []
    for record in log_of(name):
        replica.apply(record)
        along.append((dict(replica.states), record.header.time))
    return tuple(along)


# Replay


@pytest.mark.parametrize("name", LOGS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_state_is_independent_of_batch_sizes(name: str | int, data: st.DataObject) -> None:
    log = log_of(name)
    replica, position = quiet(), 0
    while position < len(log):
        size = data.draw(st.integers(1, len(log) - position))
        for record in log[position : position + size]:
            replica.apply(record)
        position += size
        states, _ = states_along(name)[position - 1]
        same = replica.states == states
        assert same
        same = list(replica.states) == list(states)
        assert same


@pytest.mark.parametrize("name", SCENARIOS)
def test_replayed_state_equals_live_state(name: str) -> None:
    live = SCENARIOS[name]()
    same = content_of(replay_to_replica(live.log)) == content_of(live.replica)
    assert same


@pytest.mark.parametrize("name", LOGS)
def test_state_from_encoded_log_equals_live_state(name: str | int) -> None:
    codec, replica = Codec("log"), quiet()
    for record in log_of(name):
        read = codec.decode(codec.encode(Event(record.header, record.body)))
        replica.apply(Record(record.offset, read.header, read.body))
    same = replica.states == states_along(name)[-1][0]
    assert same


@pytest.mark.parametrize("name", LOGS)
def test_replica_of_one_role_agrees_with_replica_of_all_roles(name: str | int) -> None:
    whole = states_along(name)[-1][0]
    for address, state in whole.items():
        alone = new_replica(only=lambda item, own=address: item == own, on_illegal=lambda *_: None)  # type: ignore[misc]
        for record in log_of(name):
            if {record.header.sender, record.header.recipient} & {address, "*"}:
                alone.apply(record)
        same = alone.states == {address: state}
        assert same


# Fixpoint


@pytest.mark.parametrize("name", LOGS)
def test_settled_cluster_requires_no_event(name: str | int) -> None:
    states, now = states_along(name)[-1]
    for address, state in states.items():
        if address.startswith("task_executor") or name != "the_task_executor_is_there_first":
            owed = [event.body for event in quiet().role(address).decide(state, now)]
            # One that is lost and dead would register again, or leave as it was asked to.
            assert [
                each for each in owed if not isinstance(each, RegisterTaskExecutor | DisconnectTaskManager)
            ] == []


@pytest.mark.parametrize("name", LOGS)
def test_decide_is_repeatable_and_does_not_change_state(name: str | int) -> None:
    for states, now in states_along(name):
        for address, state in states.items():
            role = quiet().role(address)
            assert role.decide(state, now) == role.decide(state, now)
            assert role.instructions(state) == role.instructions(state)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("wait", [0, 5, 30])
def test_overdue_deadline_requires_event(name: str | int, wait: int) -> None:
    for states, time in states_along(name):
        for address, state in states.items():
            role, now = quiet().role(address), time + wait * SECOND
            deadline = role.deadline(state)
            if deadline is not None and deadline <= now:
                assert role.decide(state, now)
            elif deadline is not None:
                assert role.decide(state, now) == role.decide(state, deadline - 1)
            else:
                assert role.decide(state, now) == role.decide(state, now + 3600 * SECOND)


# Rest


@pytest.mark.parametrize("name", LOGS)
def test_quiescent_state_requires_no_event_and_broadcast_does_not_change_it(name: str | int) -> None:
    # Of claims, only that of the address itself is folded, like an event to this address.
    to_all = [
        record
        for record in log_of(name)
        if record.header.recipient == "*" and not isinstance(record.body, LeaderElected)
    ]
    for states, now in states_along(name):
        for address, state in states.items():
            role = quiet().role(address)
            if not role.is_quiescent(state):
                continue
            assert role.decide(state, now + 3600 * SECOND) == []
            assert role.deadline(state) is None
            assert not role.instructions(state)
            assert all(role.evolve(state, record) is state for record in to_all)


@pytest.mark.parametrize("name", LOGS)
def test_broadcast_concerns_every_address_that_is_not_quiescent(name: str | int) -> None:
    replica = quiet()
    for record in log_of(name):
        touched = replica.apply(record)
        resting = {item for item, state in replica.states.items() if replica.role(item).is_quiescent(state)}
        assert set(replica.active_addresses) == set(replica.states) - resting
        assert record.header.recipient != "*" or not resting & set(touched)
        assert not any(replica.recent_events(element) for element in resting)


# Determinism


def test_decisions_are_independent_of_hash_order() -> None:
    events = []
    for seed in range(4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-m", "tests.services.scenarios"]
        result = subprocess.run(
            command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=True
        )
        events.append(result.stdout.splitlines())
    assert len(events[0]) > 1000
    for other in events[1:]:
        assert other == events[0]


@pytest.mark.parametrize("name", WALKS)
def test_every_decision_is_recomputed_from_log(name: int) -> None:
    decisions: dict[tuple[str, int, int], list[Record]] = {}
    for record in log_of(name):
        if record.offset not in world_of(name).by_shells and record.header.decided_at is not None:
            at = (record.header.sender, record.header.sender_epoch, record.header.decided_at)
            decisions.setdefault(at, []).append(record)
    assert len(decisions) > 5
    for (sender, _, decided_at), records in decisions.items():
        state = states_along(name)[decided_at][0][sender]
        owed = quiet().role(sender).decide(state, records[0].header.time)
        again = [(event.recipient, event.body, event.cause) for event in owed[: len(records)]]
        assert again == [(record.header.recipient, record.body, record.header.cause) for record in records]


# Fencing


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_event_of_older_epoch_changes_nothing(name: int, data: st.DataObject) -> None:
    log = log_of(name)
    records = [record for record in log if record.header.sender_epoch > 0]
    late = data.draw(st.sampled_from(records))
    position = data.draw(st.integers(0, len(log)))
    replica = quiet()
    for record in log[:position]:
        replica.apply(record)
    before = dict(replica.states), replica.leadership
    older = replica.leadership.epoch(late.header.sender) - data.draw(st.integers(1, 3))
    body = late.body
    if isinstance(body, LeaderElected):
        body = LeaderElected(role=body.role, epoch=older + 1, address="old", session="old")
    assert replica.apply(Record(position, replace(late.header, sender_epoch=older), body)) == []
    same = (dict(replica.states), replica.leadership) == before
    assert same


@pytest.mark.parametrize("name", LOGS)
def test_reader_of_own_events_ignores_same_events(name: str | int) -> None:
    log = log_of(name)
    whole, ignored = LeadershipState(), set()
    for record in log:
        if not whole.accepts(record):
            ignored.add(record.offset)
        whole = whole.evolve(record)
    senders = {record.header.sender for record in log}
    for address in sorted(sender for sender in senders if sender.startswith(("task_executor", "client"))):
        own = LeadershipState()
        for record in log:
            if {record.header.sender, record.header.recipient} & {address, "*"}:
                assert own.accepts(record) == (record.offset not in ignored)
                own = own.evolve(record)
        assert own == whole


def test_no_role_claims_leadership_of_another_role() -> None:
    replica = replay_to_replica(log_of("a_job_finishes"))
    before = replica.leadership
    claim = LeaderElected(role="dispatcher", epoch=9, address="x", session="x")
    replica.apply(Record(99, header("task_executor/te-1", "*", epoch=9), claim))
    replica.apply(Record(100, header("client/me", "*"), claim))
    same = replica.leadership == before
    assert same


# Totality


@functools.cache
def _known(name: str | int) -> dict[str, st.SearchStrategy[Any]]:
    """Draws values for fields that are names; mostly existing names."""
    log, (states, _) = log_of(name), states_along(name)[-1]
    names: dict[str, set[Any]] = {"job_id": set(), "allocation_id": set(), "execution_attempt_id": set()}
    names["resource_id"] = set()
    for record in log:
        for field in names:
            if hasattr(record.body, field):
                names[field].add(getattr(record.body, field))
    for state in states.values():
        if isinstance(state, TaskExecutorState):
            names["resource_id"].add(state.resource_id)
    return {
        field: st.sampled_from(sorted(values - {None}) or ["x"]) | st.just("?")
        for field, values in names.items()
    }


@pytest.mark.parametrize("event", sorted(EVENTS))
@settings(max_examples=example_count(15), deadline=None)
@given(data=st.data())
def test_any_event_is_folded_or_illegal(event: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LOGS))
    log, along = log_of(name), states_along(name)
    position = data.draw(st.integers(0, len(along) - 1))
    states, _ = along[position]
    address = data.draw(st.sampled_from(sorted(states))) if states else "dispatcher"
    body = data.draw(instances(EVENTS[event], _known(name)))
    other = data.draw(st.sampled_from(sorted({record.header.recipient for record in log})))
    sender, recipient = (address, other) if data.draw(st.booleans()) else (other, address)
    cause = data.draw(st.none() | st.integers(0, position))
    record = Record(position + 1, replace(header(sender, recipient), cause=cause), body)
    role = quiet().role(address)
    before = states.get(address, role.initial(address))
    try:
        after = role.evolve(before, record)
    except IllegalEvent as error:
        assert error.record is record
        return
    kinds = get_args(JobMasterState) if isinstance(before, JobMasterState) else (type(before),)
    assert isinstance(after, kinds)


class _Unknown(Body, frozen=True):
    AVRO_NAME = "tailrace.Unknown"


def test_event_without_step_is_illegal() -> None:
    for address, state in states_along("a_job_finishes")[-1][0].items():
        with pytest.raises(IllegalEvent, match=rf"tailrace.Unknown from client/x at offset 99 .* {address}"):
            quiet().role(address).evolve(state, Record(99, header("client/x", address), _Unknown()))


@pytest.mark.parametrize("name", LOGS)
def test_illegal_event_is_logged_with_context_and_changes_nothing(name: str | int) -> None:
    reports: list[tuple[IllegalEvent, tuple[Record, ...]]] = []
    replica = new_replica(on_illegal=lambda error, story: reports.append((error, story)))
    for record in log_of(name):
        replica.apply(record)
    reports.clear()
    before = dict(replica.states)
    # A deposed leader may have said it too.
    starts = {
        record.header.recipient: record
        for record in log_of(name)
        if isinstance(record.body, job_master.StartJob)
    }
    for recipient, record in starts.items():
        again = Record(replica.offset + 1, record.header, record.body)
        epoch = replica.leadership.epoch(record.header.sender)
        assert replica.apply(replace(again, header=replace(record.header, sender_epoch=epoch))) == []
        same = replica.states == before
        assert same
        assert recipient in str(reports[-1][0]) + str(reports[-2][0])
        assert reports[-1][1] == replica.recent_events(recipient)
    assert len(reports) == 2 * len([item for item in before if item.startswith("job_master/")])
