"""Simulated TaskExecutors: their processes start, register, die, pause and stop.

The ResourceManager detects the end of a process at once if it started the process itself; otherwise, after
`heartbeat.timeout`.
"""

from __future__ import annotations

from ...schemas import resource_manager
from ...schemas.event import Record
from ...schemas.everyone import LeaderElected
from ...schemas.types import HardwareDescription, ResourceProfile
from ..configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ..core.role import DISPATCHER, RESOURCE_MANAGER, TASK_EXECUTOR, OutgoingEvent, Time, address
from ..dispatcher.state import DispatcherState
from ..resource_manager.state import ResourceManagerState
from ..task_executor.state import TaskExecutorState
from .latencies import Latencies, Work
from .simulated_tasks import SimulatedTasks
from .simulator import Simulator
from .task_events import ADDRESS, HARDWARE, PROFILE, register_event


class SimulatedTaskExecutors:
    """The processes of all simulated TaskExecutors; SimulatedTasks has their tasks."""

    def __init__(
        self,
        simulator: Simulator,
        tasks: SimulatedTasks,
        latencies: Latencies,
        *,
        profile: ResourceProfile = PROFILE,
        hardware: HardwareDescription = HARDWARE,
    ) -> None:
        """New ones are like the last one in the states; without any they have `profile` and `hardware`."""
        self._simulator = simulator
        self._tasks = tasks
        self._latencies = latencies
        self._profile = profile
        self._hardware = hardware
        self._sessions = 0
        self._undetected_ends: dict[str, tuple[str, bool]] = {}
        """TaskExecutors whose end the ResourceManager has not detected: the reason, and whether it sees the end."""
        for state in map(simulator.replica.states.__getitem__, simulator.replica.active_addresses):
            if isinstance(state, TaskExecutorState) and state.registration is not None:
                event = state.registration.is_sent
                self._profile, self._hardware = event.default_slot_profile, event.hardware

    def start(self, resource_id: str, slots: int, *, delay: Time) -> None:
        """Starts a process, the first or the next under this id; it registers after a delay."""
        self.begin_process(resource_id)

        def register() -> None:
            configuration, cause = self.configuration(), self._simulator.claim_offset(own)
            owed = register_event(
                resource_id, slots, self._profile, self._hardware, configuration, cause=cause
            )
            self._simulator.append_from_shell(own, owed)

        own = address(TASK_EXECUTOR, resource_id)
        self._simulator.schedule_after(delay, own, register)

    def begin_process(self, resource_id: str) -> None:
        """Starts a process, which claims its role. An earlier one under this id has ended."""
        own = address(TASK_EXECUTOR, resource_id)
        if self._simulator.session(own) is not None:
            self._end_process(own)
        self._undetected_ends.pop(resource_id, None)
        self._sessions += 1
        self._simulator.elect_leader(own, f"simulated-{resource_id}-{self._sessions}", ADDRESS)

    def register(self, body: resource_manager.RegisterTaskExecutor) -> None:
        """Registers the TaskExecutor with this event."""
        own = address(TASK_EXECUTOR, body.resource_id)
        self._simulator.append_from_shell(
            own, OutgoingEvent(RESOURCE_MANAGER, body, self._simulator.claim_offset(own))
        )

    def is_running(self, resource_id: str) -> bool:
        """Returns whether a process under this id lives."""
        return self._simulator.is_led(address(TASK_EXECUTOR, resource_id))

    def kill(
        self, resource_id: str, reason: str, *, seen: bool | None = None, detected_after: Time | None = None
    ) -> None:
        """Sends SIGKILL. `seen`: whether the ResourceManager sees the end; None: if it could in a real cluster.
        `detected_after`: when the ResourceManager detects it; None: after the usual time."""
        if not self.is_running(resource_id):
            return
        seen = self._is_end_detected(resource_id) if seen is None else seen
        self._end_process(address(TASK_EXECUTOR, resource_id))
        self._undetected_ends[resource_id] = (reason, seen)
        self._report_end(resource_id, detected_after)

    def leave(self, resource_id: str, reason: str) -> None:
        """Sends SIGTERM: the TaskExecutor deregisters, and its tasks end."""
        if not self.is_running(resource_id):
            return
        own = address(TASK_EXECUTOR, resource_id)
        body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason)
        self._simulator.append_from_shell(own, OutgoingEvent(RESOURCE_MANAGER, body, None))
        self._end_process(own)

    def end_process(self, resource_id: str, reason: str, cause: int | None = None) -> None:
        """Ends the process: the driver stops it, or detects its end."""
        self._end_process(address(TASK_EXECUTOR, resource_id))
        self._report_loss(resource_id, reason, exited=True, cause=cause)

    def pause(self, resource_id: str) -> None:
        """Pauses the process (SIGSTOP, or a network partition): it neither sends nor receives."""
        session = self._simulator.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            self._simulator.pause(session)

    def lose_heartbeats(self, resource_id: str, reason: str) -> None:
        """Lets the ResourceManager declare it lost for missing heartbeats."""
        self._report_loss(resource_id, reason, exited=False)

    def resume(self, resource_id: str) -> None:
        """Lets the process continue."""
        session = self._simulator.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            self._simulator.resume(session)

    def on_event(self, record: Record) -> None:
        """Handles a folded event. A process that has deregistered ends; a new ResourceManager detects lost
        processes."""
        body = record.body
        if isinstance(body, LeaderElected) and body.role == RESOURCE_MANAGER:
            for resource_id in tuple(self._undetected_ends):
                self._report_end(resource_id, None)
        elif isinstance(body, resource_manager.DisconnectTaskManager):
            own = record.header.sender
            state = self._simulator.replica.states.get(own)
            if isinstance(state, TaskExecutorState) and state.left and self._simulator.is_led(own):
                self._end_process(own)

    def _end_process(self, own: str) -> None:
        session = self._simulator.session(own)
        if session is not None:
            self._simulator.kill(session)
        self._tasks.on_process_ended(own)

    def _manager(self) -> ResourceManagerState | None:
        state = self._simulator.replica.states.get(RESOURCE_MANAGER)
        return state if isinstance(state, ResourceManagerState) else None

    def _is_end_detected(self, resource_id: str) -> bool:
        """Returns whether the process runs on the machine of the ResourceManager, or its driver started it."""
        manager = self._manager()
        if manager is None:
            return False
        worker, registered = manager.pool.get(resource_id), manager.workers.get(resource_id)
        return (worker is not None and worker.driven) or (
            registered is not None and bool(registered.process_mark)
        )

    def _report_end(self, resource_id: str, after: Time | None) -> None:
        reason, seen = self._undetected_ends[resource_id]
        timeout = HEARTBEAT_TIMEOUT.of(self.configuration())

        def notice() -> None:
            if self._undetected_ends.get(resource_id) == (reason, seen):
                shown = reason if seen or after is not None else _silence_reason(resource_id, timeout)
                self._report_loss(resource_id, shown, exited=seen)

        if after is not None:
            # Reported by the process that leads then.
            self._simulator.schedule_at(self._simulator.now + after, notice)
            return
        usual = self._latencies.take(Work.NOTICE_EXIT, resource_id) if seen else timeout
        self._simulator.schedule_after(usual, RESOURCE_MANAGER, notice)

    def _report_loss(self, resource_id: str, reason: str, *, exited: bool, cause: int | None = None) -> None:
        manager = self._manager()
        registered = None if manager is None else manager.workers.get(resource_id)
        self._undetected_ends.pop(resource_id, None)
        if registered is None:
            worker = None if manager is None else manager.pool.get(resource_id)
            if worker is None or not exited:
                return
        body = resource_manager.WorkerLost(
            resource_id=resource_id,
            instance_id=None if registered is None else registered.instance_id,
            exited=exited,
            reason=reason,
        )
        self._simulator.append_from_shell(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, cause))

    def configuration(self) -> dict[str, str]:
        state = self._simulator.replica.states.get(DISPATCHER)
        known = state.configuration if isinstance(state, DispatcherState) else None
        return dict(known or {})


def _silence_reason(resource_id: str, timeout: Time) -> str:
    return f"no heartbeat for {timeout / 1e6:g} s from TaskExecutor {resource_id}"
