"""What leaders said is what their roles owe: of every history, and of no other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.everyone import LeaderElected, StateHash
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
    found = check.check_all(log)
    check.finish()
    return check, found


@pytest.mark.parametrize("name", HISTORIES)
def test_every_history_is_decided_again_as_it_was(name: str | int) -> None:
    check, found = checked(history(name))
    assert [each.line() for each in found] == []
    known = create_quiet_replica()
    heard = 0
    for record in history(name):
        heard += record.header.decided and known.leadership.accepts(record)
        known.apply(record)
    assert check.counts.decided == heard
    assert check.counts.events == len(history(name))
    assert check.counts.too_old == 0


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_word_that_was_never_owed_is_found(name: int, data: st.DataObject) -> None:
    log = list(history(name))
    at = data.draw(st.sampled_from([i for i, each in enumerate(log) if each.header.decided]))
    said = log[at]
    cause = data.draw(st.integers(0, 10_000).filter(lambda each: each != said.header.cause))
    log[at] = Record(said.offset, replace(said.header, cause=cause), said.body)
    known = create_quiet_replica()
    for record in log[:at]:
        known.apply(record)
    assume(known.leadership.accepts(said))
    check = DecisionCheck(create_quiet_replica())
    assert check.check_all(log[:at]) == []
    found = check.check_record(log[at])
    assert [each.kind for each in found] == [DifferenceKind.OTHER]
    assert found[0].said == log[at]
    assert [(each.field, each.said, each.owed) for each in found[0].fields()] == [
        ("cause", cause, said.header.cause)
    ]
    assert str(said.offset) in found[0].line()
    assert [*found[0].format_lines()]
    assert found[0].as_data()["state"]


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_word_that_is_owed_and_not_said_is_missed(name: int, data: st.DataObject) -> None:
    """As soon as its session has another turn; and its turn must be seen by another word at least."""
    log = list(history(name))
    turns: dict[tuple[str, int | None, int], list[int]] = {}
    known = create_quiet_replica()
    for i, each in enumerate(log):
        leader = known.leadership.leader(each.header.sender)
        if each.header.decided and leader is not None and known.leadership.accepts(each):
            turns.setdefault((leader.session, each.header.decided_at, each.header.time), []).append(i)
        known.apply(each)
    last = {session: turn for turn in turns for session in turn[:1]}
    several = [i for turn, said in turns.items() if len(said) > 1 and last[turn[0]] != turn for i in said]
    at = data.draw(st.sampled_from(several))
    check, found = checked([*log[:at], *log[at + 1 :]])
    # Who was deposed before the session's next turn is held to nothing.
    cut_off = check.counts.cut_off > checked(log)[0].counts.cut_off
    assert cut_off or log[at].header.decided_at in {each.decided_at for each in found}


class Undecided(ResourceManager):
    """Now and then it does not say what it owes, or says it to somebody else."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def decide(self, state: ResourceManagerState, now: Time) -> list[OutgoingEvent]:
        owed = super().decide(state, now)
        if owed and self._draw.random() < 0.3:
            return [OutgoingEvent(each.recipient, each.body, None) for each in owed[1:]]
        return owed


@pytest.mark.parametrize("seed", range(3))
def test_a_role_that_is_not_deterministic_is_caught(seed: int) -> None:
    roles = [Dispatcher(), Undecided(seed), JobMaster(), TaskExecutor()]
    check = DecisionCheck(Replica(roles, on_illegal=lambda *_: None))
    _, found = checked(history(LONG), check)
    assert found
    assert {each.sender for each in found} == {"resource_manager"}
    assert check.counts.differences == len(found)


@pytest.mark.parametrize("name", WALKS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_what_a_leader_did_not_get_to_say_is_held_against_nobody(name: int, data: st.DataObject) -> None:
    """Every beginning of a history is one that may have ended there."""
    end = data.draw(st.integers(0, len(history(name))))
    check, found = checked(history(name)[:end])
    assert found == []
    if 0 < end < len(history(name)):
        last, following = history(name)[end - 1 : end + 1]
        if following.header.decided and following.header.event_id[:32] == last.header.event_id[:32]:
            same = last.header.decided_at == following.header.decided_at and last.header.decided
            assert check.counts.cut_off > 0 or not same


def test_a_leader_that_died_between_two_words_is_cut_off() -> None:
    check, found = checked(history("a_job_is_cancelled_during_its_deployment"))
    assert found == []
    assert check.counts.cut_off == 1


def test_what_was_decided_too_long_ago_is_counted_and_not_checked() -> None:
    check, found = checked(history(LONG), DecisionCheck(create_quiet_replica(), remembered=1))
    assert found == []
    assert check.counts.too_old > 0


def hashed(name: int, at: int) -> StateHash:
    known = create_quiet_replica()
    for record in history(name):
        if record.offset <= at:
            known.apply(record)
    return StateHash(offset=at, hashes=StateHasher(known).hashes(), code_fingerprint=code_fingerprint())


@pytest.mark.parametrize("honest", [True, False])
def test_state_hashes_are_compared_at_the_place_that_they_are_of(honest: bool) -> None:
    log = list(history(LONG))
    at = len(log) // 2
    said = hashed(LONG, at)
    if not honest:
        said = replace(said, hashes={**said.hashes, "dispatcher": "0" * 32})
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
    check, found = checked([*log, Record(last + 1, header, said)])
    assert check.counts.hashes == 1
    assert [each.kind for each in found] == ([] if honest else [DifferenceKind.STATE])
    if found:
        assert "dispatcher" in found[0].line()


def test_a_new_leader_looks_at_all_that_it_leads() -> None:
    log = list(history(LONG))
    elected = [
        each for each in log if isinstance(each.body, LeaderElected) and each.body.role == "dispatcher"
    ]
    assert elected
    _, found = checked(log)
    assert found == []
