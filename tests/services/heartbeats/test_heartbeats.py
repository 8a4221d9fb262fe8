"""Heartbeats between real participants, over the in-memory topic and over Kafka's contract: silence is detected, and
so are reports that contradict the log. The test controls the time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.schemas import job_master, resource_manager, task_executor
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import (
    AccumulatorReport,
    AccumulatorSnapshot,
    AllocatedSlotInfo,
    AllocatedSlotReport,
    HardwareDescription,
    JobGraph,
    JobStatus,
    ResourceProfile,
)
from tailrace.services.configuration.role_options import JobOptions, TaskExecutorOptions
from tailrace.services.core.role import RESOURCE_MANAGER, OutgoingEvent, with_headers
from tailrace.services.core.time_index import FifoTimeIndex
from tailrace.services.heartbeats.job_masters import JobMasterHeartbeats
from tailrace.services.heartbeats.manager import HeartbeatManager, Monitor, Target
from tailrace.services.heartbeats.memory import MemoryHeartbeats
from tailrace.services.heartbeats.resource_manager import ResourceManagerHeartbeats, workers_in_grace
from tailrace.services.heartbeats.task_executor import TaskExecutorHeartbeats
from tailrace.services.heartbeats.topic import MASTERS, TASK_EXECUTORS
from tailrace.services.job_master.state import ConnectionState, StartedJob
from tailrace.services.job_master.topology import SchedulingTopology
from tailrace.services.resource_manager.state import ResourceManagerState, WorkerRegistration
from tailrace.services.resource_manager.worker_pool import Worker as PoolWorker
from tailrace.services.resource_manager.worker_pool import WorkerPool, WorkerState
from tailrace.services.task_executor.resources import JobConnection, Registration
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotTable

SECOND = 1_000_000
INTERVAL, TIMEOUT = 10 * SECOND, 50 * SECOND
HARDWARE = HardwareDescription(cpu_cores=1, physical_memory=1, jvm_heap=1, managed_memory=0)
Said = list[tuple[str, Any]]


class Bench:
    """The heartbeats of one process; the test runs each round and sets the clock."""

    def __init__(self, topic: MemoryHeartbeats, reads: int, participant: Any, own: str = "*") -> None:
        self.now = 1_000 * SECOND
        self.position = 7
        self.participant = participant
        self.accepts: Callable[[Record], bool] = lambda record: record.header.sender_epoch == 1
        self.topic = topic.end_of(reads, lambda recipient: recipient in (own, "*"))
        self.heartbeats = HeartbeatManager(
            lambda: self.topic,
            [participant],
            interval=INTERVAL,
            timeout=TIMEOUT,
            seal=sealed,
            accepts=lambda record: self.accepts(record),
            position=lambda: self.position,
            clock=lambda: self.now,
        )

    def round(self) -> None:
        self.heartbeats._round(self.topic)

    def passes(self, seconds: float) -> None:
        """Advances the time while the process is busy."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now = min(end, self.now + SECOND)
            self.round()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.heartbeats.manager._LONGEST_WAIT_S", 0.0)


def sealed(sender: str, owed: Sequence[OutgoingEvent]) -> list[Event]:
    return with_headers(
        owed, cluster="c", sender=sender, epoch=1, decided_at=7, now=0, numbers=itertools.count()
    )


def worker(name: str, instance: str = "1") -> WorkerRegistration:
    return WorkerRegistration(
        resource_id=name, instance_id=f"{name}-{instance}", address=f"h:{name}", hardware=HARDWARE, cause=3
    )


def known(*workers: WorkerRegistration) -> ResourceManagerState:
    return ResourceManagerState(workers=Map({worker.resource_id: worker for worker in workers}))


def beat(name: str, instance: str = "1", sender: str | None = None) -> Event:
    body = resource_manager.HeartbeatFromTaskManager(
        resource_id=name, instance_id=f"{name}-{instance}", position=9, slots=()
    )
    return sealed(sender or f"task_executor/{name}", [OutgoingEvent(RESOURCE_MANAGER, body, None)])[0]


