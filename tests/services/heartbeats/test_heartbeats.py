"""Heartbeats between real participants, over the topic in memory and over Kafka's contract alike: who is heard, who is
not, and what is made of a report that contradicts the log. Time is the test's own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
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
    ResourceProfile,
)
from tailrace.services.configuration.role_options import TaskExecutorOptions
from tailrace.services.core.role import RESOURCE_MANAGER, OutgoingEvent, with_headers
from tailrace.services.core.time_index import FifoTimeIndex
from tailrace.services.heartbeats.job_masters import JobMasterHeartbeats
from tailrace.services.heartbeats.manager import HeartbeatManager, Monitor, Target
from tailrace.services.heartbeats.memory import MemoryHeartbeats
from tailrace.services.heartbeats.resource_manager import ResourceManagerHeartbeats, workers_in_grace
from tailrace.services.heartbeats.task_executor import TaskExecutorHeartbeats
from tailrace.services.heartbeats.topic import MASTERS, TASK_EXECUTORS
from tailrace.services.job_master.state import Connection, Handshake, JobMasterState
from tailrace.services.resource_manager.state import ResourceManagerState, WorkerRegistration
from tailrace.services.resource_manager.worker_pool import Worker as PoolWorker
from tailrace.services.resource_manager.worker_pool import WorkerPool, WorkerState
from tailrace.services.task_executor.state import JobConnection, Registration, TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotTable

SECOND = 1_000_000
INTERVAL, TIMEOUT = 10 * SECOND, 50 * SECOND
HARDWARE = HardwareDescription(cpu_cores=1, physical_memory=1, jvm_heap=1, managed_memory=0)
Said = list[tuple[str, Any]]


class Bench:
    """One process's heartbeats, driven round by round instead of by its thread, with a clock that is set by hand."""

    def __init__(self, topic: MemoryHeartbeats, reads: int, participant: Any, own: str = "*") -> None:
        self.now = 1_000 * SECOND
        self.position = 7
        self.participant = participant
        self.topic = topic.end_of(reads, lambda recipient: recipient in (own, "*"))
        self.heartbeats = HeartbeatManager(
            lambda: self.topic,
            [participant],
            interval=INTERVAL,
            timeout=TIMEOUT,
            seal=sealed,
            position=lambda: self.position,
            clock=lambda: self.now,
        )

    def round(self) -> None:
        self.heartbeats._round(self.topic)

    def passes(self, seconds: float) -> None:
        """Time passes while the process is at work."""
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
    return ResourceManagerState(workers=Map({each.resource_id: each for each in workers}))


def beat(name: str, instance: str = "1", sender: str | None = None) -> Event:
    body = resource_manager.HeartbeatFromTaskManager(
        resource_id=name, instance_id=f"{name}-{instance}", position=9, slots=()
    )
    return sealed(sender or f"task_executor/{name}", [OutgoingEvent(RESOURCE_MANAGER, body, None)])[0]


class Master:
    """A ResourceManager's heartbeats, and TaskExecutors that write to it."""

    def __init__(self, *workers: WorkerRegistration) -> None:
        self.said: Said = []
        self.wrong: set[str] = set()
        self.kafka = MemoryHeartbeats()
        self.others = self.kafka.end_of(TASK_EXECUTORS, lambda _: True)
        self.heartbeats = ResourceManagerHeartbeats(
            lambda sender, owed: self.said.append((sender, owed.body)),
            lambda _, body: body.resource_id in self.wrong,
        )
        self.bench = Bench(self.kafka, MASTERS, self.heartbeats, RESOURCE_MANAGER)
        self.heartbeats.follow(known(*workers))
        self.bench.round()

    @property
    def lost(self) -> list[str | None]:
        return [body.instance_id for _, body in self.said if isinstance(body, resource_manager.WorkerLost)]


def test_a_broadcast_is_sent_every_interval_and_task_executors_hear_it() -> None:
    master = Master()
    assert [type(each.body) for each in master.others.poll(0)] == [task_executor.HeartbeatFromResourceManager]
    master.bench.passes(9)
    assert master.others.poll(0) == []
    master.bench.passes(21)
    assert len(master.others.poll(0)) == 3


def test_who_is_silent_for_the_timeout_is_lost_and_nobody_else() -> None:
    master = Master(worker("loud"), worker("silent"))
    for _ in range(6):
        master.others.send([beat("loud")])
        master.bench.passes(10)
    assert master.lost == ["silent-1"]
    ((sender, body),) = master.said
    assert sender == RESOURCE_MANAGER
    assert not body.exited
    assert body.reason.startswith("no heartbeat for 50 s from TaskExecutor silent at h:silent")


