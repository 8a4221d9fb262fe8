"""Injects events into a simulation: the recorded external events, and the events of the scenario."""

from __future__ import annotations

import functools

from msgspec.structs import replace

from ....schemas import dispatcher, job_master, resource_manager
from ....schemas.body import Body
from ....schemas.event import Event
from ....schemas.everyone import LeaderElected
from ....schemas.types import Header
from ...configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ...configuration.options.task_executor import NUMBER_OF_TASK_SLOTS
from ...configuration.options.zookeeper import ZOOKEEPER_SESSION_TIMEOUT
from ...core.role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    OutgoingEvent,
    Time,
    address,
    instance_of,
    kind_of,
)
from ...dispatcher.state import DispatcherState
from ...job_master.state import JobMasterState
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.worker_pool import WorkerState
from ..master_effects import SimulatedMasterEffects
from ..simulated_tasks import SimulatedTasks
from ..simulator import Simulator
from ..task_events import ADDRESS
from ..task_executors import SimulatedTaskExecutors
from .external_events import (
    ClientRequest,
    ConfigurationChange,
    ExternalEvent,
    FeatureLevelRaise,
    HeartbeatOutage,
    LeaderElection,
    MastersEnded,
    ReportMismatch,
    RolePaused,
    RoleResumed,
    WorkerEnded,
    WorkerLeft,
    WorkerRegistered,
    WorkerStarted,
    WorkerStartFailed,
)
from .recording import Recording
from .scenario import Cancel, Fail, Join, Kill, KillLeader, Scenario, ScenarioEvent, Submit
from .scenario_validation import KnownEntities, find_subtask, with_parallelism

_CLIENT = address(CLIENT, "what-if")
_REGISTRATION_LATENCY: Time = 10_000