class Master:
    """The heartbeats of a ResourceManager, and TaskExecutors that write to it."""

    def __init__(self, *workers: WorkerRegistration) -> None:
        self.sent: Said = []
        self.wrong: set[str] = set()
        self.kafka = MemoryHeartbeats()
        self.others = self.kafka.end_of(TASK_EXECUTORS, lambda _: True)
        self.heartbeats = ResourceManagerHeartbeats(
            lambda sender, owed: self.sent.append((sender, owed.body)),
            lambda _, body: body.resource_id in self.wrong,
        )
        self.bench = Bench(self.kafka, MASTERS, self.heartbeats, RESOURCE_MANAGER)
        self.heartbeats.follow(known(*workers))
        self.bench.round()

    @property
    def lost(self) -> list[str | None]:
        return [body.instance_id for _, body in self.sent if isinstance(body, resource_manager.WorkerLost)]


def test_broadcast_is_sent_every_interval_and_task_executors_receive_it() -> None:
    master = Master()
    assert [type(record.body) for record in master.others.poll(0)] == [
        task_executor.HeartbeatFromResourceManager
    ]
    master.bench.passes(9)
    assert master.others.poll(0) == []
    master.bench.passes(21)
    assert len(master.others.poll(0)) == 3


def test_only_task_executor_silent_for_timeout_is_lost() -> None:
    master = Master(worker("loud"), worker("silent"))
    for _ in range(6):
        master.others.send([beat("loud")])
        master.bench.passes(10)
    assert master.lost == ["silent-1"]
    ((sender, body),) = master.sent
    assert sender == RESOURCE_MANAGER
    assert not body.exited
    assert body.reason.startswith("no heartbeat for 50 s from TaskExecutor silent at h:silent")


def at(name: str, position: int) -> Event:
    body = resource_manager.HeartbeatFromTaskManager(
        resource_id=name, instance_id=f"{name}-1", position=position, slots=()
    )
    return sealed(f"task_executor/{name}", [OutgoingEvent(RESOURCE_MANAGER, body, None)])[0]


def test_task_executor_that_sends_and_does_not_read_is_lost_within_timeout() -> None:
    master = Master(worker("deaf"), worker("slow"), worker("reads"))
    for number in range(7):
        master.bench.position += 100
        master.others.send([at("deaf", 7), at("slow", 7 + number), at("reads", master.bench.position)])
        master.bench.passes(10)
    assert master.lost == ["deaf-1"]
    ((_, body),) = master.sent
    assert "TaskExecutor deaf at h:deaf has not read the log for 5" in body.reason
    assert "its position is 7, the log is at" in body.reason


def test_hung_process_is_silent_even_if_its_last_heartbeat_did_not_count() -> None:
    master = Master(worker("hangs"))
    for position in (7, 7):
        master.bench.position += 100
        master.others.send([at("hangs", position)])
        master.bench.passes(10)
    master.bench.passes(60)
    assert master.lost == ["hangs-1"]
    ((_, body),) = master.sent
    assert body.reason.startswith("no heartbeat for 5")


def test_no_process_has_to_read_when_log_does_not_grow() -> None:
    master = Master(worker("te"))
    for _ in range(20):
        master.others.send([at("te", master.bench.position)])
        master.bench.passes(10)
    assert master.lost == []


def test_process_with_stalled_host_sends_nothing() -> None:
    master = Master()
    idle_s = 0.0
    master.bench.heartbeats._idle_s = lambda: idle_s
    master.others.poll(0)
    master.bench.passes(30)
    assert len(master.others.poll(0)) == 3
    idle_s = INTERVAL / SECOND + 1
    master.bench.passes(30)
    assert master.others.poll(0) == []
    idle_s = 0.0
    master.bench.passes(30)
    assert len(master.others.poll(0)) == 3


def test_unanswered_report_is_repeated_after_another_timeout() -> None:
    master = Master(worker("silent"))
    master.bench.passes(99)
    assert len(master.lost) == 1
    master.bench.passes(2)
    assert len(master.lost) == 2


