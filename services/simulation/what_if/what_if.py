"""Simulates a part of a history again, with the changes of a scenario, and measures both.

The simulation starts from the states at the place, with the same leaders. From there on roles decide again. External
events happen again at their times, together with the events of the scenario. Decisions take no time. Everything else
takes as long as recorded, or, without a record, as long as it usually took before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from ....infra.config.option_types import DURATION
from ....schemas.event import Record
from ....schemas.job_master import StartJob
from ....schemas.types import JobGraph
from ...core.replica import Replica
from ...core.role import JOB_MASTER, TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...job_master.state import StartedJob
from ..checkpoint_storage import SimulatedStorage
from ..cluster import SimulatedCluster
from ..latencies import SECOND, Latencies, Work
from ..task_behavior import TaskBehavior, UniformTaskBehavior
from .event_injector import EventInjector
from .outcome_metrics import Outcome, OutcomeMetrics
from .recorded_tasks import RecordedTaskBehavior, RecordedTaskTimes
from .recorder import Recorder
from .recording import Recording
from .scenario import AS_RECORDED, FOREVER, Fail, Scenario, ScenarioError, Submit
from .scenario_validation import KnownEntities, check

DEFAULT_LENGTH: Time = 600 * SECOND
"""The minimum duration of a scenario without `until`."""
Batches = Iterable[Iterable[Record]]


class History(Protocol):
    """A log, and a place in it."""

    @property
    def cluster(self) -> str:
        """The cluster's id."""
        ...

    def replica(self) -> Replica:
        """Returns a new replica at the place."""
        ...

    def before(self) -> Batches:
        """Returns the events up to the place from which latencies are learned."""
        ...

    def after(self) -> Batches:
        """Returns all events after the place."""
        ...

    def start_of(self, job_id: str) -> StartJob | None:
        """Returns the StartJob of a job, from anywhere in the log."""
        ...


class WhatIf(msgspec.Struct, frozen=True):
    """The result of a scenario."""

    cluster: str
    offset: int
    """The place: the offset of the last real event."""
    scenario: Scenario
    really: Outcome | None
    """None: the log ends at the place."""
    would: Outcome
    log: tuple[Record, ...]
    """The simulated events after the place."""
    notes: tuple[str, ...]
    """The events of the scenario that had no effect."""


def simulate(
    history: History, scenario: Scenario, on_simulated: Callable[[int], object] = lambda _: None
) -> WhatIf:
    """`on_simulated` is called with the number of simulated events.

    Raises ScenarioError if the scenario does not fit the history, and what reading it raises.
    """
    fixed = {} if scenario.start is None else {Work.START_TASK: scenario.start}
    latencies, last_events = Latencies(scenario.seed, fixed), dict[str, Time]()
    likes = {event.action.like for event in scenario.events if isinstance(event.action, Submit)}
    failing = {event.action.job_id for event in scenario.events if isinstance(event.action, Fail)}
    whole = RecordedTaskTimes() if likes else None
    start = _learn_latencies(history.before(), latencies, whole, last_events) or _first_time(history.after())
    real = history.replica()
    offset = real.offset
    measure = OutcomeMetrics(real, start)
    recorder = Recorder(real, start, measure, latencies, last_events, likes | failing)
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
        like: graph for like in likes if (graph := _graph(history, replica, recording, like)) is not None
    }
    known = KnownEntities(replica, recording, graphs)
    check(scenario, known)
    measured = OutcomeMetrics(replica, start, until)

    def on_event(record: Record, changed: Collection[str]) -> None:
        measured.on_event(record, changed)
        on_simulated(len(cluster.simulator.log))

    cluster = SimulatedCluster(
        replica,
        cluster=history.cluster,
        now=start,
        behavior=_task_behavior(scenario, recording, whole, latencies),
        latencies=latencies,
        storage=SimulatedStorage(corrupt_uris=set(recording.effects.corrupt_uris)),
        find_recorded=recording.effects.take_effect,
        on_event=on_event,
    )
    for resource_id in sorted(recording.dead_task_executors):
        session = cluster.simulator.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            cluster.simulator.kill(session)
    injector = EventInjector(cluster, scenario, recording, known)
    injector.schedule_all()
    cluster.simulator.run(until + recording.clock_offset)
    would, log = measured.outcome(until), tuple(cluster.simulator.log)
    return WhatIf(history.cluster, offset, scenario, really, would, log, tuple(injector.notes))


def _check_times(scenario: Scenario, length: Time) -> None:
    for event in scenario.events:
        if event.at > length:
            at, end = DURATION.write(event.at), DURATION.write(length)
            raise ScenarioError(
                f"{event.where}: at: {at} is behind the end of the scenario, {end}: give `until: {at}`, or more"
            )


def _learn_latencies(
    batches: Batches, latencies: Latencies, scripts: RecordedTaskTimes | None, last_events: dict[str, Time]
) -> Time:
    """Learns the latencies; returns the time of the place."""
    now = 0
    for batch in batches:
        for record in batch:
            now = max(now, record.header.time)
            latencies.on_event(record)
            if scripts is not None:
                scripts.on_event(record, now)
            if kind_of(record.header.sender) == TASK_EXECUTOR:
                last_events[instance_of(record.header.sender)] = now
    return now


def _first_time(batches: Batches) -> Time:
    return next((record.header.time for batch in batches for record in batch), 0)


def _record_history(
    history: History, recorder: Recorder, whole: RecordedTaskTimes | None, start: Time, length: Time | None
) -> Recording:
    end = None if length is None else start + length
    now = start
    for batch in history.after():
        for record in batch:
            now = max(now, record.header.time)
            if end is not None and now > end:
                return recorder.finish(end)
            recorder.on_event(record)
            if whole is not None:
                whole.on_event(record, now)
    return recorder.finish()


def _graph(history: History, replica: Replica, recording: Recording, job_id: str) -> JobGraph | None:
    found = recording.graphs.get(job_id)
    if found is None and (start := history.start_of(job_id)) is not None:
        found = start.job_graph
    if found is None:
        state = replica.states.get(address(JOB_MASTER, job_id))
        found = state.graph if isinstance(state, StartedJob) else None
    return found


def _task_behavior(
    scenario: Scenario, recording: Recording, whole: RecordedTaskTimes | None, latencies: Latencies
) -> TaskBehavior:
    match scenario.run:
        case str() if scenario.run == AS_RECORDED:
            recorded = RecordedTaskBehavior(
                recording.task_times,
                recording.acks,
                latencies,
                fixed_start=scenario.start is not None,
            )
            for event in scenario.events:
                if isinstance(event.action, Submit) and whole is not None:
                    recorded.like(event.action.job_id, event.action.like, whole)
            return recorded
        case str() if scenario.run == FOREVER:
            return UniformTaskBehavior(latencies)
        case int():
            return UniformTaskBehavior(latencies, scenario.run)
        case _:
            raise TypeError(f"tasks can't run {scenario.run!r}")
