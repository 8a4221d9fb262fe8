"""Hosts that lead by mandates: they take up, step down, stand by, and take up again, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from polling import TIMEOUT_S, wait_until

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ConfigurationChanged, LeaderElected
from tailrace.schemas.job_master import StartJob
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Instruction, OutgoingEvent, kind_of
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.heartbeats.resource_manager import workers_in_grace
from tailrace.services.host.election_participant import StaleElectionEpoch
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager

from ..scripted_election import GivenMandates
from ..simulated_cluster.cluster import graph, header, replay_to_replica
from .test_host import WORKER, everything, is_answer, registers, wait_for

ROLES = ("dispatcher", "resource_manager")
WORD = LeaderElected(role="nobody", epoch=1, address="nobody", session="nobody")
"""Something to say."""
JOB = "job_master/j1"


class Shells:
    """One for all kinds of role: remembers which addresses it was told of, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self.told.append(("perform", role_address))

    def retire(self, role_address: str) -> None:
        self.told.append(("retire", role_address))

    def close(self) -> None: ...


@dataclass
class Master:
    """A jobmanager without a world around it, in a thread of its own."""

    log: MemoryEventLog
    name: str
    mandates: GivenMandates = field(default_factory=GivenMandates)
    shells: Shells = field(default_factory=Shells)
    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[Exception] = field(default_factory=list)
    finished: Callable[[Replica], bool] = lambda _: False
    rounds: int = 0
    """So many times it has begun to go round."""

    def __post_init__(self) -> None:
        self.replica = Replica([Dispatcher(), ResourceManager(), JobMaster()], on_illegal=lambda *_: None)
        self.host = Host(
            self.log,
            self.replica,
            cluster="c",
            leads=ROLES,
            process_address=self.name,
            session=self.name,
            election=self.mandates,
            endpoints={"blob": f"{self.name}:1"},
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        shells = dict.fromkeys(("dispatcher", "resource_manager", "job_master"), self.shells)
        try:
            self.host.run(self.stop, shells, self._goes_round)
        except Exception as error:
            self.errors.append(error)

    def _goes_round(self, replica: Replica) -> bool:
        self.rounds += 1
        return self.finished(replica)

    def leads(self, role: str) -> bool:
        return bool(self.host.with_headers(role, [OutgoingEvent(EVERYONE, WORD, None)]))


@pytest.fixture
def log() -> MemoryEventLog:
    return MemoryEventLog()


@pytest.fixture
def start(log: MemoryEventLog) -> Iterator[Callable[..., Master]]:
    """Starts masters, and stops those that still run when the test is over."""
    started: list[Master] = []

    def run(name: str, **more: object) -> Master:
        started.append(Master(log, name, **more))  # type: ignore[arg-type]
        return started[-1]

    yield run
    for master in started:
        master.stop.set()
    for master in started:
        master.thread.join(TIMEOUT_S)
        assert not master.thread.is_alive(), "the host does not stop"
        master.host.close()


def submits(log: MemoryEventLog, job_id: str = "j1") -> None:
    """A client's request, admitted."""
    body = dispatcher.SubmitJob(job_id=job_id, job_graph=graph())
    log.append([Event(header("client/x", "dispatcher"), body)])


def claims(log: MemoryEventLog, role: str) -> list[tuple[int, str]]:
    return [
        (each.body.epoch, each.body.session)
        for each in everything(log)
        if isinstance(each.body, LeaderElected) and each.body.role == role
    ]


def passed(log: MemoryEventLog, master: Master) -> None:
    """Waits until the master has read all that there is, and gone round once more."""
    end = log.end() - 1
    wait_until(lambda: master.replica.offset >= end)
    begun = master.rounds
    wait_until(lambda: master.rounds > begun + 1)


def test_a_standby_reads_and_says_nothing(log: MemoryEventLog, start: Callable[..., Master]) -> None:
    master = start("a")
    registers(log)
    passed(log, master)
    assert len(everything(log)) == 1
    assert master.shells.told == []
    assert master.mandates.stands.keys() == set(ROLES)
    assert not master.host.leads_any()


def test_a_mandate_is_claimed_under_its_epoch_then_its_owner_decides_and_is_confirmed(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    master = start("a")
    registers(log)
    master.mandates.give("resource_manager", epoch=17)
    (answer,) = wait_for(log, is_answer)
    assert answer.header.sender_epoch == 17
    (claim,) = [each.body for each in everything(log) if isinstance(each.body, LeaderElected)]
    assert (claim.role, claim.epoch, claim.session, claim.endpoints, claim.elected_by) == (
        "resource_manager",
        17,
        "a",
        {"blob": "a:1"},
        "a test",
    )
    assert master.mandates.confirmed == {"resource_manager": 17}
    assert not master.host.leading.is_set()
    master.mandates.give("dispatcher", epoch=18)
    assert master.host.leading.wait(TIMEOUT_S)


def test_who_loses_a_mandate_says_nothing_more_of_that_role_and_may_be_given_it_again(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    registers(log)
    wait_for(log, is_answer)
    first.mandates.take("resource_manager")
    wait_until(lambda: ("retire", "resource_manager") in first.shells.told)
    assert first.leads("dispatcher")
    first.host.emit("resource_manager", OutgoingEvent(EVERYONE, WORD, None))
    assert first.host.with_headers("resource_manager", [OutgoingEvent(EVERYONE, WORD, None)]) == []
    second.mandates.give("resource_manager", epoch=5)
    registers(log)
    answers = wait_for(log, is_answer, 2)
    assert [each.header.sender_epoch for each in answers] == [1, 5]
    second.mandates.take()
    wait_until(lambda: not second.host.leads_any())
    first.mandates.give("resource_manager", epoch=9)
    registers(log)
    answers = wait_for(log, is_answer, 3)
    assert answers[-1].header.sender_epoch == 9
    assert claims(log, "resource_manager") == [(1, "a"), (5, "b"), (9, "a")]
    told = [what for what, address in first.shells.told if address == "resource_manager"]
    again = told.index("retire") + 1
    assert "perform" in told[:again]
    assert "perform" in told[again:]
    assert first.thread.is_alive()
    assert second.thread.is_alive()


def test_of_two_that_were_given_the_same_the_one_with_the_later_election_leads(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    second.mandates.give(*ROLES, epoch=2)
    assert second.host.leading.wait(TIMEOUT_S)
    wait_until(lambda: not first.host.leads_any())
    # It goes on as a standby, and stands anew.
    wait_until(lambda: set(first.mandates.stands.values()) == {2})
    assert claims(log, "dispatcher") == [(1, "a"), (2, "b")]
    registers(log)
    wait_for(log, is_answer)
    assert first.thread.is_alive()
    assert first.errors == []


def test_a_mandate_that_came_too_late_is_not_claimed(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    late = start("a")
    wait_until(lambda: late.mandates.stands.keys() == set(ROLES))
    leader = start("b")
    leader.mandates.give(*ROLES, epoch=9)
    assert leader.host.leading.wait(TIMEOUT_S)
    passed(log, late)
    late.mandates.give(*ROLES, epoch=8)
    wait_until(lambda: set(late.mandates.stands.values()) == {2})
    assert claims(log, "dispatcher") == [(9, "b")]
    late.mandates.give(*ROLES, epoch=10)
    assert late.host.leading.wait(TIMEOUT_S)


def test_a_mandate_below_what_the_log_had_when_it_was_stood_for_is_of_another_time(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    before = start("a")
    before.mandates.give(*ROLES, epoch=4711)
    assert before.host.leading.wait(TIMEOUT_S)
    before.stop.set()
    before.thread.join(TIMEOUT_S)
    after = start("b")
    after.mandates.give(*ROLES, epoch=3)
    after.thread.join(TIMEOUT_S)
    (error,) = after.errors
    assert isinstance(error, StaleElectionEpoch)
    assert "high-availability.zookeeper.base-epoch to 4711 or more" in str(error)
    assert "\n" not in str(error)


def test_while_mandates_are_suspended_nothing_is_decided_and_everything_kept(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    master = start("a")
    master.mandates.give(*ROLES, epoch=1)
    assert master.host.leading.wait(TIMEOUT_S)
    master.mandates.suspended = True
    master.mandates.give("rest_server", epoch=2)
    registers(log)
    passed(log, master)
    assert not [each for each in everything(log) if is_answer(each)]
    assert master.leads("dispatcher")
    assert ("retire", "resource_manager") not in master.shells.told
    # What befell the world is said all the same.
    master.host.emit("resource_manager", OutgoingEvent("client/x", WORD, None))
    wait_for(log, lambda record: record.body == WORD)
    master.mandates.suspended = False
    (answer,) = wait_for(log, is_answer)
    assert answer.header.sender_epoch == 1


def test_who_leads_jobs_alone_knows_for_whom_the_resource_manager_waits(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    grace = ConfigurationChanged(configuration={"taskmanager.restart-grace": "1 h"})
    log.append([Event(header("client/x", EVERYONE), grace)])
    registers(log)
    (answer,) = wait_for(log, is_answer)
    assert isinstance(answer.body, task_executor.TaskExecutorRegistrationSuccess)
    ended = resource_manager.WorkerLost(
        resource_id="te-1", instance_id=answer.body.instance_id, exited=True, reason="killed"
    )
    first.host.emit("resource_manager", OutgoingEvent("resource_manager", ended, None))
    wait_until(lambda: [waited_for(each) for each in (first, second)] == [{"te-1"}] * 2)
    registers(log)
    wait_for(log, is_answer, 2)
    wait_until(lambda: [waited_for(each) for each in (first, second)] == [set()] * 2)


def waited_for(master: Master) -> frozenset[str]:
    return workers_in_grace(master.host.state("resource_manager"))


def test_a_job_is_led_by_whoever_leads_the_dispatcher_until_it_is_claimed(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    submits(log)
    wait_for(log, said_by(JOB, 1))
    # The latch is for the leader alone, for as long as it leads the Dispatcher, and not at once.
    wait_until(lambda: JOB in first.mandates.stands)
    passed(log, second)
    assert JOB not in second.mandates.stands
    assert claims(log, JOB) == []
    first.mandates.give(JOB, epoch=2)
    wait_until(lambda: first.mandates.confirmed.get(JOB) == 1)
    second.mandates.give("dispatcher", epoch=3)
    wait_until(lambda: second.leads(JOB))
    wait_until(lambda: ("retire", JOB) in first.shells.told)
    wait_until(lambda: JOB in second.mandates.stands)
    assert not first.leads(JOB)
    assert claims(log, JOB) == []
    # Its mandate for the job is of before that: it stands anew, and takes the job with a later one.
    wait_until(lambda: first.mandates.stands.get(JOB) == 2)
    first.mandates.give(JOB, epoch=4)
    wait_until(lambda: first.leads(JOB))
    wait_until(lambda: ("retire", JOB) in second.shells.told)
    assert claims(log, JOB) == [(4, "a")]
    assert second.leads("dispatcher")
    assert not second.leads(JOB)


def test_all_jobs_are_taken_over_with_the_dispatcher_and_no_word_more(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    for number in range(20):
        submits(log, f"j{number}")
    wait_for(log, lambda record: isinstance(record.body, StartJob), 20)
    first.stop.set()
    first.thread.join(TIMEOUT_S)
    second.mandates.give(*ROLES, epoch=5)
    wait_until(lambda: all(second.leads(f"job_master/j{number}") for number in range(20)))
    wait_until(lambda: len({each for _, each in second.shells.told if kind_of(each) == "job_master"}) == 20)
    assert [each.body.role for each in everything(log) if isinstance(each.body, LeaderElected)] == [
        *ROLES,
        *ROLES,
    ]


def test_a_job_that_has_ended_is_stood_for_no_more(log: MemoryEventLog, start: Callable[..., Master]) -> None:
    leader, other = start("a"), start("b")
    leader.mandates.give(*ROLES, epoch=1)
    assert leader.host.leading.wait(TIMEOUT_S)
    submits(log)
    wait_until(lambda: JOB in leader.mandates.stands)
    other.mandates.give(JOB, epoch=2)
    passed(log, other)
    # It does not stand for it: the job is the leader's.
    assert not other.leads(JOB)
    leader.mandates.give(JOB, epoch=2)
    ends(log, leader)
    wait_until(lambda: leader.mandates.for_ever == [JOB])
    assert JOB not in leader.mandates.stands
    assert other.mandates.for_ever == []


def test_what_a_deposed_leader_still_says_is_ignored_by_all(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first = start("a")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    (late,) = first.host.with_headers("resource_manager", [OutgoingEvent(EVERYONE, WORD, None)])
    second = start("b")
    second.mandates.give(*ROLES, epoch=2)
    assert second.host.leading.wait(TIMEOUT_S)
    log.append([late])
    records = everything(log)
    assert replay_to_replica(records).states == replay_to_replica(records[:-1]).states
    assert not replay_to_replica(records[:-1]).leadership.accepts(records[-1])


def test_all_end_with_the_cluster_and_who_starts_behind_its_end_waits_for_a_leader(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    over = [True]
    old = start("a", finished=lambda _: over[0])
    passed(log, old)
    assert old.thread.is_alive()
    over[0] = False
    passed(log, old)
    over[0] = True
    old.thread.join(TIMEOUT_S)
    assert not old.thread.is_alive()
    assert old.errors == []


def said_by(sender: str, epoch: int) -> Callable[[Record], bool]:
    return lambda record: record.header.sender == sender and record.header.sender_epoch == epoch


def ends(log: MemoryEventLog, master: Master) -> None:
    """Job j1 is cancelled, and comes to rest."""
    log.append([Event(header("client/x", "dispatcher"), dispatcher.CancelJob(job_id="j1"))])
    master.host.emit(JOB, OutgoingEvent(JOB, job_master.ChannelsCreated(job_id="j1"), None))
    wait_for(log, lambda record: isinstance(record.body, dispatcher.JobReachedTerminalState))
    master.host.emit(JOB, OutgoingEvent(JOB, job_master.ChannelsDeleted(job_id="j1"), None))
    wait_until(lambda: not master.replica.is_active(JOB))


def comes_late(log: MemoryEventLog) -> None:
    """A TaskExecutor that believes that the job is there still."""
    late = job_master.RegisterTaskManager(job_id="j1", resource_id="te-1")
    log.append([Event(header(WORKER, JOB), late)])


def is_farewell(record: Record) -> bool:
    return isinstance(record.body, task_executor.DisconnectJobManager)


def test_whoever_asks_a_job_at_rest_is_answered_by_the_leader_of_the_dispatcher(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first = start("a")
    first.mandates.give(*ROLES, epoch=1)
    assert first.host.leading.wait(TIMEOUT_S)
    submits(log)
    wait_for(log, said_by(JOB, 1))
    ends(log, first)
    first.stop.set()
    first.thread.join(TIMEOUT_S)
    second = start("b")
    second.mandates.give(*ROLES, epoch=5)
    comes_late(log)
    (farewell,) = wait_for(log, is_farewell)
    assert (farewell.header.sender, farewell.header.sender_epoch) == (JOB, 5)


def test_a_job_at_rest_that_was_claimed_is_claimed_again_when_it_is_asked(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    leader, other = start("a"), start("b")
    leader.mandates.give(*ROLES, epoch=1)
    assert leader.host.leading.wait(TIMEOUT_S)
    submits(log)
    wait_until(lambda: JOB in leader.mandates.stands)
    log.append([claim_of(JOB, 2)])
    wait_until(lambda: other.mandates.stands.get(JOB) == 1)
    leader.mandates.give(JOB, epoch=3)
    wait_until(lambda: leader.leads(JOB))
    ends(log, leader)
    wait_until(lambda: leader.mandates.for_ever == [JOB])
    assert not leader.leads(JOB)
    wait_until(lambda: JOB not in other.mandates.stands)
    comes_late(log)
    wait_until(lambda: JOB in other.mandates.stands)
    other.mandates.give(JOB, epoch=7)
    (farewell,) = wait_for(log, is_farewell)
    assert farewell.header.sender_epoch == 7
    wait_until(lambda: other.mandates.for_ever == [JOB])
    assert not other.host.leads_any()


def claim_of(role: str, epoch: int) -> Event:
    """Of a master that dies at once."""
    body = LeaderElected(role=role, epoch=epoch, address="gone", session="gone")
    return Event(header(role, EVERYONE, epoch=epoch), body)
