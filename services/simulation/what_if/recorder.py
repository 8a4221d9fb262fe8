"""What really happened behind a place in a log, taken apart: what came from outside, and what came of it.

What clients asked for, which processes began, ended or were not heard, what leaders were configured with, how long
tasks ran and how they ended: that came from outside, and happens again. What roles decided does not: it is decided
again. Who was not heard is a matter of its own (`silences`).
"""

from __future__ import annotations

from collections.abc import Collection

from ....schemas import dispatcher, job_master, resource_manager
from ....schemas.event import Event, Record
from ....schemas.everyone import ConfigurationChanged, FeatureLevelRaised, LeaderElected
from ...core.replica import Replica
from ...core.role import CLIENT, DISPATCHER, RESOURCE_MANAGER, TASK_EXECUTOR, Time, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from ...job_master.state import JobMasterState
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.worker_pool import WorkerState
from ...task_executor.state import TaskExecutorState
from ..latencies import Latencies
from ..task_behavior import Subtask
from .distinct_clock import DistinctClock
from .external_events import (
    ClientRequest,
    ConfigurationChange,
    ContradictionEvent,
    FeatureLevelRaise,
    LeaderElection,
    MastersEnded,
    ReportMismatch,
    RolePaused,
    WorkerEnded,
    WorkerLeft,
    WorkerRegistered,
    WorkerStarted,
    WorkerStartFailed,
)
from .last_events import LastEventTimes
from .outage_detector import OutageDetector
from .outcome_metrics import OutcomeMetrics
from .recorded_effects import RecordedEffects
from .recording import Recording

_CHECKPOINT_EVENTS = job_master.AcknowledgeCheckpoint | job_master.UpdateTaskExecutionState
"""What may be the last that a checkpoint waits for."""
_PRESENT_STATES = frozenset({WorkerState.REGISTERED, WorkerState.RELEASING})


