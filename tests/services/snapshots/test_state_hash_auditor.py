"""State hashes: replicas that agree continue; one that disagrees stops and names the position."""

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
    """A role with a bug: its evolve uses a random number, so that sometimes a job gets another name."""

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
    """A master that folds a log and sends hashes when it leads."""

    def __init__(
        self, dispatcher: AnyRole | None = None, interval: int = INTERVAL, session: str = "me"
    ) -> None:
        roles: list[AnyRole] = [dispatcher or Dispatcher(), ResourceManager(), JobMaster()]
        self.replica = Replica(roles, on_illegal=lambda *_: None)
        self.sent: list[OutgoingEvent] = []
        self.judged: list[StateView] = []
        self.interval = interval
        self.session = session
        self.errors: list[Exception] = []
        self.to_judge: list[Callable[[], None]] = []

    def audited(self) -> Process:
        StateHashAuditor(
            self.replica,
            self.interval,
            me=self.session,
            say=self.sent.append,
            fail=self.errors.append,
            later=self.to_judge.append,
            keep=self._keep,
        )
        return self

    def judge(self) -> None:
        """Ends the time during which it waits for the others."""
        for function in self.to_judge:
            function()
        self.to_judge.clear()

    def _keep(self, known: StateView) -> str:
        self.judged.append(known)
        return "here.json"


def with_hashes(leader: Process, log: Sequence[Record]) -> list[Record]:
    """Returns the log with the leader's hashes a few events after each mark. Offsets are new."""
    whole: list[Record] = []
    waiting: list[tuple[int, OutgoingEvent]] = []
    for record in log:
        offset = len(whole)
        whole.append(Record(offset, record.header, record.body))
        leader.replica.apply(whole[-1])
        waiting += [(offset + 3, event) for event in leader.sent]
        leader.sent.clear()
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
            outgoing_event = Codec("x").decode(Codec("x").encode(event))
            whole.append(Record(len(whole), outgoing_event.header, outgoing_event.body))
            leader.replica.apply(whole[-1])
    return whole


def hashes_in(log: Sequence[Record]) -> list[StateHash]:
    return [record.body for record in log if isinstance(record.body, StateHash)]


@pytest.fixture(scope="module")
def log() -> list[Record]:
    return with_hashes(Process().audited(), history(LONG))


def test_hash_is_sent_after_each_multiple_of_interval(log: Sequence[Record]) -> None:
    state_hashes = hashes_in(log)
    assert len(state_hashes) > 4
    assert [state_hash.offset for state_hash in state_hashes] == [
        number * INTERVAL - 1 for number in range(1, len(state_hashes) + 1)
    ]
    for hash_ in state_hashes:
        replica = Process().replica
        for record in log[: hash_.offset + 1]:
            replica.apply(record)
        assert StateHasher(replica).hashes() == hash_.hashes


def test_agreeing_replicas_continue(log: Sequence[Record]) -> None:
    standby = Process().audited()
    for record in log:
        standby.replica.apply(record)
    assert standby.judged == []
    assert [event.body for event in standby.sent][: len(hashes_in(log))] == hashes_in(log)


def test_no_role_receives_hashes(log: Sequence[Record]) -> None:
    replica = Process().replica
    for record in log:
        changed = replica.apply(record)
        assert not isinstance(record.body, StateHash) or changed == []


@pytest.mark.parametrize("start", [1, INTERVAL - 1, INTERVAL, 2 * INTERVAL + 7])
def test_replica_recovered_from_snapshot_agrees(log: Sequence[Record], start: int) -> None:
    first = Process().replica
    for record in log[:start]:
        first.apply(record)
    _, data = pack(first, cluster="c", event_id="e", fingerprint="f", time=0)
    standby = Process()
    unpack(data, cluster="c", fingerprint="f").restore(standby.replica)
    standby.audited()
    for record in log[start:]:
        standby.replica.apply(record)
    expected = [state_hash for state_hash in hashes_in(log) if state_hash.offset >= start - 1]
    assert [event.body for event in standby.sent][: len(expected)] == expected