def at(name: str, position: int) -> Event:
    body = resource_manager.HeartbeatFromTaskManager(
        resource_id=name, instance_id=f"{name}-1", position=position, slots=()
    )
    return sealed(f"task_executor/{name}", [OutgoingEvent(RESOURCE_MANAGER, body, None)])[0]


def test_who_sends_and_does_not_read_is_lost_within_the_timeout() -> None:
    master = Master(worker("deaf"), worker("slow"), worker("reads"))
    for number in range(7):
        master.bench.position += 100
        master.others.send([at("deaf", 7), at("slow", 7 + number), at("reads", master.bench.position)])
        master.bench.passes(10)
    assert master.lost == ["deaf-1"]
    ((_, body),) = master.said
    assert "TaskExecutor deaf at h:deaf has not read the log for 5" in body.reason
    assert "it stands at offset 7, the log at" in body.reason


def test_a_process_that_hangs_is_silent_though_its_last_heartbeat_did_not_count() -> None:
    master = Master(worker("hangs"))
    for position in (7, 7):
        master.bench.position += 100
        master.others.send([at("hangs", position)])
        master.bench.passes(10)
    master.bench.passes(60)
    assert master.lost == ["hangs-1"]
    ((_, body),) = master.said
    assert body.reason.startswith("no heartbeat for 5")


def test_where_the_log_stands_still_nobody_has_to_move() -> None:
    master = Master(worker("te"))
    for _ in range(20):
        master.others.send([at("te", master.bench.position)])
        master.bench.passes(10)
    assert master.lost == []


def test_a_process_whose_host_stands_still_sends_nothing() -> None:
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


def test_a_fact_that_nothing_followed_is_said_again_after_another_timeout() -> None:
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
def test_a_heartbeat_of_anybody_else_saves_nobody(other: Event) -> None:
    master = Master(worker("te"))
    for _ in range(6):
        master.others.send([other])
        master.bench.passes(10)
    assert master.lost == ["te-1"]


def test_a_new_registration_has_a_fresh_timeout_and_who_has_left_has_none() -> None:
    master = Master(worker("again"), worker("gone"))
    master.bench.passes(40)
    master.heartbeats.follow(known(worker("again", "2")))
    master.bench.passes(40)
    assert master.lost == []
    master.bench.passes(11)
    assert master.lost == ["again-2"]


def test_a_stall_of_this_process_loses_nobody() -> None:
    master = Master(worker("te"))
    master.bench.now += 200 * SECOND
    master.bench.round()
    assert master.lost == []
    master.bench.passes(49)
    assert master.lost == []
    master.bench.passes(2)
    assert master.lost == ["te-1"]


def test_while_kafka_can_not_be_reached_nobody_is_lost() -> None:
    master = Master(worker("te"))
    master.bench.passes(45)
    master.kafka.break_down()
    master.bench.passes(200)
    master.kafka.break_down(broken=False)
    master.bench.passes(49)
    assert master.lost == []
    master.bench.passes(2)
    assert master.lost == ["te-1"]


def test_what_lies_in_the_topic_unread_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll may return before all that is there has come: then the topic is read to its end first."""
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


def test_one_report_that_contradicts_the_log_may_have_crossed_it_two_in_a_row_are_said() -> None:
    master = Master(worker("te"))
    reports = [True, False, True, True, False, True]
    for wrong in reports:
        master.wrong = {"te"} if wrong else set()
        master.others.send([beat("te")])
        master.bench.round()
    ((sender, body),) = master.said
    assert (sender, type(body)) == (RESOURCE_MANAGER, resource_manager.SlotReportContradicted)
    assert (body.resource_id, body.instance_id) == ("te", "te-1")


def test_reports_of_two_registrations_are_not_two_in_a_row() -> None:
    master = Master(worker("te"))
    master.wrong = {"te"}
    master.others.send([beat("te")])
    master.bench.round()
    master.heartbeats.follow(known(worker("te", "2")))
    master.others.send([beat("te", "2")])
    master.bench.round()
    assert master.said == []


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
CONNECTION = Connection("te", Handshake.DONE, 4)


class Job:
    """A JobMaster's heartbeats and those of a TaskExecutor that it is connected to, each in a process of its own."""

    def __init__(self) -> None:
        self.said: Said = []
        self.missing: set[str] = set()
        self.wrong_slots: tuple[list[str], list[str]] = ([], [])
        self.running: list[str] = ["attempt"]
        kafka = MemoryHeartbeats()
        self.returning: set[str] = set()
        """Task executors that the ResourceManager waits for."""
        self.job = JobMasterHeartbeats(
            self.say, lambda *_: tuple(self.missing), report, lambda: frozenset(self.returning)
        )
        self.te = TaskExecutorHeartbeats(
            self.say,
            "task_executor/te",
            slot_report=lambda state: state.slots.report("te"),
            running=lambda _: [snapshot(each) for each in self.running],
            slot_contradictions=lambda *_: self.wrong_slots,
        )
        self.master = Bench(kafka, MASTERS, self.job, "job_master/j")
        self.worker = Bench(kafka, TASK_EXECUTORS, self.te, "task_executor/te")
        self.job.follow("job_master/j", JobMasterState(job_id="j", connections=Map({"te": CONNECTION})))
        self.state = TaskExecutorState(
            resource_id="te",
            registration=REGISTRATION,
            slots=TaskSlotTable().with_size(2, PROFILE),
            jobs=Map({"j": CONNECTED}),
        )
        self.te.follow(self.state)
        self.heard: list[Record] = []

    def say(self, sender: str, owed: OutgoingEvent) -> None:
        assert owed.recipient == sender
        self.said.append((sender, owed.body))

    def passes(self, seconds: int, *, master: bool = True, worker: bool = True) -> None:
        """Time passes; who does not beat stands still."""
        for _ in range(seconds):
            for bench, alive in ((self.worker, worker), (self.master, master)):
                bench.now += SECOND
                if alive:
                    bench.round()


