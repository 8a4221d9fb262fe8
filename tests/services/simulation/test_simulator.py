"""The Simulator of real roles: leaders, dead processes, and the order of events."""

from __future__ import annotations

import pytest

from tailrace.schemas.event import Record
from tailrace.schemas.job_master import UpdateTaskExecutionState
from tailrace.schemas.types import ExecutionState
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.simulation.latencies import DEFAULT_LATENCIES, Latencies, Work
from tailrace.services.simulation.simulator import LivelockError
from tailrace.services.simulation.task_behavior import UniformTaskBehavior
from tailrace.services.simulation.task_events import register_event
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import SECOND
from .what_if.history_builder import BEGIN, HistoryBuilder


def names(studio: HistoryBuilder) -> list[str]:
    """Returns the names of the events, in order."""
    return [record.body.AVRO_NAME.rpartition(".")[2] for record in studio.world.log]


def events_by(studio: HistoryBuilder, sender: str) -> list[Record]:
    """Returns the events of one address."""
    return [record for record in studio.world.log if record.header.sender == sender]


def test_time_jumps_to_next_action() -> None:
    studio = HistoryBuilder(life=UniformTaskBehavior(Latencies(), 10 * SECOND))
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 2)
    history = studio.run(100)
    assert names(studio)[-1] == "ChannelsDeleted"
    assert studio.world.now == BEGIN + 100 * SECOND
    times = sorted({record.header.time for record in history.records})
    starts = 1 * SECOND + DEFAULT_LATENCIES[Work.CREATE_CHANNELS] + DEFAULT_LATENCIES[Work.START_TASK]
    assert BEGIN + starts + 10 * SECOND in times
    assert times == sorted(times)


def test_no_event_is_sent_twice_and_none_is_required_when_idle() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1", "te-2")
    studio.schedule_at(1, studio.submit, "j1", 3)
    studio.run(30)
    assert studio.world.find_owed_events() == []
    ids = [record.header.event_id for record in studio.world.log]
    assert len(set(ids)) == len(ids)


def test_events_of_one_step_are_decided_from_one_state() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.run(30)
    for record in studio.world.log:
        assert record.header.decided_at is None or record.header.decided_at < record.offset
        assert record.header.cause is None or record.header.cause < record.offset


def test_dead_process_sends_nothing_and_its_actions_are_dropped() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 2)
    # Tasks are submitted 100 ms later, and would run 300 ms after that.
    studio.schedule_at(1.2, studio.workers.kill, "te-1", "killed", seen=True)
    studio.run(30)
    assert all(
        record.header.time < BEGIN + 1.2 * SECOND for record in events_by(studio, "task_executor/te-1")
    )
    states = [record.body for record in studio.world.log if isinstance(record.body, UpdateTaskExecutionState)]
    assert not states
    assert "TaskExecutorLost" in names(studio)


def test_paused_process_continues_where_it_was() -> None:
    studio = HistoryBuilder(life=UniformTaskBehavior(Latencies(), 10 * SECOND))
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(5, studio.workers.pause, "te-1")
    studio.schedule_at(50, studio.workers.resume, "te-1")
    studio.run(60)
    ends = [
        record.header.time
        for record in events_by(studio, "task_executor/te-1")
        if isinstance(record.body, UpdateTaskExecutionState)
        and record.body.execution_state is ExecutionState.FINISHED
    ]
    assert ends
    assert all(time == BEGIN + 50 * SECOND for time in ends)


def test_new_leader_detects_processes_lost_without_leader() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1", "te-2")
    studio.schedule_at(5, studio.world.kill, "master-1")
    studio.schedule_at(6, studio.workers.kill, "te-1", "killed", seen=True)
    studio.schedule_at(20, studio.start_master)
    studio.run(30)
    lost = [record for record in studio.world.log if record.body.AVRO_NAME.endswith("WorkerLost")]
    assert [record.header.time // SECOND for record in lost] == [1_020]
    manager = studio.replica.states["resource_manager"]
    assert isinstance(manager, ResourceManagerState)
    assert list(manager.workers) == ["te-2"]


def test_returning_process_continues_its_tasks() -> None:
    studio = HistoryBuilder(
        {"taskmanager.restart-grace": "10 s"}, UniformTaskBehavior(Latencies(), 20 * SECOND)
    )
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 1)
    studio.schedule_at(11.4, studio.workers.kill, "te-1", "killed", seen=True)
    studio.schedule_at(15, studio.start_workers, "te-1")
    studio.run(60)
    assert "TaskExecutorLost" not in names(studio)
    finished = [record for record in studio.world.log if record.body.AVRO_NAME.endswith("JobFinished")]
    # 10 s before it died, 10 s after it had started again.
    assert [record.header.time for record in finished] == [
        pytest.approx(BEGIN + (15 + 0.3 + 10) * SECOND, abs=0.1 * SECOND)
    ]


def test_livelock_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    studio.run(1)
    monkeypatch.setattr(TaskExecutor, "decide", lambda *_: [register_event("te-1", 2)])
    monkeypatch.setattr("tailrace.services.simulation.simulator.MAX_TURNS", 30)
    studio.schedule_at(2, studio.submit, "j1", 1)
    with pytest.raises(LivelockError, match="events without end at offset"):
        studio.run(3)


def test_latencies_are_learnt_and_deterministic_per_seed() -> None:
    studio = HistoryBuilder(life=UniformTaskBehavior(Latencies(fixed={Work.START_TASK: 700_000}), SECOND))
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 2)
    history = studio.run(10)
    learnt = Latencies(3)
    for record in history.records:
        learnt.on_event(record)
    assert learnt.take(Work.START_TASK, "x") == 700_000
    assert learnt.take(Work.CREATE_CHANNELS, "x") == DEFAULT_LATENCIES[Work.CREATE_CHANNELS]
    assert learnt.take(Work.BOOT, "x") == DEFAULT_LATENCIES[Work.BOOT]
    assert [learnt.take(Work.REGISTER, n) for n in range(9)] == [
        learnt.take(Work.REGISTER, n) for n in range(9)
    ]
