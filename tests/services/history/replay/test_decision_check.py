"""The recorded decisions of every history equal the recomputed ones, and a changed decision is detected."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from example_count import example_count
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import LeaderElected, StateHash
from tailrace.schemas.job_master import JobMasterFailed
from tailrace.schemas.types import Header
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import OutgoingEvent, Time
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.history.replay import DecisionCheck, DecisionDifference, DifferenceKind
from tailrace.services.job_master import JobMaster
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.snapshots.fingerprint import code_fingerprint
from tailrace.services.snapshots.state_hash import StateHasher
from tailrace.services.task_executor import TaskExecutor

from ...snapshots.simulated_logs import HISTORIES, LONG, WALKS, create_quiet_replica, history


def checked(
    log: Sequence[Record], check: DecisionCheck | None = None
) -> tuple[DecisionCheck, list[DecisionDifference]]:
    check = check or DecisionCheck(create_quiet_replica())
    differences = check.check_all(log)
    check.finish()
    return check, differences


@pytest.mark.parametrize("name", HISTORIES)
def test_every_history_is_recomputed_without_difference(name: str | int) -> None:
    check, differences = checked(history(name))
    assert [difference.line() for difference in differences] == []
    known = create_quiet_replica()
    decided_count = 0
    for record in history(name):
        decided_count += record.header.decided and known.leadership.accepts(record)
        known.apply(record)
    assert check.counts.decided == decided_count
    assert check.counts.events == len(history(name))
    assert check.counts.too_old == 0


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=example_count(10), deadline=None)
@given(data=st.data())
def test_event_that_was_not_required_is_detected(name: int, data: st.DataObject) -> None:
    log = list(history(name))
    at = data.draw(st.sampled_from([i for i, record in enumerate(log) if record.header.decided]))
    entry = log[at]
    cause = data.draw(st.integers(0, entry.offset - 1).filter(lambda number: number != entry.header.cause))
    log[at] = Record(entry.offset, replace(entry.header, cause=cause), entry.body)
    known = create_quiet_replica()
    for record in log[:at]:
        known.apply(record)
    assume(known.leadership.accepts(entry))
    check = DecisionCheck(create_quiet_replica())
    assert check.check_all(log[:at]) == []
    differences = check.check_record(log[at])
    assert [difference.kind for difference in differences] == [DifferenceKind.OTHER]
    assert differences[0].recorded == log[at]
    assert [(field.field, field.recorded, field.expected) for field in differences[0].fields()] == [
        ("cause", cause, entry.header.cause)
    ]
    assert str(entry.offset) in differences[0].line()
    assert [*differences[0].format_lines()]
    assert differences[0].as_data()["state"]


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=example_count(10), deadline=None)
@given(data=st.data())
def test_missing_required_event_is_detected(name: int, data: st.DataObject) -> None:
    """After the next step of its leader, which must show in another event."""
    log = list(history(name))
    turns: dict[tuple[str, int | None, int], list[int]] = {}
    known = create_quiet_replica()
    for i, record in enumerate(log):
        leader = known.leadership.leader(record.header.sender)
        if record.header.decided and leader is not None and known.leadership.accepts(record):
            turns.setdefault((leader.session, record.header.decided_at, record.header.time), []).append(i)
        known.apply(record)
    last = {session: turn for turn in turns for session in turn[:1]}
    # What the JobMaster of a failed job required may be what could not be sent.
    failed = {record.header.sender for record in log if isinstance(record.body, JobMasterFailed)}
    several = [
        i
        for turn, events in turns.items()
        if len(events) > 1 and last[turn[0]] != turn
        for i in events
        if log[i].header.sender not in failed
    ]
    at = data.draw(st.sampled_from(several))
    check, differences = checked([*log[:at], *log[at + 1 :]])
    # Who was deposed before the session's next turn is held to nothing.
    cut_off = check.counts.cut_off > checked(log)[0].counts.cut_off
    assert cut_off or log[at].header.decided_at in {difference.decided_at for difference in differences}


class Undecided(ResourceManager):
    """A role with a bug: sometimes it does not send a required event, or sends it to another recipient."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def decide(self, state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
        owed = super().decide(state, now)
        if owed and self._draw.random() < 0.3:
            return [OutgoingEvent(event.recipient, event.body, None) for event in owed[1:]]
        return owed


@pytest.mark.parametrize("seed", range(3))
def test_nondeterministic_role_is_detected(seed: int) -> None:
    roles = [Dispatcher(), Undecided(seed), JobMaster(), TaskExecutor()]
    check = DecisionCheck(Replica(roles, on_illegal=lambda *_: None))
    _, differences = checked(history(LONG), check)
    assert differences
    assert {difference.sender for difference in differences} == {"resource_manager"}
    assert check.counts.differences == len(differences)


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_event_that_leader_had_no_time_to_send_is_accepted(name: int, data: st.DataObject) -> None:
    """Every prefix of a history may be a history that ended there."""
    end = data.draw(st.integers(0, len(history(name))))
    check, differences = checked(history(name)[:end])
    assert differences == []
    if 0 < end < len(history(name)):
        last, following = history(name)[end - 1 : end + 1]
        if following.header.decided and following.header.event_id[:32] == last.header.event_id[:32]:
            same = last.header.decided_at == following.header.decided_at and last.header.decided
            assert check.counts.cut_off > 0 or not same


def test_leader_that_died_between_two_events_is_accepted() -> None:
    check, differences = checked(history("a_job_is_cancelled_during_its_deployment"))
    assert differences == []
    assert check.counts.cut_off == 1


def test_decision_too_far_back_is_counted_and_not_checked() -> None:
    check, differences = checked(history(LONG), DecisionCheck(create_quiet_replica(), remembered=1))
    assert differences == []
    assert check.counts.too_old > 0


def hashed(name: int, at: int) -> StateHash:
    known = create_quiet_replica()
    for record in history(name):
        if record.offset <= at:
            known.apply(record)
    return StateHash(offset=at, hashes=StateHasher(known).hashes(), code_fingerprint=code_fingerprint())


@pytest.mark.parametrize("honest", [True, False])
def test_state_hashes_are_compared_at_their_position(honest: bool) -> None:
    log = list(history(LONG))
    at = len(log) // 2
    state_hash = hashed(LONG, at)
    if not honest:
        state_hash = replace(state_hash, hashes={**state_hash.hashes, "dispatcher": "0" * 32})
    last = log[-1].offset
    known = create_quiet_replica()
    for record in log:
        known.apply(record)
    header = Header(
        event_id="h",
        time=log[-1].header.time,
        sender="dispatcher",
        sender_epoch=known.leadership.epoch("dispatcher"),
        recipient=EVERYONE,
    )
    check, differences = checked([*log, Record(last + 1, header, state_hash)])
    assert check.counts.hashes == 1
    assert [difference.kind for difference in differences] == ([] if honest else [DifferenceKind.STATE])
    if differences:
        assert "dispatcher" in differences[0].line()


def test_new_leader_decides_for_all_its_addresses() -> None:
    log = list(history(LONG))
    elected = [
        record
        for record in log
        if isinstance(record.body, LeaderElected) and record.body.role == "dispatcher"
    ]
    assert elected
    _, differences = checked(log)
    assert differences == []