def report(state: JobMasterState, resource_id: str) -> AllocatedSlotReport:
    assert resource_id == "te"
    infos = (AllocatedSlotInfo(slot_index=1, allocation_id="slot"),)
    return AllocatedSlotReport(job_id=state.job_id, allocated_slot_infos=infos)


def snapshot(attempt: str) -> AccumulatorSnapshot:
    return AccumulatorSnapshot(job_id="j", execution_attempt_id=attempt, user_accumulators={"n": 2.0})


def test_a_task_executor_sends_its_slots_to_the_resource_manager_and_its_tasks_to_each_job() -> None:
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


def test_a_job_master_sends_each_task_executor_the_slots_that_it_holds_there() -> None:
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


def test_a_job_and_its_task_executor_that_hear_each_other_say_nothing() -> None:
    job = Job()
    job.te.follow(replace(job.state, registration=None))
    job.passes(300)
    assert job.said == []


def test_a_task_executor_that_is_silent_is_missed_by_the_job() -> None:
    job = Job()
    job.passes(20)
    job.passes(52, worker=False)
    ((sender, body),) = job.said
    assert sender == "job_master/j"
    assert isinstance(body, job_master.HeartbeatTimedOut)
    assert body.resource_id == "te"
    assert body.reason.startswith("no heartbeat for 5")


@given(ended=st.integers(0, 38), away=st.integers(1, 120))
@settings(max_examples=10)
def test_a_task_executor_that_may_come_back_is_not_missed_and_has_a_fresh_timeout_then(
    ended: int, away: int
) -> None:
    """`ended`: for how long it had been silent; its grace is longer than the timeout of heartbeats, or shorter."""
    job = Job()
    job.passes(20)
    job.passes(ended, worker=False)
    job.returning.add("te")
    job.passes(away, worker=False)
    job.returning.clear()
    job.passes(45, worker=False)
    assert job.said == []
    job.passes(11, worker=False)
    assert [type(body) for _, body in job.said] == [job_master.HeartbeatTimedOut]


def test_the_resource_manager_says_whom_it_waits_for() -> None:
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