@pytest.mark.parametrize(
    "other",
    [beat("te", "0"), beat("te", sender="task_executor/other"), beat("unknown")],
    ids=["an earlier registration", "another sender", "another TaskExecutor"],
)
def test_heartbeat_of_other_process_does_not_count(other: Event) -> None:
    master = Master(worker("te"))
    for _ in range(6):
        master.others.send([other])
        master.bench.passes(10)
    assert master.lost == ["te-1"]


def test_new_registration_has_new_timeout_and_departed_one_has_none() -> None:
    master = Master(worker("again"), worker("gone"))
    master.bench.passes(40)
    master.heartbeats.follow(known(worker("again", "2")))
    master.bench.passes(40)
    assert master.lost == []
    master.bench.passes(11)
    assert master.lost == ["again-2"]


def test_stall_of_own_process_loses_nobody() -> None:
    master = Master(worker("te"))
    master.bench.now += 200 * SECOND
    master.bench.round()
    assert master.lost == []
    master.bench.passes(49)
    assert master.lost == []
    master.bench.passes(2)
    assert master.lost == ["te-1"]


def test_outage_of_kafka_loses_nobody() -> None:
    master = Master(worker("te"))
    master.bench.passes(45)
    master.kafka.break_down()
    master.bench.passes(200)
    master.kafka.break_down(broken=False)
    master.bench.passes(49)
    assert master.lost == []
    master.bench.passes(2)
    assert master.lost == ["te-1"]


