"""State hashes: replicas that agree go on, and one that does not stops and says where."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected, StateHash
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import AnyRole, OutgoingEvent, with_headers
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.job_master import JobMaster
from tailrace.services.log import Codec
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.snapshots.snapshot_file import pack, unpack
from tailrace.services.snapshots.state_hash import StateHasher, StateView
from tailrace.services.snapshots.state_hash_auditor import ReplicaDiverged, StateHashAuditor

from .simulated_logs import LONG, history

INTERVAL = 25


class Forgetful(Dispatcher):
    """Its evolve asks for a random number: now and then it takes a job to be called otherwise."""

    def __init__(self, since: int, seed: int = 1) -> None:
        self._since = since
        self._random = random.Random(seed)

    def evolve(self, state: DispatcherState, record: Record) -> DispatcherState:
        after = super().evolve(state, record)
        if record.offset < self._since or not after.jobs:
            return after
        job = after.jobs[min(after.jobs)]
        return replace(after, jobs=after.jobs.set(job.job_id, replace(job, name=str(self._random.random()))))


class Process:
    """A master that folds a log and says hashes when it leads."""

    def __init__(
        self, dispatcher: AnyRole | None = None, interval: int = INTERVAL, session: str = "me"
    ) -> None:
        roles: list[AnyRole] = [dispatcher or Dispatcher(), ResourceManager(), JobMaster()]
        self.replica = Replica(roles, on_illegal=lambda *_: None)
        self.said: list[OutgoingEvent] = []
        self.kept: list[StateView] = []
        self.interval = interval
        self.session = session
        self.errors: list[Exception] = []
        self.to_judge: list[Callable[[], None]] = []

    def audited(self) -> Process:
        StateHashAuditor(
            self.replica,
            self.interval,
            me=self.session,
            say=self.said.append,
            fail=self.errors.append,
            later=self.to_judge.append,
            keep=self._keep,
        )
        return self

    def judge(self) -> None:
        """The time is over for which it waits for others."""
        for each in self.to_judge:
            each()
        self.to_judge.clear()

    def _keep(self, known: StateView) -> str:
        self.kept.append(known)
        return "here.json"


def with_hashes(leader: Process, log: Sequence[Record]) -> list[Record]:
    """The log, and in it, a few events behind each mark, what the leader says of itself. Offsets are new."""
    whole: list[Record] = []
    waiting: list[tuple[int, OutgoingEvent]] = []
    for record in log:
        offset = len(whole)
        whole.append(Record(offset, record.header, record.body))
        leader.replica.apply(whole[-1])
        waiting += [(offset + 3, each) for each in leader.said]
        leader.said.clear()
        while waiting and waiting[0][0] <= len(whole):
            _, owed = waiting.pop(0)
            event = with_headers(
                [owed],
                cluster="c",
                sender="dispatcher",
                epoch=leader.replica.leadership.epoch("dispatcher"),
                decided_at=len(whole) - 1,
                now=record.header.time,
                numbers=itertools.count(len(whole)),
            )[0]
            said = Codec("x").decode(Codec("x").encode(event))
            whole.append(Record(len(whole), said.header, said.body))
            leader.replica.apply(whole[-1])
    return whole


def said_in(log: Sequence[Record]) -> list[StateHash]:
    return [each.body for each in log if isinstance(each.body, StateHash)]


@pytest.fixture(scope="module")
def log() -> list[Record]:
    return with_hashes(Process().audited(), history(LONG))


def test_hashes_are_said_behind_each_multiple_of_the_interval(log: Sequence[Record]) -> None:
    said = said_in(log)
    assert len(said) > 4
    assert [each.offset for each in said] == [number * INTERVAL - 1 for number in range(1, len(said) + 1)]
    for each in said:
        replica = Process().replica
        for record in log[: each.offset + 1]:
            replica.apply(record)
        assert StateHasher(replica).hashes() == each.hashes


def test_replicas_that_agree_go_on(log: Sequence[Record]) -> None:
    standby = Process().audited()
    for record in log:
        standby.replica.apply(record)
    assert standby.kept == []
    assert [each.body for each in standby.said][: len(said_in(log))] == said_in(log)


def test_no_role_hears_of_them(log: Sequence[Record]) -> None:
    replica = Process().replica
    for record in log:
        changed = replica.apply(record)
        assert not isinstance(record.body, StateHash) or changed == []


@pytest.mark.parametrize("start", [1, INTERVAL - 1, INTERVAL, 2 * INTERVAL + 7])
def test_one_that_began_with_a_snapshot_agrees(log: Sequence[Record], start: int) -> None:
    first = Process().replica
    for record in log[:start]:
        first.apply(record)
    _, data = pack(first, cluster="c", event_id="e", fingerprint="f", time=0)
    standby = Process()
    unpack(data, cluster="c", fingerprint="f").restore(standby.replica)
    standby.audited()
    for record in log[start:]:
        standby.replica.apply(record)
    expected = [each for each in said_in(log) if each.offset >= start - 1]
    assert [each.body for each in standby.said][: len(expected)] == expected


@pytest.mark.parametrize("since", [0, 2 * INTERVAL])
def test_a_role_that_is_not_deterministic_is_caught_at_the_next_mark(
    log: Sequence[Record], since: int
) -> None:
    astray = Process(Forgetful(since)).audited()
    with pytest.raises(ReplicaDiverged) as caught:
        fold(astray, log)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(
        "the states of dispatcher in this process are not those of sim, which leads the dispatcher"
    )
    (kept,) = astray.kept
    assert kept.offset >= since
    first = kept.offset - INTERVAL + 1
    assert f"they diverged between offsets {first} and {kept.offset}; its states are in here.json" in line
    truth = Process().replica
    for record in log[: kept.offset + 1]:
        truth.apply(record)
    assert kept.states["dispatcher"] != truth.states["dispatcher"]
    assert kept.states["resource_manager"] == truth.states["resource_manager"]


def test_a_leader_that_is_not_deterministic_is_left_by_the_others() -> None:
    log = with_hashes(Process(Forgetful(0)).audited(), history(LONG))
    with pytest.raises(ReplicaDiverged, match="and no majority says which of them are right"):
        fold(Process().audited(), log)


@pytest.mark.parametrize("seeds", ["alike", "each otherwise"])
@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize(("masters", "wrong"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 2), (5, 3)])
def test_whoever_differs_from_the_majority_stops_be_it_the_leader(
    masters: int, wrong: int, leader: int, seeds: str
) -> None:
    """The first `wrong` masters go astray."""
    those = [
        Process(
            Forgetful(0, seed=1 if seeds == "alike" else number) if number < wrong else None,
            session=f"m{number}",
        ).audited()
        for number in range(masters)
    ]
    meet(those, leader)
    for each in those:
        each.judge()
    stopped = {number for number, each in enumerate(those) if each.errors}
    astray = set(range(wrong))
    largest = wrong if seeds == "alike" else 1
    if masters - wrong > largest or (masters - wrong == largest and leader >= wrong):
        assert stopped == astray
    elif masters - wrong == largest:
        assert stopped == (set(range(masters)) - {leader} if largest == 1 else set(range(wrong, masters)))
    elif largest > masters - wrong:
        assert stopped == set(range(wrong, masters))
    for number in stopped:
        (error,) = those[number].errors
        assert isinstance(error, ReplicaDiverged)
        assert ("although it leads the dispatcher" in str(error)) is (number == leader)


@pytest.mark.parametrize("interval", [1, 2, 3, 5])
def test_masters_that_only_hash_come_to_an_end(interval: int) -> None:
    those = [Process(interval=interval, session=f"m{number}").audited() for number in range(3)]
    log = meet(those, 0, rounds=200, events=12)
    assert not isinstance(log[-1].body, StateHash) or len(log) < 100
    assert [each.said for each in those] == [[], [], []]


def meet(
    those: Sequence[Process], leader: int, rounds: int = 3 * INTERVAL, events: int | None = None
) -> list[Record]:
    """All fold one log, `events` of a history or until they differ; what each tells of itself is in it."""
    whole: list[Record] = []
    records = iter(history(LONG)[:events])
    while len(whole) < rounds and not all(each.to_judge for each in those):
        told = [(number, owed) for number, each in enumerate(those) for owed in each.said]
        for each in those:
            each.said.clear()
        if told:
            said = [
                with_headers(
                    [owed],
                    cluster="c",
                    sender="dispatcher" if number == leader else f"standby/m{number}",
                    epoch=those[0].replica.leadership.epoch("dispatcher") if number == leader else 0,
                    decided_at=len(whole) - 1,
                    now=1,
                    numbers=itertools.count(len(whole)),
                )[0]
                for number, owed in told
            ]
        else:
            record = next(records, None)
            if record is None:
                break
            said = [Event(record.header, record.body)]
        for event in said:
            body = event.body
            if isinstance(body, LeaderElected):
                body = replace(body, session=f"m{leader}")
            whole.append(Record(len(whole), event.header, body))
            for each in those:
                each.replica.apply(whole[-1])
    return whole


def test_hashes_of_other_code_are_not_compared(log: Sequence[Record]) -> None:
    def other(body: StateHash) -> StateHash:
        return replace(body, code_fingerprint="0" * 16)

    fold(Process(Forgetful(0)).audited(), changed(log, other))


def test_hashes_of_a_deposed_leader_are_not_compared(log: Sequence[Record]) -> None:
    old = [
        replace(each, header=replace(each.header, sender_epoch=99))
        if isinstance(each.body, StateHash)
        else each
        for each in log
    ]
    fold(Process(Forgetful(0)).audited(), old)


def test_what_it_did_not_hash_itself_it_does_not_compare(log: Sequence[Record]) -> None:
    fold(Process(Forgetful(0), interval=0).audited(), log)


def fold(process: Process, log: Sequence[Record]) -> None:
    for record in log:
        process.replica.apply(record)
        process.judge()
        if process.errors:
            raise process.errors[0]


def changed(log: Sequence[Record], change: Callable[[StateHash], Any]) -> list[Record]:
    return [
        replace(each, body=change(each.body)) if isinstance(each.body, StateHash) else each for each in log
    ]
