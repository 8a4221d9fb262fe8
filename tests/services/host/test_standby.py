"""Hosts with elected leadership: they take over, step down, stand by, and take over again, in one process."""

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
from tailrace.services.host.grant_check import StaleElectionEpoch
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager

from ..scripted_election import ScriptedElection
from ..simulated_cluster.cluster import graph, header, replay_to_replica
from .test_host import WORKER, everything, is_answer, registers, task_executor_sends, wait_for

ROLES = ("dispatcher", "resource_manager")
WORD = LeaderElected(role="nobody", epoch=1, address="nobody", session="nobody")
"""Something to say."""
JOB = "job_master/j1"


class Shells:
    """One shell for all kinds of role: records the addresses of its instructions in order."""

    def __init__(self) -> None:
        self.addresses: list[tuple[str, str]] = []

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self.addresses.append(("perform", role_address))

    def retire(self, role_address: str) -> None:
        self.addresses.append(("retire", role_address))

    def close(self) -> None: ...


@dataclass
class Master:
    """A jobmanager without a cluster, in a thread of its own."""

    log: MemoryEventLog
    name: str
    election: ScriptedElection = field(default_factory=ScriptedElection)
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
            election=self.election,
            endpoints={"blob": f"{self.name}:1"},
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        shells = dict.fromkeys(("dispatcher", "resource_manager", "job_master"), self.shells)
        try:
            self.host.run(self.stop, shells, self._has_polled)
        except Exception as error:
            self.errors.append(error)

    def _has_polled(self, replica: Replica) -> bool:
        self.rounds += 1
        return self.finished(replica)

    def leads(self, role: str) -> bool:
        return bool(self.host.with_headers(role, [OutgoingEvent(EVERYONE, WORD, None)]))


@pytest.fixture
def log() -> MemoryEventLog:
    return MemoryEventLog()


@pytest.fixture
def start(log: MemoryEventLog) -> Iterator[Callable[..., Master]]:
    """Starts masters, and stops at the end of the test those that still run."""
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
    """Appends a client's request, admitted."""
    body = dispatcher.SubmitJob(job_id=job_id, job_graph=graph())
    log.append([Event(header("client/x", "dispatcher"), body)])


def claims(log: MemoryEventLog, role: str) -> list[tuple[int, str]]:
    return [
        (record.body.epoch, record.body.session)
        for record in everything(log)
        if isinstance(record.body, LeaderElected) and record.body.role == role
    ]


def passed(log: MemoryEventLog, master: Master) -> None:
    """Waits until the master has read the whole log and run one more step."""
    end = log.end() - 1
    wait_until(lambda: master.replica.offset >= end)
    start_round = master.rounds
    wait_until(lambda: master.rounds > start_round + 1)


def test_standby_reads_and_appends_nothing(log: MemoryEventLog, start: Callable[..., Master]) -> None:
    master = start("a")
    registers(log)
    passed(log, master)
    assert [record for record in everything(log) if record.header.sender != WORKER] == []
    assert master.shells.addresses == []
    assert master.election.joined == 1
    assert not master.host.leading.is_set()