def test_unread_heartbeats_are_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll may return before all present records have come: then the topic is read to its end first."""
    master = Master(worker("te"))
    master.bench.passes(49)
    master.others.send([beat("te")])
    poll, empty = master.bench.topic.poll, [True]
    monkeypatch.setattr(
        master.bench.topic, "poll", lambda timeout: [] if empty and empty.pop() else poll(timeout)
    )
    master.bench.passes(1)
    assert empty == []
    assert master.lost == []


def test_report_contradicting_log_is_reported_only_if_repeated() -> None:
    master = Master(worker("te"))
    reports = [True, False, True, True, False, True]
    for wrong in reports:
        master.wrong = {"te"} if wrong else set()
        master.others.send([beat("te")])
        master.bench.round()
    ((sender, body),) = master.sent
    assert (sender, type(body)) == (RESOURCE_MANAGER, resource_manager.SlotReportContradicted)
    assert (body.resource_id, body.instance_id) == ("te", "te-1")


def test_reports_of_different_registrations_are_not_consecutive() -> None:
    master = Master(worker("te"))
    master.wrong = {"te"}
    master.others.send([beat("te")])
    master.bench.round()
    master.heartbeats.follow(known(worker("te", "2")))
    master.others.send([beat("te", "2")])
    master.bench.round()
    assert master.sent == []


GRAPH = JobGraph(name="j", vertices=(), edges=())
PROFILE = ResourceProfile(
    cpu_cores=1.0, heap_memory_mb=1, direct_memory_mb=0, native_memory_mb=0, network_memory_mb=0,
    managed_memory_mb=0,
)  # fmt: skip
REGISTRATION = Registration(
    resource_manager.RegisterTaskExecutor(
        address="h:te", resource_id="te", data_port=0, hardware=HARDWARE, number_of_slots=2,
        default_slot_profile=PROFILE,
    ),
    TaskExecutorOptions(),
    instance_id="te-1",
)  # fmt: skip
CONNECTED = JobConnection("j", 4, registration_sent=True, answered=True, graph=GRAPH)


def job_state(**connections: ConnectionState) -> StartedJob:
    """The state of job j."""
    return StartedJob(
        job_id="j",
        status=JobStatus.RUNNING,
        graph=GRAPH,
        options=JobOptions(),
        topology=SchedulingTopology(),
        start_offset=0,
        cause=0,
        connections=Map(connections),
    )


class Job:
    """The heartbeats of a JobMaster and of a TaskExecutor that is connected to it, each in a process of its own."""

    def __init__(self) -> None:
        self.sent: Said = []
        self.missing: set[str] = set()
        self.wrong_slots: tuple[list[str], list[str]] = ([], [])
        self.running: list[str] = ["attempt"]
        kafka = MemoryHeartbeats()
        self.returning: set[str] = set()
        """Task executors that the ResourceManager waits for."""
        self.job = JobMasterHeartbeats(
            self.send, lambda *_: tuple(self.missing), report, lambda: frozenset(self.returning)
        )
        self.te = TaskExecutorHeartbeats(
            self.send,
            "task_executor/te",
            slot_report=lambda state: state.slots.report("te"),
            running=lambda _: [snapshot(item) for item in self.running],
            slot_contradictions=lambda *_: self.wrong_slots,
        )
        self.master = Bench(kafka, MASTERS, self.job, "job_master/j")
        self.worker = Bench(kafka, TASK_EXECUTORS, self.te, "task_executor/te")
        self.job.follow("job_master/j", job_state(te=ConnectionState.CONNECTED))
        self.state = TaskExecutorState(
            resource_id="te",
            registration=REGISTRATION,
            slots=TaskSlotTable().with_size(2, PROFILE),
            jobs=Map({"j": CONNECTED}),
        )
        self.te.follow(self.state)
        self.received: list[Record] = []

    def send(self, sender: str, owed: OutgoingEvent) -> None:
        assert owed.recipient == sender
        self.sent.append((sender, owed.body))

    def passes(self, seconds: int, *, master: bool = True, worker: bool = True) -> None:
        """Advances the time; processes without heartbeats are stopped."""
        for _ in range(seconds):
            for bench, alive in ((self.worker, worker), (self.master, master)):
                bench.now += SECOND
                if alive:
                    bench.round()


def report(state: StartedJob, resource_id: str) -> AllocatedSlotReport:
    assert resource_id == "te"
    infos = (AllocatedSlotInfo(slot_index=1, allocation_id="slot"),)
    return AllocatedSlotReport(job_id=state.job_id, allocated_slot_infos=infos)


def snapshot(attempt: str) -> AccumulatorSnapshot:
    return AccumulatorSnapshot(job_id="j", execution_attempt_id=attempt, user_accumulators={"n": 2.0})


def test_task_executor_sends_slots_to_resource_manager_and_tasks_to_each_job() -> None:
    job = Job()
    job.running = ["attempt"]
    ((sender, owed),) = beats_of(job.worker)
    assert sender == "task_executor/te"
    to_resource_manager, to_job = owed
    assert (to_resource_manager.recipient, to_job.recipient) == ("resource_manager", "job_master/j")
    assert to_resource_manager.body == resource_manager.HeartbeatFromTaskManager(
        resource_id="te", instance_id="te-1", position=7, slots=job.state.slots.report("te")
    )
    assert to_job.body == job_master.HeartbeatFromTaskManager(
        job_id="j",
        resource_id="te",
        position=7,
        accumulator_report=AccumulatorReport(accumulator_snapshots=(snapshot("attempt"),)),
    )


def test_job_master_sends_each_task_executor_its_slots() -> None:
    job = Job()
    ((sender, (owed,)),) = beats_of(job.master)
    assert (sender, owed.recipient) == ("job_master/j", "task_executor/te")
    body = owed.body
    assert isinstance(body, task_executor.HeartbeatFromJobManager)
    assert body.position == 7
    assert body.allocated_slot_report.allocated_slot_infos[0].allocation_id == "slot"


def beats_of(bench: Bench) -> list[tuple[str, Sequence[OutgoingEvent]]]:
    bench.round()
    return list(bench.participant.heartbeats_to_send(bench.position))


def test_no_report_while_job_and_task_executor_receive_heartbeats() -> None:
    job = Job()
    job.te.follow(replace(job.state, registration=None))
    job.passes(300)
    assert job.sent == []


def test_job_reports_silent_task_executor() -> None:
    job = Job()
    job.passes(20)
    job.passes(52, worker=False)
    ((sender, body),) = job.sent
    assert sender == "job_master/j"
    assert isinstance(body, job_master.HeartbeatTimedOut)
    assert body.resource_id == "te"
    assert body.reason.startswith("no heartbeat for 5")


@given(ended=st.integers(0, 38), away=st.integers(1, 120))
@settings(max_examples=10)
def test_task_executor_that_may_return_is_not_reported_and_has_new_timeout_then(
    ended: int, away: int
) -> None:
    """`ended`: how long it had been silent; its grace period is longer or shorter than the heartbeat timeout."""
    job = Job()
    job.passes(20)
    job.passes(ended, worker=False)
    job.returning.add("te")
    job.passes(away, worker=False)
    job.returning.clear()
    job.passes(45, worker=False)
    assert job.sent == []
    job.passes(11, worker=False)
    assert [type(body) for _, body in job.sent] == [job_master.HeartbeatTimedOut]


def test_resource_manager_lists_processes_it_waits_for() -> None:
    gone = PoolWorker("te", WorkerState.LOST, cause=5, since=7, exited=True)
    silent = replace(gone, resource_id="silent", exited=False)
    pool = WorkerPool(workers=Map({"te": gone, "silent": silent}), exited=FifoTimeIndex().add("te", 7))
    master, state = Master(), replace(known(worker("te"), worker("silent")), pool=pool)
    assert workers_in_grace(None) == frozenset()
    assert workers_in_grace(state) == {"te"}
    master.heartbeats.follow(state)
    master.bench.round()
    master.bench.passes(120)
    assert set(master.lost) == {"silent-1"}, "the end of the other is known, and its grace goes on"


def test_task_executor_reports_each_silent_master() -> None:
    job = Job()
    job.passes(20)
    job.passes(52, master=False)
    assert [(sender, body.peer) for sender, body in job.sent] == [
        ("task_executor/te", "resource_manager"),
        ("task_executor/te", "job_master/j"),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"registration": replace(REGISTRATION, instance_id=None), "jobs": Map()},
        {"registration": None, "jobs": Map({"j": replace(CONNECTED, answered=False)})},
        {"left": True},
    ],
    ids=["not registered", "not answered by the job", "left"],
)
def test_master_without_first_answer_is_not_reported(changed: dict[str, Any]) -> None:
    job = Job()
    job.te.follow(replace(job.state, **changed))
    job.passes(120, master=False)
    assert job.sent == []


def test_closing_connection_is_not_monitored() -> None:
    job = Job()
    job.passes(20)
    job.job.follow("job_master/j", job_state(te=ConnectionState.DISCONNECTING))
    job.passes(120, worker=False)
    job.job.follow("job_master/j", job_state())
    job.passes(120, worker=False)
    assert job.sent == []
    assert list(job.job.heartbeats_to_send(7)) == []


def test_job_led_elsewhere_is_not_monitored_until_it_returns() -> None:
    job = Job()
    state = job_state(te=ConnectionState.CONNECTED)
    job.passes(45, worker=False)
    job.job.retire("job_master/j")
    job.passes(120, worker=False)
    assert job.sent == []
    assert list(job.job.heartbeats_to_send(7)) == []
    job.job.follow("job_master/j", state)
    job.passes(45, worker=False)
    assert job.sent == []
    job.passes(20, worker=False)
    assert [type(body) for _, body in job.sent] == [job_master.HeartbeatTimedOut]


def test_resource_manager_led_elsewhere_monitors_nobody() -> None:
    master = Master(worker("a"))
    master.bench.passes(45)
    master.heartbeats.retire()
    master.bench.passes(120)
    assert master.lost == []
    master.heartbeats.follow(known(worker("a")))
    master.bench.passes(45)
    assert master.lost == []
    master.bench.passes(20)
    assert master.lost == ["a-1"]


def test_tasks_missing_in_two_consecutive_reports_are_reported() -> None:
    job = Job()
    for missing in ({"a", "b"}, {"b", "c"}, {"a"}, set()):
        job.missing = missing
        job.passes(10)
    ((_, body),) = [pair for pair in job.sent if isinstance(pair[1], job_master.TasksContradicted)]
    assert (body.resource_id, body.execution_attempt_ids) == ("te", ("b",))


def test_slots_contradicted_by_two_consecutive_reports_are_reported() -> None:
    job = Job()
    for missing, surplus in ((["a", "b"], ["c"]), (["b"], ["c", "a"]), ([], [])):
        job.wrong_slots = missing, surplus
        job.passes(10)
    facts = [body for _, body in job.sent if isinstance(body, task_executor.AllocatedSlotsContradicted)]
    assert [(fact.job_id, fact.missing, fact.surplus) for fact in facts] == [("j", ("b",), ("c",))]


class Silent:
    """A participant that records its calls."""

    def __init__(self) -> None:
        self.received: list[Record] = []
        self.asked = threading.Event()

    def update(self, monitor: Monitor, now: int) -> None:
        if "peer" not in monitor:
            monitor.watch("peer", now)

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        self.asked.set()
        return [("task_executor/te", [OutgoingEvent("resource_manager", beat("te").body, None)])]

    def on_heartbeat(self, record: Record) -> Target | None:
        self.received.append(record)
        return None

    def owns(self, target: Target) -> bool:
        return True

    def on_timeout(self, target: Target, silence: int) -> None: ...


def test_process_that_does_not_lead_neither_sends_nor_reads() -> None:
    kafka, participant, leads = MemoryHeartbeats(), Silent(), threading.Event()
    heartbeats = HeartbeatManager(
        lambda: kafka.end_of(TASK_EXECUTORS, lambda _: True),
        [participant],
        interval=INTERVAL,
        timeout=TIMEOUT,
        seal=sealed,
        accepts=lambda _: True,
        position=lambda: 0,
        ready=leads.is_set,
    )
    heartbeats.start()
    try:
        assert not participant.asked.wait(0.1)
        leads.set()
        assert participant.asked.wait(TIMEOUT_S)
    finally:
        heartbeats.close()
        heartbeats.close()


def test_deposed_process_stops_and_starts_from_scratch_when_it_leads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.services.heartbeats.manager._PAUSE_S", 0.0)
    kafka, participant, leads, opened = MemoryHeartbeats(), Silent(), threading.Event(), list[Any]()

    def connect() -> Any:
        opened.append(kafka.end_of(TASK_EXECUTORS, lambda _: True))
        return opened[-1]

    leads.set()
    heartbeats = HeartbeatManager(
        connect,
        [participant],
        interval=1,
        timeout=TIMEOUT,
        seal=sealed,
        accepts=lambda _: True,
        position=lambda: 0,
        ready=leads.is_set,
    )
    heartbeats.start()
    try:
        assert participant.asked.wait(TIMEOUT_S)
        leads.clear()
        deadline = threading.Event()
        while participant.asked.is_set():
            # A round may be under way still.
            participant.asked.clear()
            deadline.wait(0.05)
        assert len(opened) == 1
        leads.set()
        assert participant.asked.wait(TIMEOUT_S)
        assert len(opened) == 2
    finally:
        heartbeats.close()


def test_rounds_continue_after_error_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.heartbeats.manager._PAUSE_S", 0.0)
    participant = Silent()
    failures = [RuntimeError("nobody thought of this"), LookupError("nor of this")]

    def connect() -> Any:
        if failures:
            raise failures.pop()
        return MemoryHeartbeats().end_of(TASK_EXECUTORS, lambda _: True)

    heartbeats = HeartbeatManager(
        connect,
        [participant],
        interval=INTERVAL,
        timeout=TIMEOUT,
        seal=sealed,
        accepts=lambda _: True,
        position=lambda: 0,
    )
    heartbeats.start()
    try:
        assert participant.asked.wait(TIMEOUT_S)
    finally:
        heartbeats.close()