class EventInjector:
    """`foretell` puts all of it into the world; `notes` are of what came to nothing, once the world has run."""

    def __init__(
        self,
        world: Simulator,
        workers: SimulatedTaskExecutors,
        attempts: SimulatedTasks,
        masters: SimulatedMasterEffects,
        scenario: Scenario,
        recording: Recording,
        known: KnownEntities,
    ) -> None:
        self._world = world
        self._workers = workers
        self._attempts = attempts
        self._masters = masters
        self._scenario = scenario
        self._recording = recording
        self._known = known
        self._asked: list[Event] = []
        """What clients said while nobody was there to admit it."""
        self._takeovers = self._requests = 0
        self.notes: list[str] = []

    def schedule_all(self) -> None:
        """All that happens, from now on."""
        world, begin = self._world, self._world.now
        if self._scenario.configuration:
            self._configure(self._known.configuration)
        manager = world.replica.states.get(RESOURCE_MANAGER)
        pool = manager.pool.workers if isinstance(manager, ResourceManagerState) else {}
        for resource_id, worker in sorted(pool.items()):
            if worker.state is WorkerState.STARTED and resource_id not in self._recording.returned_workers:
                self._masters.begin_worker_process(resource_id, worker.number_of_slots)
        timeout = self._new_timeout()
        for time, fact in self._recording.facts:
            if isinstance(fact, HeartbeatOutage) and timeout is not None:
                time = fact.since + timeout
                if time >= fact.until:
                    # It is heard again before anybody misses it.
                    continue
            if time <= begin and isinstance(fact, RolePaused | MastersEnded | WorkerEnded):
                # So it was at the place: before anybody says anything.
                self._repeat_fact(fact)
            else:
                world.schedule_at(time, functools.partial(self._repeat_fact, fact))
        for event in self._scenario.events:
            world.schedule_at(begin + event.at, functools.partial(self._inject_scenario_event, event))

    def _new_timeout(self) -> Time | None:
        """How long a silence counts as a loss, if that is what the scenario changes."""
        changed = self._scenario.configuration
        return HEARTBEAT_TIMEOUT.of(changed) if HEARTBEAT_TIMEOUT.key in changed else None

    def _repeat_fact(self, fact: ExternalEvent) -> None:
        world, workers = self._world, self._workers
        match fact:
            case ClientRequest(event=event):
                self._admit(event)
            case MastersEnded(session=session):
                world.kill(session)
            case LeaderElection(body=body):
                self._lead(body)
            case ConfigurationChange(configuration=configuration):
                self._configure(configuration)
            case FeatureLevelRaise(level=level):
                self._masters.raise_level(level)
            case WorkerStarted(resource_id=resource_id):
                workers.begin_process(resource_id)
            case WorkerStartFailed(resource_id=resource_id, reason=reason):
                self._masters.fail_worker_start(resource_id, reason)
            case WorkerRegistered(body=body):
                workers.register(body)
            case WorkerEnded(resource_id=resource_id, reason=reason, seen=seen, noticed=noticed):
                after = noticed if seen or self._new_timeout() is None else None
                workers.kill(resource_id, reason, seen=seen, noticed_after=after)
            case RolePaused(role_address=role_address):
                if (hung := world.session(role_address)) is not None:
                    world.pause(hung)
                    self._attempts.pause(role_address)
            case HeartbeatOutage(resource_id=resource_id, reason=reason):
                workers.lose_heartbeats(resource_id, reason)
            case RoleResumed(role_address=role_address):
                if (hung := world.session(role_address)) is not None:
                    world.resume(hung)
                    self._attempts.resume(role_address)
            case ReportMismatch():
                self._notice(fact)
            case WorkerLeft(resource_id=resource_id, reason=reason):
                if workers.is_running(resource_id):
                    workers.leave(resource_id, reason)

    def _inject_scenario_event(self, event: ScenarioEvent) -> None:
        match event.action:
            case Kill(resource_id=resource_id, silent=silent):
                if not self._workers.is_running(resource_id):
                    self._add_note(event, f"{resource_id} is not there at that time")
                self._workers.kill(resource_id, "its process was killed", seen=False if silent else None)
            case Join(resource_ids=resource_ids, slots=slots):
                self._join(event, resource_ids, slots)
            case Submit(like=like, job_id=job_id, parallelism=parallelism):
                graph = self._known.graphs[like]
                graph = graph if parallelism is None else with_parallelism(graph, parallelism)
                self._request(dispatcher.SubmitJob(job_id=job_id, job_graph=graph))
            case Cancel(job_id=job_id):
                self._request(dispatcher.CancelJob(job_id=job_id))
            case Fail():
                self._fail(event, event.action)
            case KillLeader(role=role, absence=absence):
                self._kill_leader(event, role, absence)

    def _notice(self, fact: ReportMismatch) -> None:
        """Ids of allocations and Executions are derived from what they are of; those of registrations are not."""
        states, body = self._world.replica.states, fact.body
        if isinstance(body, resource_manager.SlotReportContradicted):
            manager = states.get(RESOURCE_MANAGER)
            known = (
                manager.workers.get(body.resource_id) if isinstance(manager, ResourceManagerState) else None
            )
            if known is None:
                return
            body = replace(body, instance_id=known.instance_id)
        elif isinstance(body, job_master.TasksContradicted):
            job = states.get(fact.role_address)
            current = job.current if isinstance(job, JobMasterState) else {}
            places = [(vertex, index) for _, vertex, index in fact.subtasks]
            attempts = tuple(sorted(current[each] for each in places if each in current))
            if not attempts:
                return
            self._attempts.drop_all(instance_of(fact.role_address), attempts)
            body = replace(body, execution_attempt_ids=attempts)
        self._world.append_from_shell(fact.role_address, OutgoingEvent(fact.role_address, body, None))

    def _configure(self, configuration: dict[str, str]) -> None:
        self._masters.configure({**configuration, **self._scenario.configuration})

    def _admit(self, event: Event) -> None:
        """Requests wait for a leader of the Dispatcher in a topic of their own."""
        if not self._world.is_led(DISPATCHER):
            self._asked.append(event)
            return
        self._world.inject(Event(replace(event.header, time=self._world.now), event.body))

    def _request(self, body: Body) -> None:
        self._requests += 1
        header = Header(
            event_id=f"what-if-{self._requests}",
            time=self._world.now,
            sender=_CLIENT,
            sender_epoch=0,
            recipient=DISPATCHER,
        )
        self._admit(Event(header, body))

    def _lead(self, claim: LeaderElected) -> None:
        self._world.lead(claim)
        if claim.role == DISPATCHER:
            waiting, self._asked = self._asked, []
            for each in waiting:
                self._admit(each)

    def _join(self, event: ScenarioEvent, resource_ids: tuple[str, ...], slots: int | None) -> None:
        manager = self._world.replica.states.get(RESOURCE_MANAGER)
        pool = manager.pool.workers if isinstance(manager, ResourceManagerState) else {}
        newest = max(pool.values(), key=lambda worker: worker.cause, default=None)
        usual = (
            newest.number_of_slots if newest is not None else NUMBER_OF_TASK_SLOTS.of(self._configuration())
        )
        for resource_id in resource_ids:
            if self._workers.is_running(resource_id):
                self._add_note(event, f"{resource_id} is there already")
            else:
                self._workers.start(resource_id, slots or usual, delay=_REGISTRATION_LATENCY)

    def _fail(self, event: ScenarioEvent, action: Fail) -> None:
        state = self._world.replica.states.get(address(JOB_MASTER, action.job_id))
        graph = state.graph if isinstance(state, JobMasterState) else None
        place = None if graph is None else find_subtask(graph, action.task)
        if place is None:
            self._add_note(event, f"job {action.job_id} has no such task at that time")
            return
        subtask = action.job_id, place.vertex_id, place.subtask_index
        if not self._attempts.fail(subtask, action.reason):
            self._add_note(event, f"{action.task} of {action.job_id} does not run at that time")

    def _kill_leader(self, event: ScenarioEvent, role: str, absence: Time | None) -> None:
        world, leadership = self._world, self._world.replica.leadership
        session = world.session(role)
        if session is None or not world.is_led(role):
            self._add_note(event, f"nobody leads {role} at that time")
            return
        led = {each: leader for each, leader in leadership.leaders.items() if leader.session == session}
        wanted = [each for each in led if kind_of(each) != JOB_MASTER or world.replica.is_active(each)]
        world.kill(session)
        self._takeovers += 1
        successor = f"what-if-{self._takeovers}"
        after = ZOOKEEPER_SESSION_TIMEOUT.default if absence is None else absence

        def take_over() -> None:
            for each in wanted:
                if not world.is_led(each):
                    by = led[each].elected_by
                    claim = LeaderElected(
                        role=each, epoch=0, address=ADDRESS, session=successor, elected_by=by
                    )
                    self._lead(claim)

        world.schedule_at(world.now + after, take_over)

    def _configuration(self) -> dict[str, str]:
        state = self._world.replica.states.get(DISPATCHER)
        known = state.configuration if isinstance(state, DispatcherState) else None
        return dict(known or {})

    def _add_note(self, event: ScenarioEvent, what: str) -> None:
        self.notes.append(f"{event.where}: {event.text}: {what}")