def test_masters_that_are_silent_are_missed_by_the_task_executor_each_by_itself() -> None:
    job = Job()
    job.passes(20)
    job.passes(52, master=False)
    assert [(sender, body.peer) for sender, body in job.said] == [
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
def test_who_has_not_answered_yet_is_not_missed(changed: dict[str, Any]) -> None:
    job = Job()
    job.te.follow(replace(job.state, **changed))
    job.passes(120, master=False)
    assert job.said == []


def test_a_connection_that_is_being_ended_is_not_waited_for() -> None:
    job = Job()
    parting = replace(CONNECTION, disconnect=Handshake.SAID)
    job.passes(20)
    job.job.follow("job_master/j", JobMasterState(job_id="j", connections=Map({"te": parting})))
    job.passes(120, worker=False)
    job.job.follow("job_master/j", JobMasterState(job_id="j"))
    job.passes(120, worker=False)
    assert job.said == []
    assert list(job.job.heartbeats_to_send(7)) == []


def test_a_heartbeat_of_a_deposed_master_is_none() -> None:
    job = Job()
    job.te.follow(replace(job.state, jobs=Map()))
    beat_of_master = task_executor.HeartbeatFromResourceManager()

    def of_epoch(epoch: int) -> list[Event]:
        owed = [OutgoingEvent("*", beat_of_master, None)]
        return with_headers(
            owed,
            cluster="c",
            sender="resource_manager",
            epoch=epoch,
            decided_at=0,
            now=0,
            numbers=itertools.count(),
        )

    job.master.topic.send(of_epoch(2))
    for _ in range(6):
        job.passes(10, master=False)
        job.master.topic.send(of_epoch(1))
    assert [body.peer for _, body in job.said] == ["resource_manager"]


def test_each_master_has_epochs_of_its_own() -> None:
    job = Job()
    body = task_executor.HeartbeatFromResourceManager()
    owed = [OutgoingEvent("*", body, None)]
    later = with_headers(
        owed, cluster="c", sender="resource_manager", epoch=9, decided_at=0, now=0, numbers=itertools.count()
    )
    job.master.topic.send(later)
    # The JobMaster speaks under epoch 1 all the while.
    job.passes(120)
    assert {body.peer for _, body in job.said} == {"resource_manager"}


def test_a_job_that_is_led_elsewhere_is_waited_for_no_more_and_afresh_when_it_is_back() -> None:
    job = Job()
    state = JobMasterState(job_id="j", connections=Map({"te": CONNECTION}))
    job.passes(45, worker=False)
    job.job.retire("job_master/j")
    job.passes(120, worker=False)
    assert job.said == []
    assert list(job.job.heartbeats_to_send(7)) == []
    job.job.follow("job_master/j", state)
    job.passes(45, worker=False)
    assert job.said == []
    job.passes(20, worker=False)
    assert [type(body) for _, body in job.said] == [job_master.HeartbeatTimedOut]


def test_a_resource_manager_that_is_led_elsewhere_waits_for_nobody() -> None:
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


def test_tasks_that_two_reports_in_a_row_lack_are_missed() -> None:
    job = Job()
    for missing in ({"a", "b"}, {"b", "c"}, {"a"}, set()):
        job.missing = missing
        job.passes(10)
    ((_, body),) = [each for each in job.said if isinstance(each[1], job_master.TasksContradicted)]
    assert (body.resource_id, body.execution_attempt_ids) == ("te", ("b",))


def test_slots_that_two_reports_in_a_row_contradict_are_said() -> None:
    job = Job()
    for missing, surplus in ((["a", "b"], ["c"]), (["b"], ["c", "a"]), ([], [])):
        job.wrong_slots = missing, surplus
        job.passes(10)
    facts = [body for _, body in job.said if isinstance(body, task_executor.AllocatedSlotsContradicted)]
    assert [(fact.job_id, fact.missing, fact.surplus) for fact in facts] == [("j", ("b",), ("c",))]


class Silent:
    """A participant that notes what is asked of it."""

    def __init__(self) -> None:
        self.heard: list[Record] = []
        self.asked = threading.Event()

    def update(self, monitor: Monitor, now: int) -> None:
        if "peer" not in monitor:
            monitor.watch("peer", now)

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        self.asked.set()
        return [("task_executor/te", [OutgoingEvent("resource_manager", beat("te").body, None)])]

    def on_heartbeat(self, record: Record) -> Target | None:
        self.heard.append(record)
        return None

    def owns(self, target: Target) -> bool:
        return True

    def on_timeout(self, target: Target, silence: int) -> None: ...


def test_a_process_that_does_not_lead_yet_neither_sends_nor_listens() -> None:
    kafka, participant, leads = MemoryHeartbeats(), Silent(), threading.Event()
    heartbeats = HeartbeatManager(
        lambda: kafka.end_of(TASK_EXECUTORS, lambda _: True),
        [participant],
        interval=INTERVAL,
        timeout=TIMEOUT,
        seal=sealed,
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


def test_a_process_that_leads_no_more_stops_and_begins_afresh_when_it_leads_again(
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


def test_whatever_goes_wrong_in_one_round_the_next_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.services.heartbeats.manager._PAUSE_S", 0.0)
    participant = Silent()
    failures = [RuntimeError("nobody thought of this"), LookupError("nor of this")]

    def connect() -> Any:
        if failures:
            raise failures.pop()
        return MemoryHeartbeats().end_of(TASK_EXECUTORS, lambda _: True)

    heartbeats = HeartbeatManager(
        connect, [participant], interval=INTERVAL, timeout=TIMEOUT, seal=sealed, position=lambda: 0
    )
    heartbeats.start()
    try:
        assert participant.asked.wait(TIMEOUT_S)
    finally:
        heartbeats.close()