class Recorder:
    """Makes a Recording of what a replica folds, beginning where it is. `measure` looks at the same."""

    def __init__(
        self,
        replica: Replica,
        start: Time,
        measure: OutcomeMetrics,
        latencies: Latencies,
        voices: LastEventTimes,
        wanted: Collection[str] = (),
    ) -> None:
        """`latencies` and `voices` have seen what was before; `wanted`: jobs whose graphs are kept."""
        self._replica = replica
        self._clock = DistinctClock(start)
        self._measure = measure
        self._latencies = latencies
        latencies.start_learning()
        self._voices = voices
        self._wanted = wanted
        self._recording = Recording(RecordedEffects(start), start, end=start)
        self._silences = OutageDetector(replica, self._recording, voices)
        self._first = replica.offset + 1
        self._times: list[Time] = []
        manager = replica.states.get(RESOURCE_MANAGER)
        pool = manager.pool.workers if isinstance(manager, ResourceManagerState) else {}
        self._begun = {each for each, worker in pool.items() if worker.state is WorkerState.STARTED}
        """Workers of the driver's whose processes had begun at the beginning, and had not registered."""
        there = {each for each, worker in pool.items() if worker.state in _PRESENT_STATES}
        for each in replica.active_addresses:
            state = replica.states[each]
            if isinstance(state, TaskExecutorState):
                resource_id = instance_of(each)
                self._recording.workers.add(resource_id)
                if resource_id not in there:
                    self._silences.suspect(resource_id)
                for task in state.tasks.values():
                    self._recording.scripts.adopt(
                        task,
                        each,
                        start,
                        is_there=resource_id in there,
                        stopping=task.execution_attempt_id in state.stopping,
                    )
            elif isinstance(state, JobMasterState):
                for number in state.checkpoints.pending:
                    self._recording.contributions.on_triggered(state.job_id, number, start)
                self._recording.answers.follow(state, start)

    def on_event(self, record: Record) -> None:
        """The next event of the log; the replica folds it here."""
        replica, recording = self._replica, self._recording
        before, now = self._clock.now, self._clock.make_distinct(record.header.time)
        # Offsets without an event are as late as what was before them.
        self._times += [before] * (record.offset - self._first - len(self._times))
        self._times.append(now)
        self._silences.advance_time(now)
        admitted = replica.leadership.accepts(record)
        if admitted:
            caused, subtask = self._time_of_event(record.header.cause), self._subtask(record)
            self._latencies.on_event(record)
            self._silences.on_session_event(record, now)
            self._voices.on_event(record, now)
            self._record_external_event(record)
            recording.answers.on_event(record, now, caused)
            recording.contributions.on_event(record, now, subtask)
            recording.scripts.on_event(record, now, caused)
        changed = replica.apply(record)
        if admitted and isinstance(record.body, _CHECKPOINT_EVENTS):
            for each in changed:
                state = replica.states[each]
                if isinstance(state, JobMasterState):
                    recording.answers.follow(state, now)
        self._silences.on_event(record, changed, now)
        self._measure.on_event(record, changed)
        recording.end, recording.clock_offset = now, self._clock.offset
        recording.count += 1

    def finish(self, end: Time | None = None) -> Recording:
        """What there is, once all events have been seen; `end`: there are more behind that time."""
        recording = self._recording
        if end is not None:
            recording.end = end + recording.clock_offset
        self._silences.finish()
        # Who is gone at the time of something has not heard it.
        recording.facts.sort(key=lambda each: (each[0], not isinstance(each[1], RolePaused | MastersEnded)))
        recording.scripts.finish(recording.end)
        self._latencies.finish(recording.end)
        recording.contributions.finish(recording.end)
        return recording

    @property
    def _now(self) -> Time:
        return self._clock.now

    def _time_of_event(self, offset: int | None) -> Time | None:
        """When that was said; None before the place."""
        if offset is None or not 0 <= offset - self._first < len(self._times):
            return None
        return self._times[offset - self._first]

    def _subtask(self, record: Record) -> Subtask | None:
        attempt = getattr(record.body, "execution_attempt_id", None)
        return None if attempt is None else self._recording.scripts.subtask_of(attempt)

    def _record_external_event(self, record: Record) -> None:
        recording, now, header, body = self._recording, self._now, record.header, record.body
        if kind_of(header.sender) == CLIENT:
            recording.add(now, ClientRequest(Event(header, body)))
        match body:
            case dispatcher.SubmitJob(job_id=job_id):
                recording.jobs.add(job_id)
            case LeaderElected(role=role):
                self._record_election(role, body)
            case ConfigurationChanged(configuration=configuration):
                recording.add(now, ConfigurationChange(dict(configuration)))
            case FeatureLevelRaised(level=level):
                # Where somebody asked for it, it will be demanded again.
                state = self._replica.states.get(DISPATCHER)
                if not isinstance(state, DispatcherState) or state.configuration is None:
                    recording.add(now, FeatureLevelRaise(level))
            case resource_manager.RegisterTaskExecutor(resource_id=resource_id):
                state = self._replica.states.get(header.sender)
                is_first = isinstance(state, TaskExecutorState) and state.registration is None
                if is_first and not self._is_driven(resource_id):
                    recording.add(now, WorkerRegistered(body))
            case resource_manager.WorkerLost():
                self._record_loss(body, self._time_of_event(header.cause))
            case resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason):
                state = self._replica.states.get(header.sender)
                if isinstance(state, TaskExecutorState) and state.leaving is None:
                    recording.add(now, WorkerLeft(resource_id, reason))
                    recording.scripts.on_interrupted(resource_id, now)
            case _ if isinstance(body, ContradictionEvent) and not header.decided:
                self._record_mismatch(header.sender, body)
            case job_master.StartJob(job_id=job_id, job_graph=graph) if job_id in self._wanted:
                recording.graphs[job_id] = graph
            case _:
                pass

    def _record_mismatch(self, role_address: str, body: ContradictionEvent) -> None:
        subtasks: list[Subtask] = []
        if isinstance(body, job_master.TasksContradicted):
            found = map(self._recording.scripts.subtask_of, body.execution_attempt_ids)
            subtasks = [each for each in found if each is not None]
            self._recording.scripts.on_executions_lost(body.execution_attempt_ids, self._now)
        elif isinstance(body, resource_manager.SlotReportContradicted):
            manager = self._replica.states.get(RESOURCE_MANAGER)
            known = (
                manager.workers.get(body.resource_id) if isinstance(manager, ResourceManagerState) else None
            )
            if known is None or known.instance_id != body.instance_id:
                # Of a registration that is over.
                return
        self._recording.add(self._now, ReportMismatch(role_address, body, tuple(subtasks)))

    def _record_election(self, role: str, body: LeaderElected) -> None:
        recording, now = self._recording, self._now
        if kind_of(role) == TASK_EXECUTOR:
            resource_id = instance_of(role)
            recording.workers.add(resource_id)
            recording.returned_workers.add(resource_id)
            self._silences.on_session_started(resource_id)
            if not self._is_driven(resource_id):
                recording.add(now, WorkerStarted(resource_id))
            return
        self._silences.on_deposed(role, body.session)
        recording.add(now, LeaderElection(body))

    def _is_driven(self, resource_id: str) -> bool:
        """Whether its process will be begun by a driver, because it is demanded."""
        manager = self._replica.states.get(RESOURCE_MANAGER)
        worker = manager.pool.get(resource_id) if isinstance(manager, ResourceManagerState) else None
        return worker is not None and worker.driven and resource_id not in self._begun

    def _record_loss(self, body: resource_manager.WorkerLost, asked: Time | None) -> None:
        manager = self._replica.states.get(RESOURCE_MANAGER)
        if not isinstance(manager, ResourceManagerState):
            return
        recording, resource_id, now = self._recording, body.resource_id, self._now
        registered, worker = manager.workers.get(resource_id), manager.pool.get(resource_id)
        if registered is None and worker is not None and worker.driven and body.exited:
            if worker.state is WorkerState.REQUESTED:
                recording.answers.on_worker_start_failed(body, now, asked)
            elif worker.state is WorkerState.STARTED:
                recording.add(now, WorkerStartFailed(resource_id, body.reason))
            return
        if registered is None or worker is None or worker.state is not WorkerState.REGISTERED:
            # Its end was wanted, or is known already.
            return
        if body.instance_id not in (registered.instance_id, None):
            return
        if body.exited:
            recording.add(now, WorkerEnded(resource_id, body.reason, seen=True, noticed=0))
            recording.scripts.on_interrupted(resource_id, now)
            return
        # Before it is known where its tasks go on.
        recording.scripts.on_interrupted(resource_id, self._silences.on_lost(resource_id, body.reason, now))
