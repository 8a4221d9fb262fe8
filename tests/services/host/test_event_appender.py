"""A job whose JobMaster can't append its events fails; the process, other jobs and every successor continue."""

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
from tailrace.schemas.job_master import StartJob
from tailrace.schemas.types import JobGraph, JobStatus
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import AnyRole, Instruction, OutgoingEvent, Time, with_headers
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.history.replay.decision_check import DecisionCheck
from tailrace.services.host.event_appender import MAX_APPEND_BYTES, EventAppender
from tailrace.services.host.host import Host
from tailrace.services.host.job_failures import JobFailures
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import JobMasterState, NewJob
from tailrace.services.log.event_log import LARGEST_EVENT, EventRefused, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import Cluster, graph, start_cluster

LEADS = ("dispatcher", "resource_manager", "rest_server")
BAD, GOOD = "job_master/bad", "job_master/good"
TOO_LARGE = job_master.CancelJob(job_id="x" * LARGEST_EVENT)
UNFIT = job_master.CheckpointDiscarded(job_id="bad", checkpoint_id=1 << 70)


class Faulty(JobMaster):
    """A JobMaster with a bug that concerns job `bad`: while that job runs, or always."""

    def __init__(self, fault: str, *, always: bool) -> None:
        self._fault = fault
        self._always = always

    def _strikes(self, state: JobMasterState, fault: str) -> bool:
        is_bad = state.job_id == "bad" and not isinstance(state, NewJob)
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
    """Returns the log of a cluster in which two jobs run."""
    cluster = start_cluster("te", slots=2)
    for job_id in ("bad", "good"):
        cluster.submit(job_id, graph(1))
        cluster.settle()
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in cluster.log])
    return log


def everything(log: MemoryEventLog) -> list[Record]:
    return [record for batch in read_to_end(log) for record in batch]


def replica_with(job_masters: JobMaster) -> Replica:
    roles: list[AnyRole] = [Dispatcher(), ResourceManager(), TaskExecutor(), job_masters]
    return Replica(roles)


@contextmanager
def leading(log: MemoryEventLog, job_masters: JobMaster, name: str) -> Iterator[Host]:
    """Runs a master in a thread; checks that it lives until it is stopped."""
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


def answers_in(log: MemoryEventLog, wanted: Callable[[Record], bool]) -> list[Record]:
    return [record for record in everything(log) if wanted(record)]


@pytest.mark.parametrize("always", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("fault", ["decide", "too large", "unfit", "deadline", "instructions"])
def test_bug_in_one_job_fails_only_that_job(fault: str, always: bool) -> None:
    log = two_jobs()
    before = len(everything(log))
    with leading(log, Faulty(fault, always=always), "a") as host:
        wait_until(
            lambda: answers_in(log, lambda record: isinstance(record.body, job_master.JobMasterFailed)),
            "the job fails",
        )
        (finished,) = wait_until(
            lambda: answers_in(log, lambda entry: isinstance(entry.body, client.JobFinished)),
            "the client is told",
        )
        body = finished.body
        assert isinstance(body, client.JobFinished)
        assert (body.job_id, body.status) == ("bad", JobStatus.FAILED)
        assert (body.reason or "").startswith("its JobMaster failed: ")
        parting = {type(record.body) for record in answers_in(log, lambda item: item.header.sender == BAD)}
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
    """Checks that the other job is cancelled and that its JobMaster sends its events."""
    assert host.leading.wait(TIMEOUT_S)
    host.emit("dispatcher", OutgoingEvent(GOOD, job_master.CancelJob(job_id="good"), None))
    wait_until(
        lambda: answers_in(
            log,
            lambda record: (
                record.header.sender == GOOD
                and record.body
                == client.JobStatusChanged(
                    job_id="good", old_status=JobStatus.RUNNING, status=JobStatus.CANCELLING
                )
            ),
        ),
        "the other job is cancelled",
    )


def test_oversized_event_of_shell_fails_its_job() -> None:
    log = two_jobs()
    with leading(log, JobMaster(), "a") as host:
        assert host.leading.wait(TIMEOUT_S)
        host.emit(BAD, OutgoingEvent(BAD, TOO_LARGE, None))
        wait_until(
            lambda: answers_in(log, lambda record: isinstance(record.body, client.JobFinished)),
            "the client is told",
        )
        check_others_go_on(log, host)


def test_large_graphs_of_many_jobs_are_sent_in_several_steps() -> None:
    """The check of decisions accepts a step that was split."""
    head = operator("s", OperatorKind.GENERATOR)
    large = replace(head, code=b"x" * (MAX_APPEND_BYTES // 3))
    job_graph = JobGraph(
        name="g",
        vertices=(vertex("v", large, operator("p", OperatorKind.PRINT, upstream="s")),),
        edges=(),
        configuration={},
        python_files=(),
    )
    cluster = Cluster()
    cluster.start_master()
    for name in "abcd":
        cluster.submit(name, job_graph)
    log = MemoryEventLog()
    log.append([Event(record.header, record.body) for record in cluster.log])
    with leading(log, JobMaster(), "a"):
        starts = wait_until(
            lambda: (
                records
                if len(records := answers_in(log, lambda record: isinstance(record.body, StartJob))) == 4
                else None
            ),
            "all are started",
        )
    assert len({start.header.decided_at for start in starts}) > 1
    replica, records = replica_with(JobMaster()), everything(log)
    for record in records[: len(cluster.log)]:
        replica.apply(record)
    check = DecisionCheck(replica)
    assert check.check_all(records[len(cluster.log) :]) == []
    assert check.counts.decided >= len(starts)


def events_of(sender: str, *bodies: job_master.SuspendJob) -> list[Event]:
    owed = [OutgoingEvent(sender, body, None) for body in bodies]
    return with_headers(
        owed, cluster="c", sender=sender, epoch=1, decided_at=0, now=0, numbers=itertools.count()
    )


def test_one_step_appends_a_few_mib_and_leaves_the_rest() -> None:
    log = MemoryEventLog()
    appender = EventAppender(log, lambda role, error: events_of(role))
    body = job_master.SuspendJob(job_id="x" * (MAX_APPEND_BYTES // 4), reason="")
    events = events_of(GOOD, *[body] * 5) + events_of(BAD, body)
    offsets, rest = appender.append_some(events)
    assert len(offsets) == len(everything(log)) == 3
    assert rest == [GOOD, BAD]
    offsets, rest = appender.append_some(events[3:])
    assert (len(offsets), rest) == (3, [])


def test_error_in_other_role_ends_process() -> None:
    log = MemoryEventLog()
    failures = JobFailures(lambda role: None)
    appender = EventAppender(log, lambda role, error: failures.events_of(role, error) and [])
    body = job_master.SuspendJob(job_id="x" * LARGEST_EVENT, reason="")
    with pytest.raises(EventRefused, match=r"SuspendJob has 16,"):
        appender.append_some([*events_of(GOOD, body), *events_of("dispatcher", body)])
    assert everything(log) == []
