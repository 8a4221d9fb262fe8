"""Properties of what-ifs, over simulated histories and any position in them."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.schemas import dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.services.core.role import RESOURCE_MANAGER, TASK_EXECUTOR, address, kind_of
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.replay import DecisionCheck
from tailrace.services.log import Codec
from tailrace.services.log.event_log import read_to_end
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.simulation.what_if.outcome_metrics import OutcomeMetrics
from tailrace.services.simulation.what_if.scenario import Scenario
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.what_if import WhatIf, simulate
from tailrace.services.snapshots.builder import all_roles
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ...scenarios import SCENARIOS, walk
from ...simulated_cluster.cluster import SECOND
from ...simulated_cluster.invariants import INDEXES, violations
from .fault_histories import faulty_history
from .history_builder import BEGIN, RECORDED_S, HistoryBuilder, MemoryHistory, RandomTaskBehavior, any_history

END = BEGIN + RECORDED_S * SECOND
GOLDEN = Path(__file__).parents[3] / "golden" / "0.1.0"
laws = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
_CODEC = Codec("what-if.log")


@functools.lru_cache(64)
def history_of(seed: int) -> MemoryHistory:
    """Returns a history up to END; every other one has faults that no role decides."""
    return faulty_history(seed) if seed % 2 else any_history(seed)


def time_at(history: MemoryHistory, offset: int) -> int:
    """Returns the time of the state after an offset."""
    return max((record.header.time for record in history.records[: offset + 1]), default=BEGIN)


def between_turns(history: MemoryHistory, offset: int) -> int:
    """Returns the next offset at which no role is in the middle of its decided events."""
    records = history.records
    while offset + 1 < len(records):
        one, next_ = records[offset].header, records[offset + 1].header
        if not next_.decided or (one.decided_at, one.time) != (next_.decided_at, next_.time):
            break
        offset += 1
    return offset


def at_rest(history: MemoryHistory, offset: int) -> int:
    """Returns the last offset of that moment: the order of events within a moment may differ."""
    records = history.records
    while offset + 1 < len(records) and records[offset + 1].header.time <= time_at(history, offset):
        offset += 1
    return offset


def any_scenario(draw: random.Random, history: MemoryHistory) -> Scenario:
    """Draws some changes; they may name entities that do not exist at that time, which is valid."""
    workers = sorted(
        {record.body.resource_id for record in history.records if hasattr(record.body, "resource_id")}
    )
    jobs = sorted({record.body.job_id for record in history.records if hasattr(record.body, "job_id")})
    lines = ["until: 2 min", f"seed: {draw.randint(0, 9)}"]
    lines.append(f"tasks: {{run: {draw.choice(('as-recorded', 'forever', '20 s'))}}}")
    lines.append(f"configuration: {{slot.request.timeout: {draw.choice((5, 60))} s}}")
    lines.append("events:")
    lines.append(f"- {{at: {draw.randint(0, 60)} s, join: {{count: {draw.randint(1, 3)}, slots: 2}}}}")
    lines.append(f"- {{at: {draw.randint(0, 60)} s, kill_leader: dispatcher, for: {draw.randint(0, 9)} s}}")
    if workers:
        silent = draw.choice(("true", "false"))
        lines.append(f"- {{at: {draw.randint(0, 60)} s, kill: {draw.choice(workers)}, silent: {silent}}}")
    if jobs:
        lines.append(f"- {{at: {draw.randint(0, 60)} s, cancel: {draw.choice(jobs)}}}")
        lines.append(f"- {{at: {draw.randint(0, 60)} s, submit: {{like: {draw.choice(jobs)}}}}}")
    return parse_scenario("\n".join(lines))


def changed(seed: int, place: float) -> tuple[MemoryHistory, WhatIf]:
    """Returns a history at a position, and the result of a scenario."""
    history = history_of(seed)
    offset = between_turns(history, int(place * (len(history.records) - 1)))
    at = history.at(offset)
    # A job that is submitted behind the place has no graph before: any job can be like one that was ever started.
    return at, simulate(at, any_scenario(random.Random(f"{seed}/{place}"), history))


def encoded(records: tuple[Record, ...]) -> list[bytes]:
    """Returns the events as the log has them."""
    return _CODEC.encode_all([Event(record.header, record.body) for record in records])


places = st.floats(0, 1)
seeds = st.integers(0, 500)


@laws
@given(seeds, places)
def test_same_seed_and_scenario_give_same_log(seed: int, place: float) -> None:
    _, once = changed(seed, place)
    _, again = changed(seed, place)
    assert encoded(once.log) == encoded(again.log)
    assert once.would == again.would


@settings(laws, max_examples=30)
@given(seeds, places)
def test_scenario_without_changes_repeats_history(seed: int, place: float) -> None:
    history = history_of(seed)
    offset = at_rest(history, int(place * (len(history.records) - 1)))
    what_if = simulate(history.at(offset), Scenario(until=END - time_at(history, offset)))
    if what_if.really is None:
        return
    as_it_was(what_if, slack=SECOND)
    if seed % 2 == 0:
        # Who dies in the moment in which he speaks may say what he owes: slots are given back that were not.
        assert what_if.really.used_time() == pytest.approx(
            sum(step * length for step, length in used_until(what_if.would, what_if.really.end)),
            rel=0.05,
            abs=5 * SECOND,
        )


def as_it_was(found: WhatIf, *, slack: int) -> None:
    """Checks that the simulated outcome equals the recorded one: ends, restarts and, up to `slack`, times."""
    assert found.really is not None
    then = {job.job_id: job for job in found.really.jobs}
    now = {job.job_id: job for job in found.would.jobs}
    assert {job: (outcome.status, outcome.restarts) for job, outcome in then.items()} == {
        job: (outcome.status, outcome.restarts) for job, outcome in now.items()
    }
    for job, job_outcome in then.items():
        again = now[job]
        assert (job_outcome.ended or 0) == pytest.approx(again.ended or 0, abs=slack)
        assert (job_outcome.ran or 0) == pytest.approx(again.ran or 0, abs=slack)
        if job_outcome.ended is not None:
            # Who waits still waits for as long as one looks on.
            assert job_outcome.waited == pytest.approx(again.waited, abs=2 * slack)
            assert job_outcome.interrupted == pytest.approx(again.interrupted, abs=2 * slack)


def used_until(outcome: object, end: int) -> list[tuple[int, int]]:
    """Returns (slots in use, duration) pairs up to a time."""
    slots = outcome.slots  # type: ignore[attr-defined]
    ends = [step.time for step in slots[1:]] + [end]
    return [(step.used, max(0, min(until, end) - step.time)) for step, until in zip(slots, ends, strict=True)]


@laws
@given(seeds, places)
def test_simulation_ends_idle_with_consistent_states(seed: int, place: float) -> None:
    history, what_if = changed(seed, place)
    replica = history.replica()
    for record in what_if.log:
        replica.apply(record)
    manager = replica.states.get(RESOURCE_MANAGER)
    registered = manager.workers if isinstance(manager, ResourceManagerState) else {}
    alive = {address(TASK_EXECUTOR, item) for item in registered}
    for active_address in replica.active_addresses:
        state = replica.states[active_address]
        INDEXES[type(state)](state)
        led = replica.leadership.leader(active_address) is not None
        if led and (kind_of(active_address) != TASK_EXECUTOR or active_address in alive):
            assert not replica.role(active_address).decide(state, what_if.would.end), active_address
    held = [
        slot.allocation_id
        for state in replica.states.values()
        if isinstance(state, TaskExecutorState) and address(TASK_EXECUTOR, state.resource_id) in alive
        for slot in state.slots.slots.values()
        if slot.state is TaskSlotState.ACTIVE
    ]
    assert len(held) == len(set(held)), "an allocation holds two slots"
    wrong = violations((*history.records[: history.offset + 1], *what_if.log), settled=False)
    assert not wrong, "\n".join(map(str, wrong))


@laws
@given(seeds, places)
def test_simulated_decisions_are_recomputed_without_difference(seed: int, place: float) -> None:
    history, what_if = changed(seed, place)
    check = DecisionCheck(all_roles())
    differences = []
    for record in (*history.records[: history.offset + 1], *what_if.log):
        differences += check.check_record(record)
    check.finish()
    assert not differences, "\n".join(differences[0].format_lines())


@laws
@given(seeds, places)
def test_slot_usage_agrees_with_states(seed: int, place: float) -> None:
    history, what_if = changed(seed, place)
    replica = history.replica()
    # Of each time, the state behind its last event.
    at: dict[int, tuple[int, int]] = {}

    def look(time: int) -> None:
        state = replica.states.get(RESOURCE_MANAGER)
        slots = [*state.slot_manager.slots.total()] if isinstance(state, ResourceManagerState) else []
        at[time] = len(slots), sum(slot.state.value != "FREE" for _, slot in slots)

    look(what_if.would.start)
    for record in what_if.log:
        replica.apply(record)
        look(max(record.header.time, what_if.would.start))
    steps = {step.time: step for step in what_if.would.slots}
    assert steps.keys() <= at.keys()
    last = what_if.would.slots[0]
    for time in sorted(at):
        last = steps.get(time, last)
        assert (last.total, last.used) == at[time], "a change is missing"


@functools.cache
def golden(name: str) -> tuple[Record, ...]:
    """Returns the golden log of a scenario of this version."""
    log = FileLog.open(GOLDEN / f"{name}.avro")
    try:
        return tuple(record for batch in read_to_end(log) for record in batch)
    finally:
        log.close()


@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() & {path.stem for path in GOLDEN.glob("*.avro")}))
def test_scenario_without_changes_repeats_golden_log(name: str) -> None:
    records = golden(name)
    end = max(record.header.time for record in records)
    for offset in range(-1, len(records) - 1, 6):
        history = MemoryHistory(records, -1)
        history = history.at(between_turns(history, offset) if offset >= 0 else -1)
        begin = time_at(history, history.offset) if offset >= 0 else records[0].header.time
        what_if = simulate(history, Scenario(until=end - begin))
        if what_if.really is not None:
            as_it_was(what_if, slack=SECOND)


@pytest.mark.parametrize("seed", range(6))
def test_simulation_continues_from_histories_with_all_faults(seed: int) -> None:
    """With false reports, zombies and duplicates the result is not always known, but roles continue from any state."""
    log = walk(seed).log
    offset = random.Random(seed).randint(-1, len(log) - 1)
    what_if = simulate(MemoryHistory(log, offset), parse_scenario("until: 2 min"))
    assert what_if.would.end == what_if.would.start + 120 * SECOND


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize("mode", ["standalone", "active"])
def test_shutdown_and_restart_of_cluster_are_repeated(mode: str, suspend: bool) -> None:
    studio = HistoryBuilder({"resourcemanager.mode": mode}, RandomTaskBehavior(3, failures=0.0, mean_s=60))
    workers = () if mode == "active" else ("te-1", "te-2")
    studio.start_workers(*workers)
    studio.schedule_at(2, studio.submit, "j1", 2)
    studio.schedule_at(30, studio.request, dispatcher.ShutDownCluster(reason="maintenance", suspend=suspend))
    studio.schedule_at(60, studio.start_master)
    studio.schedule_at(61, studio.start_workers, *workers)
    studio.schedule_at(70, studio.submit, "j2", 1)
    history = studio.run(RECORDED_S)
    for offset in range(-1, len(history.records) - 1, 20):
        begin = time_at(history, offset) if offset >= 0 else history.records[0].header.time
        what_if = simulate(history.at(offset), Scenario(until=END - begin))
        assert what_if.really is not None
        assert {job.job_id: job.status for job in what_if.really.jobs} == {
            job.job_id: job.status for job in what_if.would.jobs
        }


def test_measured_time_does_not_go_back() -> None:
    history = history_of(1).at(10)
    replica = history.replica()
    measure = OutcomeMetrics(replica, BEGIN + 10**12)
    for record in history.records[11:40]:
        measure.on_event(record, replica.apply(record))
    times = [step.time for step in measure.outcome(0).slots]
    assert times == sorted(set(times))
