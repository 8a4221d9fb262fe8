"""A job whose JobMaster can't say what it owes fails; the process, the other jobs and every successor go on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from graphs import operator, vertex
from msgspec.structs import replace
from polling import TIMEOUT_S, wait_until

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas import client, job_master, resource_manager, task_executor
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import JobGraph, JobStatus
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import AnyRole, Instruction, OutgoingEvent, Time, with_headers
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.history.replay.decision_check import DecisionCheck
from tailrace.services.host.event_appender import MAX_APPEND_BYTES, EventAppender
from tailrace.services.host.host import Host
from tailrace.services.host.job_failures import JobFailures
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import JobMasterState
from tailrace.services.log.event_log import LARGEST_EVENT, EventRefused, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import Cluster, graph

LEADS = ("dispatcher", "resource_manager", "rest_server")
BAD, GOOD = "job_master/bad", "job_master/good"
TOO_LARGE = job_master.CancelJob(job_id="x" * LARGEST_EVENT)
UNFIT = job_master.CheckpointDiscarded(job_id="bad", checkpoint_id=1 << 70)


class Faulty(JobMaster):
    """A JobMaster that has a fault where job `bad` is concerned, while that runs or for ever."""

    def __init__(self, fault: str, *, always: bool) -> None:
        self._fault = fault
        self._always = always

    def _strikes(self, state: JobMasterState, fault: str) -> bool:
        is_bad = state.job_id == "bad" and state.known
        return is_bad and fault == self._fault and (self._always or state.status is JobStatus.RUNNING)

    def decide(self, state: JobMasterState, now: Time) -> list[OutgoingEvent]:
        owed = super().decide(state, now)
        if self._strikes(state, "decide"):
            raise KeyError("v1")
        if self._strikes(state, "too large"):
            return [*owed, OutgoingEvent(BAD, TOO_LARGE, None)]
        return [*owed, OutgoingEvent(BAD, UNFIT, None)] if self._strikes(state, "unfit") else owed

    def deadline(self, state: JobMasterState) -> Time | None:
        if self._strikes(state, "deadline"):
            raise ValueError("no such time")
        return super().deadline(state)

    def instructions(self, state: JobMasterState) -> Sequence[Instruction]:
        if self._strikes(state, "instructions"):
            raise RuntimeError("not possible")
        return super().instructions(state)


def two_jobs() -> MemoryEventLog:
    """The log of a cluster in which two jobs run."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te", 2)
    cluster.settle()
    for job_id in ("bad", "good"):
        cluster.submit(job_id, graph(1))
        cluster.settle()
    log = MemoryEventLog()
    log.append([Event(each.header, each.body) for each in cluster.log])
    return log


def everything(log: MemoryEventLog) -> list[Record]:
    return [record for batch in read_to_end(log) for record in batch]


def replica_with(job_masters: JobMaster) -> Replica:
    roles: list[AnyRole] = [Dispatcher(), ResourceManager(), TaskExecutor(), job_masters]
    return Replica(roles)


@contextmanager
def leading(log: MemoryEventLog, job_masters: JobMaster, name: str) -> Iterator[Host]:
    """A master in a thread of its own; it has to live until it is told to stop."""
    host = Host(
        log,
        replica_with(job_masters),
        cluster="sim",
        leads=LEADS,
        process_address=name,
        session=name,
        clock=lambda: 2_000_000_000,
    )
    stop, errors = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            host.run(stop, {})
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield host
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
        host.close()
        assert not thread.is_alive()
    assert errors == []


def said(log: MemoryEventLog, wanted: Callable[[Record], bool]) -> list[Record]:
    return [each for each in everything(log) if wanted(each)]


