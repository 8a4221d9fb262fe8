"""Has a stretch of history happen again, with a scenario's changes, and measures both.

The states at the place are taken as they are, and those who lead there go on. From there on roles decide anew; what
came from outside happens again at its time, and the scenario's events beside it. Deciding takes no time here, and what
else takes time takes as long as it did then, where it did, or as it usually did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from ....infra.config.option_types import DURATION
from ....schemas.event import Record
from ....schemas.job_master import StartJob
from ....schemas.types import JobGraph
from ...core.replica import Replica
from ...core.role import JOB_MASTER, TASK_EXECUTOR, Time, address
from ...job_master.state import JobMasterState
from ..checkpoint_storage import SimulatedStorage
from ..latencies import SECOND, Latencies, Work
from ..master_effects import SimulatedMasterEffects
from ..simulated_tasks import SimulatedTasks
from ..simulator import Simulator
from ..task_behavior import TaskBehavior, UniformTaskBehavior
from ..task_executors import SimulatedTaskExecutors
from .event_injector import EventInjector
from .last_events import LastEventTimes
from .outcome_metrics import Outcome, OutcomeMetrics
from .recorded_task_behavior import RecordedTaskBehavior
from .recorded_task_times import RecordedTaskTimes
from .recorder import Recorder
from .recording import Recording
from .scenario import AS_RECORDED, FOREVER, Fail, Scenario, ScenarioError, Submit
from .scenario_validation import KnownEntities, check

DEFAULT_LENGTH: Time = 600 * SECOND
"""How long a scenario goes on at least, where nothing is said."""
Batches = Iterable[Iterable[Record]]


class History(Protocol):
    """A log, seen from a place in it."""

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        ...

    def replica(self) -> Replica:
        """A new one, at the place."""
        ...

    def before(self) -> Batches:
        """What there is to learn from, up to the place."""
        ...

    def after(self) -> Batches:
        """All behind it."""
        ...

    def start_of(self, job_id: str) -> StartJob | None:
        """How a job was started, wherever in the log."""
        ...


class WhatIf(msgspec.Struct, frozen=True):
    """What came of a scenario."""

    cluster: str
    offset: int
    """The place: the last event that is as it was."""
    scenario: Scenario
    really: Outcome | None
    """None: nothing is behind the place."""
    would: Outcome
    log: tuple[Record, ...]
    """What would have been said, from the place on."""
    notes: tuple[str, ...]
    """Of the scenario's events that came to nothing."""


def simulate(
    history: History, scenario: Scenario, on_simulated: Callable[[int], object] = lambda _: None
) -> WhatIf:
    """`on_simulated` is told how many events have been simulated.

    Raises ScenarioError for what the history has no place for, and what reading it raises.
    """
    fixed = {} if scenario.start is None else {Work.START_TASK: scenario.start}
    latencies, voices = Latencies(scenario.seed, fixed), LastEventTimes()
    likes = {each.action.like for each in scenario.events if isinstance(each.action, Submit)}
    failing = {each.action.job_id for each in scenario.events if isinstance(each.action, Fail)}
    whole = RecordedTaskTimes() if likes else None
    start = _learn_latencies(history.before(), latencies, whole, voices) or _first_time(history.after())
    real = history.replica()
    offset = real.offset
    measure = OutcomeMetrics(real, start)
    recorder = Recorder(real, start, measure, latencies, voices, likes | failing)
    recording = _record_history(history, recorder, whole, start, scenario.until)
    length = (
        max(DEFAULT_LENGTH, recording.end - recording.clock_offset - start)
        if scenario.until is None
        else scenario.until
    )
    _check_times(scenario, length)
    until = start + length
    really = measure.outcome(min(until, recording.end - recording.clock_offset)) if recording.count else None

    replica = history.replica()
    graphs = {
        each: graph for each in likes if (graph := _graph(history, replica, recording, each)) is not None
    }
    known = KnownEntities(replica, recording, graphs)
    check(scenario, known)
    world, happenings, seen = _create_simulator(
        history.cluster, replica, scenario, recording, latencies, whole, known, start, until, on_simulated
    )
    happenings.schedule_all()
    world.run(until + recording.clock_offset)
    would = seen.outcome(until)
    return WhatIf(history.cluster, offset, scenario, really, would, tuple(world.log), tuple(happenings.notes))