@pytest.mark.parametrize("since", [0, 2 * INTERVAL])
def test_nondeterministic_role_is_detected_at_next_mark(log: Sequence[Record], since: int) -> None:
    astray = Process(Forgetful(since)).audited()
    with pytest.raises(ReplicaDiverged) as caught:
        fold(astray, log)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(
        "the states of dispatcher in this process differ from those of sim, which leads the dispatcher"
    )
    (view,) = astray.judged
    assert view.offset >= since
    first = view.offset - INTERVAL + 1
    assert f"they diverged between offsets {first} and {view.offset}; its states are in here.json" in line
    truth = Process().replica
    for record in log[: view.offset + 1]:
        truth.apply(record)
    assert view.states["dispatcher"] != truth.states["dispatcher"]
    assert view.states["resource_manager"] == truth.states["resource_manager"]


def test_nondeterministic_leader_is_left_by_others() -> None:
    log = with_hashes(Process(Forgetful(0)).audited(), history(LONG))
    with pytest.raises(ReplicaDiverged, match="and there is no majority"):
        fold(Process().audited(), log)


@pytest.mark.parametrize("seeds", ["alike", "each otherwise"])
@pytest.mark.parametrize("leader", [0, 1])
@pytest.mark.parametrize(("masters", "wrong"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 2), (5, 3)])
def test_replica_that_differs_from_majority_stops_even_if_it_leads(
    masters: int, wrong: int, leader: int, seeds: str
) -> None:
    """The first `wrong` masters are nondeterministic."""
    those = [
        Process(
            Forgetful(0, seed=1 if seeds == "alike" else number) if number < wrong else None,
            session=f"m{number}",
        ).audited()
        for number in range(masters)
    ]
    meet(those, leader)
    for process in those:
        process.judge()
    stopped = {number for number, process in enumerate(those) if process.errors}
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
def test_masters_that_only_send_hashes_become_idle(interval: int) -> None:
    those = [Process(interval=interval, session=f"m{number}").audited() for number in range(3)]
    log = meet(those, 0, rounds=200, events=12)
    assert not isinstance(log[-1].body, StateHash) or len(log) < 100
    assert [process.sent for process in those] == [[], [], []]


def meet(
    those: Sequence[Process], leader: int, rounds: int = 3 * INTERVAL, events: int | None = None
) -> list[Record]:
    """Several masters fold one log, all `events` of a history or until they differ; the log has their hashes too."""
    whole: list[Record] = []
    records = iter(history(LONG)[:events])
    while len(whole) < rounds and not all(process.to_judge for process in those):
        # Nobody speaks for the Dispatcher before its first leader.
        is_led = those[0].replica.leadership.leader("dispatcher") is not None
        reports = [
            (number, owed)
            for number, process in enumerate(those)
            for owed in process.sent
            if is_led or number != leader
        ]
        for item in those:
            item.sent.clear()
        if reports:
            output = [
                with_headers(
                    [owed],
                    cluster="c",
                    sender="dispatcher" if number == leader else f"standby/m{number}",
                    epoch=those[0].replica.leadership.epoch("dispatcher") if number == leader else 0,
                    decided_at=len(whole) - 1,
                    now=1,
                    numbers=itertools.count(len(whole)),
                )[0]
                for number, owed in reports
            ]
        else:
            record = next(records, None)
            if record is None:
                break
            output = [Event(record.header, record.body)]
        for event in output:
            body = event.body
            if isinstance(body, LeaderElected):
                body = replace(body, session=f"m{leader}")
            whole.append(Record(len(whole), event.header, body))
            for item in those:
                item.replica.apply(whole[-1])
    return whole


def test_hashes_of_other_code_are_not_compared(log: Sequence[Record]) -> None:
    def other(body: StateHash) -> StateHash:
        return replace(body, code_fingerprint="0" * 16)

    fold(Process(Forgetful(0)).audited(), changed(log, other))


def test_hashes_of_deposed_leader_are_not_compared(log: Sequence[Record]) -> None:
    old = [
        replace(record, header=replace(record.header, sender_epoch=99))
        if isinstance(record.body, StateHash)
        else record
        for record in log
    ]
    fold(Process(Forgetful(0)).audited(), old)


def test_hash_that_replica_did_not_compute_is_not_compared(log: Sequence[Record]) -> None:
    fold(Process(Forgetful(0), interval=0).audited(), log)


def fold(process: Process, log: Sequence[Record]) -> None:
    for record in log:
        process.replica.apply(record)
        process.judge()
        if process.errors:
            raise process.errors[0]


def changed(log: Sequence[Record], change: Callable[[StateHash], Any]) -> list[Record]:
    return [
        replace(record, body=change(record.body)) if isinstance(record.body, StateHash) else record
        for record in log
    ]