def test_all_roles_are_claimed_with_epoch_of_grant_then_master_decides_and_confirms(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    master = start("a")
    registers(log)
    master.election.give(17)
    (answer,) = wait_for(log, is_answer)
    assert answer.header.sender_epoch == 17
    claims = [record.body for record in everything(log) if isinstance(record.body, LeaderElected)]
    found = [claim for claim in claims if claim.role != WORKER]
    assert [claim.role for claim in found] == list(ROLES)
    for claim in found:
        assert (claim.epoch, claim.session, claim.endpoints, claim.elected_by) == (
            17,
            "a",
            {"blob": "a:1"},
            "zookeeper",
        )
    assert master.election.confirmed == 17
    assert master.host.leading.is_set()


def test_master_that_loses_grant_stops_deciding_and_can_be_granted_again(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    registers(log)
    wait_for(log, is_answer)
    first.election.take()
    for role in ROLES:
        wait_until(lambda: ("retire", role) in first.shells.addresses)  # noqa: B023
        first.host.emit(role, OutgoingEvent(EVERYONE, WORD, None))
        assert not first.leads(role)
    second.election.give(5)
    registers(log)
    answers = wait_for(log, is_answer, 2)
    assert [answer.header.sender_epoch for answer in answers] == [1, 5]
    second.election.take()
    wait_until(lambda: not second.host.leading.is_set())
    first.election.give(9)
    registers(log)
    answers = wait_for(log, is_answer, 3)
    assert answers[-1].header.sender_epoch == 9
    for role in ROLES:
        assert claims(log, role) == [(1, "a"), (5, "b"), (9, "a")]
        reports = [what for what, address in first.shells.addresses if address == role]
        again = reports.index("retire") + 1
        assert "perform" in reports[:again]
        assert "perform" in reports[again:]
    assert first.thread.is_alive()
    assert second.thread.is_alive()


def test_master_leads_after_it_has_claimed_all_roles(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    """A leader died between its claims: the roles have different epochs."""
    log.append([claim_of(ROLES[0], 7)])
    master = start("a")
    wait_until(lambda: master.election.joined == 1)
    master.election.give(8)
    assert master.host.leading.wait(TIMEOUT_S)
    assert claims(log, ROLES[0]) == [(7, "gone"), (8, "a")]
    assert claims(log, ROLES[1]) == [(8, "a")]


@pytest.mark.parametrize("role", ROLES)
def test_claim_of_one_role_by_another_process_ends_whole_term(
    role: str, log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    master = start("a")
    master.election.give(1)
    assert master.host.leading.wait(TIMEOUT_S)
    log.append([claim_of(role, 2)])
    wait_until(lambda: master.election.joined == 2)
    assert not any(master.leads(led) for led in ROLES)
    master.election.give(3)
    wait_until(lambda: claims(log, ROLES[0])[-1] == (3, "a"))
    assert master.host.leading.wait(TIMEOUT_S)
    assert master.errors == []


def test_later_election_leads_if_two_masters_have_grants(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    second.election.give(2)
    assert second.host.leading.wait(TIMEOUT_S)
    # It goes on as a standby, and joins again.
    wait_until(lambda: first.election.joined == 2)
    assert not any(first.leads(role) for role in ROLES)
    assert claims(log, "dispatcher") == [(1, "a"), (2, "b")]
    registers(log)
    wait_for(log, is_answer)
    assert first.thread.is_alive()
    assert first.errors == []


def test_late_grant_is_not_claimed(log: MemoryEventLog, start: Callable[..., Master]) -> None:
    late = start("a")
    wait_until(lambda: late.election.joined == 1)
    leader = start("b")
    leader.election.give(9)
    assert leader.host.leading.wait(TIMEOUT_S)
    passed(log, late)
    late.election.give(8)
    wait_until(lambda: late.election.joined == 2)
    assert claims(log, "dispatcher") == [(9, "b")]
    late.election.give(10)
    assert late.host.leading.wait(TIMEOUT_S)


def test_grant_below_epoch_of_log_at_join_is_stale(log: MemoryEventLog, start: Callable[..., Master]) -> None:
    before = start("a")
    before.election.give(4711)
    assert before.host.leading.wait(TIMEOUT_S)
    before.stop.set()
    before.thread.join(TIMEOUT_S)
    after = start("b")
    after.election.give(3)
    after.thread.join(TIMEOUT_S)
    (error,) = after.errors
    assert isinstance(error, StaleElectionEpoch)
    assert "high-availability.zookeeper.base-epoch to 4711 or more" in str(error)
    assert "\n" not in str(error)


def test_suspended_election_stops_decisions_and_keeps_state(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    master = start("a")
    master.election.give(1)
    assert master.host.leading.wait(TIMEOUT_S)
    master.election.is_suspended = True
    registers(log)
    passed(log, master)
    assert not [record for record in everything(log) if is_answer(record)]
    assert master.leads("dispatcher")
    assert ("retire", "resource_manager") not in master.shells.addresses
    # What befell the world is said all the same.
    master.host.emit("resource_manager", OutgoingEvent("client/x", WORD, None))
    wait_for(log, lambda record: record.body == WORD)
    master.election.is_suspended = False
    (answer,) = wait_for(log, is_answer)
    assert answer.header.sender_epoch == 1


def test_every_master_knows_whom_resource_manager_waits_for(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    grace = ConfigurationChanged(configuration={"taskmanager.restart-grace": "1 h"})
    log.append([Event(header("dispatcher", EVERYONE, epoch=1), grace)])
    registers(log)
    (answer,) = wait_for(log, is_answer)
    assert isinstance(answer.body, task_executor.TaskExecutorRegistrationSuccess)
    ended = resource_manager.WorkerLost(
        resource_id="te-1", instance_id=answer.body.instance_id, exited=True, reason="killed"
    )
    first.host.emit("resource_manager", OutgoingEvent("resource_manager", ended, None))
    wait_until(lambda: [waited_for(master) for master in (first, second)] == [{"te-1"}] * 2)
    registers(log)
    wait_for(log, is_answer, 2)
    wait_until(lambda: [waited_for(master) for master in (first, second)] == [set()] * 2)


def waited_for(master: Master) -> frozenset[str]:
    return workers_in_grace(master.host.state("resource_manager"))


def test_failover_of_dispatcher_includes_jobs_without_further_events(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first, second = start("a"), start("b")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    for number in range(20):
        submits(log, f"j{number}")
    wait_for(log, lambda record: isinstance(record.body, StartJob), 20)
    first.stop.set()
    first.thread.join(TIMEOUT_S)
    second.election.give(5)
    wait_until(lambda: all(second.leads(f"job_master/j{number}") for number in range(20)))
    wait_until(
        lambda: len({item for _, item in second.shells.addresses if kind_of(item) == "job_master"}) == 20
    )
    assert [record.body.role for record in everything(log) if isinstance(record.body, LeaderElected)] == [
        *ROLES,
        *ROLES,
    ]


def test_events_of_deposed_leader_are_ignored_by_all(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first = start("a")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    (late,) = first.host.with_headers("resource_manager", [OutgoingEvent(EVERYONE, WORD, None)])
    second = start("b")
    second.election.give(2)
    assert second.host.leading.wait(TIMEOUT_S)
    log.append([late])
    records = everything(log)
    assert replay_to_replica(records).states == replay_to_replica(records[:-1]).states
    assert not replay_to_replica(records[:-1]).leadership.accepts(records[-1])


def test_all_masters_end_with_cluster_and_later_one_waits_for_leader(
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


def events_by(sender: str, epoch: int) -> Callable[[Record], bool]:
    return lambda record: record.header.sender == sender and record.header.sender_epoch == epoch


def ends(log: MemoryEventLog, master: Master) -> None:
    """Cancels job j1, and waits until it is quiescent."""
    log.append([Event(header("client/x", "dispatcher"), dispatcher.CancelJob(job_id="j1"))])
    master.host.emit(JOB, OutgoingEvent(JOB, job_master.ChannelsCreated(job_id="j1"), None))
    wait_for(log, lambda record: isinstance(record.body, dispatcher.JobReachedTerminalState))
    master.host.emit(JOB, OutgoingEvent(JOB, job_master.ChannelsDeleted(job_id="j1"), None))
    wait_until(lambda: not master.replica.is_active(JOB))


def send_late_registration(log: MemoryEventLog) -> None:
    """Appends the registration of a TaskExecutor that believes that the job still exists."""
    late = job_master.RegisterTaskManager(job_id="j1", resource_id="te-1")
    task_executor_sends(log, late, JOB)


def is_farewell(record: Record) -> bool:
    return isinstance(record.body, task_executor.DisconnectJobManager)


def test_dispatcher_leader_answers_for_quiescent_job(
    log: MemoryEventLog, start: Callable[..., Master]
) -> None:
    first = start("a")
    first.election.give(1)
    assert first.host.leading.wait(TIMEOUT_S)
    submits(log)
    wait_for(log, events_by(JOB, 1))
    ends(log, first)
    first.stop.set()
    first.thread.join(TIMEOUT_S)
    second = start("b")
    second.election.give(5)
    send_late_registration(log)
    (farewell,) = wait_for(log, is_farewell)
    assert (farewell.header.sender, farewell.header.sender_epoch) == (JOB, 5)


def claim_of(role: str, epoch: int) -> Event:
    """Appends the claim of a master that dies at once."""
    body = LeaderElected(role=role, epoch=epoch, address="gone", session="gone")
    return Event(header(role, EVERYONE, epoch=epoch), body)
