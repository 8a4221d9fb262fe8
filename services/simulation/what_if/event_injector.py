"""Injects events into a simulation: the recorded external events, and the events of the scenario."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from msgspec.structs import replace

from ....pipelines.graph import autoscaler_options
from ....schemas import dispatcher
from ....schemas.body import Body
from ....schemas.event import Event
from ....schemas.everyone import LeaderElected
from ....schemas.types import Header
from ...configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ...configuration.options.task_executor import NUMBER_OF_TASK_SLOTS
from ...configuration.options.zookeeper import ZOOKEEPER_SESSION_TIMEOUT
from ...configuration.role_options import AutoscalerOptions
from ...core.role import (
    CLIENT,
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    Time,
    address,
    kind_of,
)
from ...job_master.state import StartedJob
from ...resource_manager.state import ResourceManagerState
from ...resource_manager.worker_pool import Worker, WorkerState
from ..cluster import SimulatedCluster
from ..task_events import ADDRESS
from .external_actions import ExternalActions
from .recording import ExternalEvent, Recording
from .scenario import Cancel, Fail, Join, Kill, KillLeader, Scenario, ScenarioEvent, Submit
from .scenario_validation import KnownEntities, find_subtask, with_parallelism

_CLIENT = address(CLIENT, "what-if")
_REGISTRATION_LATENCY: Time = 10_000


class EventInjector:
    """Schedules all events; `notes` has the scenario's events that had no effect, once the simulation has run."""

    def __init__(
        self, cluster: SimulatedCluster, scenario: Scenario, recording: Recording, known: KnownEntities
    ) -> None:
        self._actions = ExternalActions(cluster, scenario.configuration)
        self._simulator = cluster.simulator
        self._task_executors = cluster.task_executors
        self._masters = cluster.masters
        self._tasks = cluster.tasks
        self._replica = cluster.replica
        self._scenario = scenario
        self._recording = recording
        self._known = known
        self._takeovers = self._requests = 0
        self.notes: list[str] = []

    def schedule_all(self) -> None:
        """Schedules the recorded events and those of the scenario."""
        simulator, start = self._simulator, self._simulator.now
        self._change_autoscalers()
        if self._scenario.configuration:
            self._actions.configure(self._known.configuration)
        for resource_id, worker in sorted(self._pool().items()):
            if (
                worker.state is WorkerState.STARTED
                and resource_id not in self._recording.started_task_executors
            ):
                self._masters.begin_worker_process(resource_id, worker.number_of_slots)
        changed = self._scenario.configuration
        timeout = HEARTBEAT_TIMEOUT.of(changed) if HEARTBEAT_TIMEOUT.key in changed else None
        for event in self._recording.events:
            time = event.time
            if event.silence is not None and timeout is not None:
                since, until = event.silence
                time = since + timeout
                if time >= until:
                    # It sends events again before the timeout.
                    continue
            if event.is_absence and time <= start:
                # This was the state at the place, before any action.
                event.repeat(self._actions)
            else:
                simulator.schedule_at(time, functools.partial(self._repeat, event))
        for scenario_event in self._scenario.events:
            simulator.schedule_at(
                start + scenario_event.at, functools.partial(self._inject_scenario_event, scenario_event)
            )

    def _change_autoscalers(self) -> None:
        """Gives the jobs that run the scenario's options of the autoscaler. All other options of a job are fixed at its
        start."""
        keys = {option.key for option in autoscaler_options.OPTIONS}
        changed = {key: text for key, text in self._scenario.configuration.items() if key in keys}
        if not changed:
            return
        states = self._replica.states
        for role_address in self._replica.active_addresses:
            state = states[role_address]
            if isinstance(state, StartedJob):
                wanted = AutoscalerOptions.from_configuration({**state.graph.configuration, **changed})
                states[role_address] = replace(state, options=replace(state.options, autoscaler=wanted))

    def _repeat(self, event: ExternalEvent) -> None:
        event.repeat(self._actions)

    def _inject_scenario_event(self, event: ScenarioEvent) -> None:
        match event.action:
            case Kill(resource_id=resource_id, silent=silent):
                if not self._task_executors.is_running(resource_id):
                    self._add_note(event, f"{resource_id} is not there at that time")
                self._task_executors.kill(
                    resource_id, "its process was killed", seen=False if silent else None
                )
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

    def _request(self, body: Body) -> None:
        self._requests += 1
        header = Header(
            event_id=f"what-if-{self._requests}",
            time=self._simulator.now,
            sender=_CLIENT,
            sender_epoch=0,
            recipient=DISPATCHER,
        )
        self._actions.admit(Event(header, body))

    def _join(self, event: ScenarioEvent, resource_ids: tuple[str, ...], slots: int | None) -> None:
        newest = max(self._pool().values(), key=lambda worker: worker.cause, default=None)
        usual = (
            newest.number_of_slots
            if newest is not None
            else NUMBER_OF_TASK_SLOTS.of(self._task_executors.configuration())
        )
        for resource_id in resource_ids:
            if self._task_executors.is_running(resource_id):
                self._add_note(event, f"{resource_id} is there already")
            else:
                self._task_executors.start(resource_id, slots or usual, delay=_REGISTRATION_LATENCY)

    def _fail(self, event: ScenarioEvent, action: Fail) -> None:
        state = self._replica.states.get(address(JOB_MASTER, action.job_id))
        graph = state.graph if isinstance(state, StartedJob) else None
        place = None if graph is None else find_subtask(graph, action.task)
        if place is None:
            self._add_note(event, f"job {action.job_id} has no such task at that time")
            return
        if not self._tasks.fail((action.job_id, *place), action.reason):
            self._add_note(event, f"{action.task} of {action.job_id} does not run at that time")

    def _kill_leader(self, event: ScenarioEvent, role: str, absence: Time | None) -> None:
        simulator, leadership = self._simulator, self._replica.leadership
        session = simulator.session(role)
        if session is None or not simulator.is_led(role):
            self._add_note(event, f"nobody leads {role} at that time")
            return
        led = {
            led_role: leader for led_role, leader in leadership.leaders.items() if leader.session == session
        }
        wanted = [
            led_role
            for led_role in led
            if kind_of(led_role) != JOB_MASTER or self._replica.is_active(led_role)
        ]
        simulator.kill(session)
        self._takeovers += 1
        successor = f"what-if-{self._takeovers}"
        after = ZOOKEEPER_SESSION_TIMEOUT.default if absence is None else absence

        def take_over() -> None:
            for led_role in wanted:
                if not simulator.is_led(led_role):
                    by = led[led_role].elected_by
                    claim = LeaderElected(
                        role=led_role, epoch=0, address=ADDRESS, session=successor, elected_by=by
                    )
                    self._actions.lead(claim)

        simulator.schedule_at(simulator.now + after, take_over)

    def _pool(self) -> Mapping[str, Worker]:
        manager = self._replica.states.get(RESOURCE_MANAGER)
        return manager.pool.workers if isinstance(manager, ResourceManagerState) else {}

    def _add_note(self, event: ScenarioEvent, what: str) -> None:
        self.notes.append(f"{event.where}: {event.text}: {what}")