@pytest.mark.parametrize("always", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("fault", ["decide", "too large", "unfit", "deadline", "instructions"])
def test_a_fault_in_one_job_fails_that_job(fault: str, always: bool) -> None:
    log = two_jobs()
    before = len(everything(log))
    with leading(log, Faulty(fault, always=always), "a") as host:
        wait_until(
            lambda: said(log, lambda each: isinstance(each.body, job_master.JobMasterFailed)), "the job fails"
        )
        (finished,) = wait_until(
            lambda: said(log, lambda each: isinstance(each.body, client.JobFinished)),
            "the client is told",
        )
        body = finished.body
        assert isinstance(body, client.JobFinished)
        assert (body.job_id, body.status) == ("bad", JobStatus.FAILED)
        assert (body.reason or "").startswith("its JobMaster failed: ")
        parting = {type(each.body) for each in said(log, lambda each: each.header.sender == BAD)}
        assert {resource_manager.DisconnectJobManager, task_executor.DisconnectJobManager} <= parting
        check_others_go_on(log, host)
    replica, records = replica_with(Faulty(fault, always=always)), everything(log)
    for record in records[:before]:
        replica.apply(record)
    assert DecisionCheck(replica).check_all(records[before:]) == []
    # Whoever comes next, with the fault or without it, reads the same.
    for name, job_masters in (("b", Faulty(fault, always=always)), ("c", JobMaster())):
        with leading(log, job_masters, name) as host:
            assert host.leading.wait(TIMEOUT_S)


def check_others_go_on(log: MemoryEventLog, host: Host) -> None:
    """The other job is cancelled, and its JobMaster says what it has to."""
    assert host.leading.wait(TIMEOUT_S)
    host.emit("dispatcher", OutgoingEvent(GOOD, job_master.CancelJob(job_id="good"), None))
    wait_until(
        lambda: said(
            log,
            lambda each: (
                each.header.sender == GOOD
                and each.body == client.JobStatusChanged(job_id="good", status=JobStatus.CANCELLING)
            ),
        ),
        "the other job is cancelled",
    )


def test_what_a_shell_says_of_a_job_and_does_not_fit_fails_that_job() -> None:
    log = two_jobs()
    with leading(log, JobMaster(), "a") as host:
        assert host.leading.wait(TIMEOUT_S)
        host.emit(BAD, OutgoingEvent(BAD, TOO_LARGE, None))
        wait_until(
            lambda: said(log, lambda each: isinstance(each.body, client.JobFinished)), "the client is told"
        )
        check_others_go_on(log, host)


def test_a_large_graph_goes_to_many_task_executors_in_several_turns() -> None:
    """And the audit of decisions takes a turn that was cut for what it is."""
    many = 4
    head = operator("s", OperatorKind.GENERATOR)
    large = replace(head, code=b"x" * (MAX_APPEND_BYTES // 3))
    job_graph = JobGraph(
        name="g",
        vertices=(
            replace(vertex("v", large, operator("p", OperatorKind.PRINT, upstream="s")), parallelism=many),
        ),
        edges=(),
        configuration={},
        python_files=(),
    )
    cluster = Cluster()
    cluster.start_master()
    for number in range(many):
        cluster.start_task_executor(f"te-{number}")
    cluster.settle()
    cluster.submit("good", job_graph)
    while not cluster.said("RequestSlot"):
        assert cluster.step()
    while len(cluster.said("RegisterTaskManager")) < many:
        assert cluster.step(but=GOOD)
    log = MemoryEventLog()
    log.append([Event(each.header, each.body) for each in cluster.log])
    with leading(log, JobMaster(), "a"):
        answers = wait_until(
            lambda: found if len(found := said(log, lambda each: is_welcome(each.body))) == many else None,
            "all are answered",
        )
    assert len({each.header.decided_at for each in answers}) > 1
    replica, records = replica_with(JobMaster()), everything(log)
    for record in records[: len(cluster.log)]:
        replica.apply(record)
    check = DecisionCheck(replica)
    assert check.check_all(records[len(cluster.log) :]) == []
    assert check.counts.decided >= many


def is_welcome(body: object) -> bool:
    return isinstance(body, task_executor.JobManagerRegistrationSuccess)


def events_of(sender: str, *bodies: job_master.SuspendJob) -> list[Event]:
    owed = [OutgoingEvent(sender, body, None) for body in bodies]
    return with_headers(
        owed, cluster="c", sender=sender, epoch=1, decided_at=0, now=0, numbers=itertools.count()
    )


def test_one_turn_says_a_few_mib_and_leaves_the_rest() -> None:
    log = MemoryEventLog()
    appender = EventAppender(log, lambda role, error: events_of(role))
    body = job_master.SuspendJob(job_id="x" * (MAX_APPEND_BYTES // 4), reason="")
    events = events_of(GOOD, *[body] * 5) + events_of(BAD, body)
    offsets, left = appender.append_some(events)
    assert len(offsets) == len(everything(log)) == 3
    assert left == [GOOD, BAD]
    offsets, left = appender.append_some(events[3:])
    assert (len(offsets), left) == (3, [])


def test_who_is_no_job_master_fails_with_its_process() -> None:
    log = MemoryEventLog()
    failures = JobFailures(lambda role: None)
    appender = EventAppender(log, lambda role, error: failures.events_of(role, error) and [])
    body = job_master.SuspendJob(job_id="x" * LARGEST_EVENT, reason="")
    with pytest.raises(EventRefused, match=r"SuspendJob has 16,"):
        appender.append_some([*events_of(GOOD, body), *events_of("dispatcher", body)])
    assert everything(log) == []
