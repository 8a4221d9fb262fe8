"""Records the external events after a place in a log, so that a simulation can repeat them.

External are the requests of clients, the starts, ends and hangs of processes, elections, the configurations of leaders,
and the behavior of tasks and effects. The decisions of roles are not recorded: the roles decide again.
"""

from __future__ import annotations

from collections.abc import Collection

from ....schemas import dispatcher, job_master, resource_manager
from ....schemas.event import Event, Record
from ....schemas.everyone import ConfigurationChanged, FeatureLevelRaised, LeaderElected
from ...core.replica import Replica
from ...core.role import CLIENT, DISPATCHER, RESOURCE_MANAGER, TASK_EXECUTOR, Time, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from ...job_master.state import StartedJob
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.worker_pool import WorkerState
from ...task_executor.state import TaskExecutorState
from ..latencies import Latencies
from ..task_behavior import Subtask
from .external_actions import ContradictionEvent
from .outages import OutageDetector
from .outcome_metrics import OutcomeMetrics
from .recorded_effects import RecordedEffects
from .recording import Recording

_CHECKPOINT_EVENTS = job_master.AcknowledgeCheckpoint | job_master.UpdateTaskExecutionState
"""Events of which one may be the last that a checkpoint waits for."""
_PRESENT_STATES = frozenset({WorkerState.REGISTERED, WorkerState.RELEASING})


