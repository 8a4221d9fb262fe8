"""The laws of the contract of a role (services/core/role.py), over whole logs: the scenarios and some walks."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.resource_manager import RegisterTaskExecutor
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import IllegalEvent
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
    """A walk."""
    return walk(seed)


@functools.cache
def log_of(name: str | int) -> tuple[Record, ...]:
    """The log of a scenario, or of a walk."""
    return tuple(world_of(name).log if isinstance(name, int) else SCENARIOS[name]().log)


def quiet() -> Replica:
    """A replica that does not complain of what is illegal."""
    return new_replica(on_illegal=lambda *_: None)


def seen(replica: Replica) -> tuple[Any, ...]:
    """All that a replica knows."""
    return dict(replica.states), replica.leadership, replica.offset


@functools.cache
def states_along(name: str | int) -> tuple[tuple[dict[str, Any], int], ...]:
    """(states, time of the last event) after each event of a log."""
    replica, along = quiet(), []
    for record in log_of(name):
        replica.apply(record)
        along.append((dict(replica.states), record.header.time))
    return tuple(along)


# Replay


@pytest.mark.parametrize("name", LOGS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_the_state_is_the_same_whatever_the_batches_it_was_folded_in(
    name: str | int, data: st.DataObject
) -> None:
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
def test_the_replayed_state_is_the_live_one(name: str) -> None:
    live = SCENARIOS[name]()
    same = seen(replay_to_replica(live.log)) == seen(live.replica)
    assert same


@pytest.mark.parametrize("name", LOGS)
def test_the_state_is_the_same_from_what_was_written_as_bytes(name: str | int) -> None:
    codec, replica = Codec("log"), quiet()
    for record in log_of(name):
        read = codec.decode(codec.encode(Event(record.header, record.body)))
        replica.apply(Record(record.offset, read.header, read.body))
    same = replica.states == states_along(name)[-1][0]
    assert same


@pytest.mark.parametrize("name", LOGS)
def test_a_replica_of_one_role_knows_of_it_what_a_replica_of_all_knows(name: str | int) -> None:
    whole = states_along(name)[-1][0]
    for address, state in whole.items():
        alone = new_replica(only=lambda each, own=address: each == own, on_illegal=lambda *_: None)  # type: ignore[misc]
        for record in log_of(name):
            if {record.header.sender, record.header.recipient} & {address, "*"}:
                alone.apply(record)
        same = alone.states == {address: state}
        assert same


# Fixpoint


@pytest.mark.parametrize("name", LOGS)
def test_when_all_is_said_nothing_is_owed(name: str | int) -> None:
    states, now = states_along(name)[-1]
    for address, state in states.items():
        if address.startswith("task_executor") or name != "the_task_executor_is_there_first":
            owed = [each.body for each in quiet().role(address).decide(state, now)]
            # One that is lost and dead would register again; a process that is started does so by itself.
            assert [each for each in owed if not isinstance(each, RegisterTaskExecutor)] == []


@pytest.mark.parametrize("name", LOGS)
def test_deciding_twice_says_the_same_and_changes_nothing(name: str | int) -> None:
    for states, now in states_along(name):
        for address, state in states.items():
            role = quiet().role(address)
            assert role.decide(state, now) == role.decide(state, now)
            assert role.instructions(state) == role.instructions(state)


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("wait", [0, 5, 30])
def test_a_deadline_that_has_passed_owes_something(name: str | int, wait: int) -> None:
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
def test_what_is_at_rest_owes_nothing_ever_and_no_event_to_everyone_changes_it(name: str | int) -> None:
    to_all = [record for record in log_of(name) if record.header.recipient == "*"]
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
def test_an_event_to_everyone_concerns_whoever_is_not_at_rest(name: str | int) -> None:
    replica = quiet()
    for record in log_of(name):
        touched = replica.apply(record)
        resting = {each for each, state in replica.states.items() if replica.role(each).is_quiescent(state)}
        assert set(replica.active_addresses) == set(replica.states) - resting
        assert record.header.recipient != "*" or not resting & set(touched)
        assert not any(replica.recent_events(each) for each in resting)


# Determinism


def test_what_is_said_does_not_depend_on_the_order_of_a_hash() -> None:
    said = []
    for seed in range(4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-m", "tests.services.scenarios"]
        done = subprocess.run(
            command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, check=True
        )
        said.append(done.stdout.splitlines())
    assert len(said[0]) > 1000
    for other in said[1:]:
        assert other == said[0]


@pytest.mark.parametrize("name", WALKS)
def test_every_decision_can_be_decided_again_from_the_log(name: int) -> None:
    decisions: dict[tuple[str, int, int], list[Record]] = {}
    for record in log_of(name):
        if record.offset not in world_of(name).by_shells and record.header.decided_at is not None:
            at = (record.header.sender, record.header.sender_epoch, record.header.decided_at)
            decisions.setdefault(at, []).append(record)
    assert len(decisions) > 5
    for (sender, _, decided_at), said in decisions.items():
        state = states_along(name)[decided_at][0][sender]
        owed = quiet().role(sender).decide(state, said[0].header.time)
        again = [(each.recipient, each.body, each.cause) for each in owed[: len(said)]]
        assert again == [(each.header.recipient, each.body, each.header.cause) for each in said]


# Fencing


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_an_older_epoch_says_changes_nothing(name: int, data: st.DataObject) -> None:
    log = log_of(name)
    said = [record for record in log if record.header.sender_epoch > 0]
    late = data.draw(st.sampled_from(said))
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
def test_whoever_reads_only_what_concerns_it_ignores_the_same(name: str | int) -> None:
    log = log_of(name)
    whole, ignored = LeadershipState(), set()
    for record in log:
        if not whole.accepts(record):
            ignored.add(record.offset)
        whole = whole.evolve(record)
    senders = {record.header.sender for record in log}
    for address in sorted(each for each in senders if each.startswith(("task_executor", "client"))):
        own = LeadershipState()
        for record in log:
            if {record.header.sender, record.header.recipient} & {address, "*"}:
                assert own.accepts(record) == (record.offset not in ignored)
                own = own.evolve(record)
        assert own == whole


def test_nobody_claims_to_lead_the_role_of_another() -> None:
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
    """For fields that name something: mostly something that is there."""
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
    return {field: st.sampled_from(sorted(values) or ["x"]) | st.just("?") for field, values in names.items()}


@pytest.mark.parametrize("event", sorted(EVENTS))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_a_role_hears_or_says_is_folded_or_illegal(event: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LOGS))
    log, along = log_of(name), states_along(name)
    position = data.draw(st.integers(0, len(along) - 1))
    states, _ = along[position]
    address = data.draw(st.sampled_from(sorted(states))) if states else "dispatcher"
    body = data.draw(instances(EVENTS[event], _known(name)))
    other = data.draw(st.sampled_from(sorted({each.header.recipient for each in log})))
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
    assert type(after) is type(before)


class _Unknown(Body, frozen=True):
    AVRO_NAME = "tailrace.Unknown"


def test_an_event_that_a_role_has_no_step_for_is_illegal() -> None:
    for address, state in states_along("a_job_finishes")[-1][0].items():
        with pytest.raises(IllegalEvent, match=rf"tailrace.Unknown from client/x at offset 99 .* {address}"):
            quiet().role(address).evolve(state, Record(99, header("client/x", address), _Unknown()))


@pytest.mark.parametrize("name", LOGS)
def test_what_is_illegal_is_told_with_its_story_and_changes_nothing(name: str | int) -> None:
    told: list[tuple[IllegalEvent, tuple[Record, ...]]] = []
    replica = new_replica(on_illegal=lambda error, story: told.append((error, story)))
    for record in log_of(name):
        replica.apply(record)
    told.clear()
    before = dict(replica.states)
    # A deposed leader may have said it too.
    starts = {
        each.header.recipient: each for each in log_of(name) if isinstance(each.body, job_master.StartJob)
    }
    for recipient, record in starts.items():
        again = Record(replica.offset + 1, record.header, record.body)
        epoch = replica.leadership.epoch(record.header.sender)
        assert replica.apply(replace(again, header=replace(record.header, sender_epoch=epoch))) == []
        same = replica.states == before
        assert same
        assert recipient in str(told[-1][0]) + str(told[-2][0])
        assert told[-1][1] == replica.recent_events(recipient)
    assert len(told) == 2 * len([each for each in before if each.startswith("job_master/")])