def _check_times(scenario: Scenario, length: Time) -> None:
    for event in scenario.events:
        if event.at > length:
            at, end = DURATION.write(event.at), DURATION.write(length)
            raise ScenarioError(
                f"{event.where}: at: {at} is behind the end of the scenario, {end}: give `until: {at}`, or more"
            )


def _learn_latencies(
    batches: Batches, latencies: Latencies, scripts: RecordedTaskTimes | None, voices: LastEventTimes
) -> Time:
    """Returns the time of the place."""
    now = 0
    for batch in batches:
        for each in batch:
            now = max(now, each.header.time)
            latencies.on_event(each)
            if scripts is not None:
                scripts.on_event(each, now)
            voices.on_event(each, now)
    return now


def _first_time(batches: Batches) -> Time:
    return next((each.header.time for batch in batches for each in batch), 0)


def _record_history(
    history: History, recorder: Recorder, whole: RecordedTaskTimes | None, start: Time, length: Time | None
) -> Recording:
    end = None if length is None else start + length
    now = start
    for batch in history.after():
        for each in batch:
            now = max(now, each.header.time)
            if end is not None and now > end:
                return recorder.finish(end)
            recorder.on_event(each)
            if whole is not None:
                whole.on_event(each, now)
    return recorder.finish()


def _graph(history: History, replica: Replica, recording: Recording, job_id: str) -> JobGraph | None:
    found = recording.graphs.get(job_id)
    if found is None and (said := history.start_of(job_id)) is not None:
        found = said.job_graph
    if found is None:
        state = replica.states.get(address(JOB_MASTER, job_id))
        found = state.graph if isinstance(state, JobMasterState) else None
    return found


def _create_simulator(
    cluster: str,
    replica: Replica,
    scenario: Scenario,
    recording: Recording,
    latencies: Latencies,
    whole: RecordedTaskTimes | None,
    known: KnownEntities,
    start: Time,
    until: Time,
    on_simulated: Callable[[int], object],
) -> tuple[Simulator, EventInjector, OutcomeMetrics]:
    measure = OutcomeMetrics(replica, start, until)
    workers: list[SimulatedTaskExecutors] = []

    def on_event(record: Record, changed: Iterable[str]) -> None:
        measure.on_event(record, changed)
        for each in workers:
            each.on_event(record)
        on_simulated(len(world.log))

    world = Simulator(replica, cluster=cluster, now=start, on_event=on_event)
    storage = SimulatedStorage(corrupt_uris=set(recording.answers.torn))
    life = _task_behavior(scenario, recording, whole, latencies)
    attempts = SimulatedTasks(world, life, storage)
    workers.append(SimulatedTaskExecutors(world, attempts, latencies))
    masters = SimulatedMasterEffects(
        world, workers[0], latencies, storage, told=recording.answers.take_effect
    )
    world.shells = {TASK_EXECUTOR: attempts, **dict.fromkeys(SimulatedMasterEffects.KINDS, masters)}
    for resource_id in sorted(recording.dead_sessions):
        session = world.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            world.kill(session)
    happenings = EventInjector(world, workers[0], attempts, masters, scenario, recording, known)
    return world, happenings, measure


def _task_behavior(
    scenario: Scenario, recording: Recording, whole: RecordedTaskTimes | None, latencies: Latencies
) -> TaskBehavior:
    match scenario.run:
        case str() if scenario.run == AS_RECORDED:
            recorded = RecordedTaskBehavior(
                recording.scripts,
                recording.contributions,
                latencies,
                fixed_start=scenario.start is not None,
            )
            for each in scenario.events:
                if isinstance(each.action, Submit) and whole is not None:
                    recorded.like(each.action.job_id, each.action.like, whole)
            return recorded
        case str() if scenario.run == FOREVER:
            return UniformTaskBehavior(latencies)
        case int():
            return UniformTaskBehavior(latencies, scenario.run)
        case _:
            raise TypeError(f"tasks can't run {scenario.run!r}")