class Recorder:
    """Creates a Recording of the events that it folds into a replica."""

    def __init__(
        self,
        replica: Replica,
        start: Time,
        measure: OutcomeMetrics,
        latencies: Latencies,
        last_events: dict[str, Time],
        wanted: Collection[str] = (),
    ) -> None:
        """`latencies` and `last_events` (of TaskExecutors) have seen the events before; `wanted`: the jobs whose graphs
        are recorded."""
        self._replica = replica
        self._latest = self._now = start
        self._measure = measure
        self._latencies = latencies
        latencies.start_recording()
        self._last_events = last_events
        self._wanted = wanted
        self._recording = Recording(RecordedEffects(start), start, end=start)
        self._outages = OutageDetector(replica, self._recording, last_events)
        self._first = replica.offset + 1
        self._times: list[Time] = []
        manager = self._manager()
        pool = {} if manager is None else manager.pool.workers
        self._started = {
            resource_id for resource_id, worker in pool.items() if worker.state is WorkerState.STARTED
        }
        """Workers of the driver whose processes had started before the start, and had not registered."""
        present = {resource_id for resource_id, worker in pool.items() if worker.state in _PRESENT_STATES}
        for role_address in replica.active_addresses:
            state = replica.states[role_address]
            if isinstance(state, TaskExecutorState):
                resource_id = instance_of(role_address)
                self._recording.task_executors.add(resource_id)
                if resource_id not in present:
                    self._outages.suspect(resource_id)
                for task in state.tasks.values():
                    self._recording.task_times.adopt(
                        task,
                        role_address,
                        start,
                        is_there=resource_id in present,
                        stopping=task.execution_attempt_id in state.stopping,
                    )
            elif isinstance(state, StartedJob):
                for number in state.checkpoints.pending:
                    self._recording.acks.on_triggered(state.job_id, number, start)
                self._recording.effects.follow(state, start)

    def on_event(self, record: Record) -> None:
        """Folds the next event of the log."""
        replica, recording, before = self._replica, self._recording, self._now
        now = self._advance(record.header.time)
        # Offsets without an event have the time of the event before them.
        self._times += [before] * (record.offset - self._first - len(self._times))
        self._times.append(now)
        accepted = replica.leadership.accepts(record)
        self._outages.before_event(record, now, is_accepted=accepted)
        if accepted:
            caused = self._time_of_event(record.header.cause)
            self._latencies.on_event(record)
            if kind_of(record.header.sender) == TASK_EXECUTOR:
                self._last_events[instance_of(record.header.sender)] = now
            self._record_external_event(record)
            recording.effects.on_event(record, now, caused)
            recording.acks.on_event(record, now, recording.task_times.subtask_of)
            recording.task_times.on_event(record, now, caused)
        changed = replica.apply(record)
        if accepted and isinstance(record.body, _CHECKPOINT_EVENTS):
            for role_address in changed:
                state = replica.states[role_address]
                if isinstance(state, StartedJob):
                    recording.effects.follow(state, now)
        self._outages.after_event(record, changed, now)
        self._measure.on_event(record, changed)
        recording.end, recording.clock_offset = now, now - self._latest
        recording.count += 1

    def finish(self, end: Time | None = None) -> Recording:
        """Returns the recording. `end`: the log has more events after that time."""
        recording = self._recording
        if end is not None:
            recording.end = end + recording.clock_offset
        self._outages.finish()
        recording.events.sort(key=lambda event: (event.time, not event.is_absence))
        recording.task_times.finish(recording.end)
        self._latencies.finish(recording.end)
        recording.acks.finish(recording.end)
        return recording

    def _advance(self, time: Time) -> Time:
        """Makes the times of events distinct, so that a simulation keeps the order of the log: each is later than the
        one before, by a microsecond where the event's own time is not."""
        ahead = self._now - self._latest + (time <= self._latest)
        self._latest = max(self._latest, time)
        self._now = self._latest + ahead
        return self._now

    def _time_of_event(self, offset: int | None) -> Time | None:
        """Returns when an event was sent; None before the start."""
        if offset is None or not 0 <= offset - self._first < len(self._times):
            return None
        return self._times[offset - self._first]

    def _manager(self) -> ResourceManagerState | None:
        state = self._replica.states.get(RESOURCE_MANAGER)
        return state if isinstance(state, ResourceManagerState) else None

    def _record_external_event(self, record: Record) -> None:
        recording, now, header, body = self._recording, self._now, record.header, record.body
        if kind_of(header.sender) == CLIENT:
            recording.add(now, lambda target: target.admit(Event(header, body)))
        match body:
            case dispatcher.SubmitJob(job_id=job_id):
                recording.jobs.add(job_id)
            case LeaderElected(role=role):
                self._record_election(role, body)
            case ConfigurationChanged(configuration=configuration):
                recording.add(now, lambda target: target.configure(dict(configuration)))
            case FeatureLevelRaised(level=level):
                # If a client requested it, the repeated request raises it again.
                state = self._replica.states.get(DISPATCHER)
                if not isinstance(state, DispatcherState) or state.configuration is None:
                    recording.add(now, lambda target: target.masters.raise_level(level))
            case resource_manager.RegisterTaskExecutor(resource_id=resource_id):
                state = self._replica.states.get(header.sender)
                is_first = isinstance(state, TaskExecutorState) and state.registration is None
                if is_first and not self._is_driven(resource_id):
                    recording.add(now, lambda target: target.task_executors.register(body))
            case resource_manager.WorkerLost():
                self._record_loss(body, self._time_of_event(header.cause))
            case resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason):
                state = self._replica.states.get(header.sender)
                if isinstance(state, TaskExecutorState) and state.leaving is None:
                    recording.add(now, lambda target: target.task_executors.leave(resource_id, reason))
                    recording.task_times.on_interrupted(resource_id, now)
            case _ if isinstance(body, ContradictionEvent) and not header.decided:
                self._record_contradiction(header.sender, body)
            case job_master.StartJob(job_id=job_id, job_graph=graph) if job_id in self._wanted:
                recording.graphs[job_id] = graph
            case _:
                pass

    def _record_contradiction(self, role_address: str, body: ContradictionEvent) -> None:
        subtasks: list[Subtask] = []
        if isinstance(body, job_master.TasksContradicted):
            found = map(self._recording.task_times.subtask_of, body.execution_attempt_ids)
            subtasks = [subtask for subtask in found if subtask is not None]
            self._recording.task_times.on_executions_lost(body.execution_attempt_ids, self._now)
        elif isinstance(body, resource_manager.SlotReportContradicted):
            manager = self._manager()
            registered = None if manager is None else manager.workers.get(body.resource_id)
            if registered is None or registered.instance_id != body.instance_id:
                # Of an earlier registration.
                return
        self._recording.add(self._now, lambda target: target.contradict(role_address, body, subtasks))

    def _record_election(self, role: str, body: LeaderElected) -> None:
        recording, now = self._recording, self._now
        if kind_of(role) != TASK_EXECUTOR:
            self._outages.on_elected(role, body.session)
            recording.add(now, lambda target: target.lead(body))
            return
        resource_id = instance_of(role)
        recording.task_executors.add(resource_id)
        recording.started_task_executors.add(resource_id)
        self._outages.on_process_started(resource_id)
        if not self._is_driven(resource_id):
            recording.add(now, lambda target: target.task_executors.begin_process(resource_id))

    def _is_driven(self, resource_id: str) -> bool:
        """Returns whether a driver will start the process again, by an instruction."""
        manager = self._manager()
        worker = None if manager is None else manager.pool.get(resource_id)
        return worker is not None and worker.driven and resource_id not in self._started

    def _record_loss(self, body: resource_manager.WorkerLost, caused: Time | None) -> None:
        manager = self._manager()
        if manager is None:
            return
        recording, resource_id, now, reason = self._recording, body.resource_id, self._now, body.reason
        registered, worker = manager.workers.get(resource_id), manager.pool.get(resource_id)
        if registered is None and worker is not None and worker.driven and body.exited:
            if worker.state is WorkerState.REQUESTED:
                recording.effects.on_worker_start_failed(body, now, caused)
            elif worker.state is WorkerState.STARTED:
                recording.add(now, lambda target: target.masters.fail_worker_start(resource_id, reason))
            return
        if registered is None or worker is None or worker.state is not WorkerState.REGISTERED:
            # Its end was requested, or is known already.
            return
        if body.instance_id not in (registered.instance_id, None):
            return
        if body.exited:
            recording.add(
                now,
                lambda target: target.end_task_executor(resource_id, reason, 0, seen=True),
                is_absence=True,
            )
            recording.task_times.on_interrupted(resource_id, now)
            return
        # Before it is known where its tasks continue.
        recording.task_times.on_interrupted(resource_id, self._outages.on_lost(resource_id, reason, now))
