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
    """All of a world; what runs in them is the affair of its Attempts."""

    def __init__(
        self,
        world: Simulator,
        attempts: SimulatedTasks,
        latencies: Latencies,
        *,
        profile: ResourceProfile = PROFILE,
        hardware: HardwareDescription = HARDWARE,
    ) -> None:
        """New ones are like the last that the log knows, else as `profile` and `hardware` say."""
        self._world = world
        self._attempts = attempts
        self._latencies = latencies
        self._profile = profile
        self._hardware = hardware
        self._sessions = 0
        self._gone: dict[str, tuple[str, bool]] = {}
        """Those whose processes have ended, and not everybody knows: why, and whether that is seen at once."""
        for state in map(world.replica.states.__getitem__, world.replica.active_addresses):
            if isinstance(state, TaskExecutorState) and state.registration is not None:
                said = state.registration.is_sent
                self._profile, self._hardware = said.default_slot_profile, said.hardware

    def start(self, resource_id: str, slots: int, *, delay: Time) -> None:
        """A process begins, the first or the next of its name, and registers after a delay."""
        self.begin_process(resource_id)

        def register() -> None:
            configuration, cause = self._configuration(), self._world.claim_offset(own)
            owed = register_event(
                resource_id, slots, self._profile, self._hardware, configuration, cause=cause
            )
            self._world.append_from_shell(own, owed)

        own = address(TASK_EXECUTOR, resource_id)
        self._world.schedule_after(delay, own, register)

    def begin_process(self, resource_id: str) -> None:
        """A process takes the lead of the TaskExecutor; one that had it before has ended."""
        own = address(TASK_EXECUTOR, resource_id)
        if self._world.session(own) is not None:
            self._end_process(own)
        self._gone.pop(resource_id, None)
        self._sessions += 1
        self._world.elect_leader(own, f"simulated-{resource_id}-{self._sessions}", ADDRESS)

    def register(self, said: resource_manager.RegisterTaskExecutor) -> None:
        """It registers, as it said."""
        own = address(TASK_EXECUTOR, said.resource_id)
        self._world.append_from_shell(
            own, OutgoingEvent(RESOURCE_MANAGER, said, self._world.claim_offset(own))
        )

    def is_running(self, resource_id: str) -> bool:
        """Whether a process of that name lives."""
        return self._world.is_led(address(TASK_EXECUTOR, resource_id))

    def kill(
        self, resource_id: str, reason: str, *, seen: bool | None = None, noticed_after: Time | None = None
    ) -> None:
        """SIGKILL. `seen`: whether the ResourceManager sees the process end; None: where it could."""
        if not self.is_running(resource_id):
            return
        seen = self._is_end_detected(resource_id) if seen is None else seen
        self._end_process(address(TASK_EXECUTOR, resource_id))
        self._gone[resource_id] = (reason, seen)
        self._report_end(resource_id, noticed_after)

    def leave(self, resource_id: str, reason: str) -> None:
        """SIGTERM: it says that it leaves, and its tasks end with it."""
        own = address(TASK_EXECUTOR, resource_id)
        body = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason=reason)
        self._world.append_from_shell(own, OutgoingEvent(RESOURCE_MANAGER, body, None))
        self._end_process(own)

    def end_process(self, resource_id: str, reason: str, cause: int | None = None) -> None:
        """Its driver has ended it, or finds that it has ended."""
        self._end_process(address(TASK_EXECUTOR, resource_id))
        self._report_loss(resource_id, reason, exited=True, cause=cause)

    def pause(self, resource_id: str) -> None:
        """SIGSTOP, or a network that is away: nothing is heard of it, nor does it hear."""
        session = self._world.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            self._world.pause(session)

    def lose_heartbeats(self, resource_id: str, reason: str) -> None:
        """That is noticed."""
        self._report_loss(resource_id, reason, exited=False)

    def resume(self, resource_id: str) -> None:
        """It goes on where it was."""
        session = self._world.session(address(TASK_EXECUTOR, resource_id))
        if session is not None:
            self._world.resume(session)

    def on_event(self, record: Record) -> None:
        """An event was folded: processes that have left end, and a new ResourceManager finds out who is gone."""
        body = record.body
        if isinstance(body, LeaderElected) and body.role == RESOURCE_MANAGER:
            for resource_id in tuple(self._gone):
                self._report_end(resource_id, None)
        elif isinstance(body, resource_manager.DisconnectTaskManager):
            own = record.header.sender
            state = self._world.replica.states.get(own)
            if isinstance(state, TaskExecutorState) and state.left and self._world.is_led(own):
                self._end_process(own)

    def _end_process(self, own: str) -> None:
        session = self._world.session(own)
        if session is not None:
            self._world.kill(session)
        self._attempts.process_ended(own)

    def _manager(self) -> ResourceManagerState | None:
        state = self._world.replica.states.get(RESOURCE_MANAGER)
        return state if isinstance(state, ResourceManagerState) else None

    def _is_end_detected(self, resource_id: str) -> bool:
        """Whether the ResourceManager's machine runs the process, or its driver started it."""
        manager = self._manager()
        if manager is None:
            return False
        worker, registered = manager.pool.get(resource_id), manager.workers.get(resource_id)
        return (worker is not None and worker.driven) or (
            registered is not None and bool(registered.process_mark)
        )

    def _report_end(self, resource_id: str, after: Time | None) -> None:
        reason, seen = self._gone[resource_id]
        timeout = HEARTBEAT_TIMEOUT.of(self._configuration())

        def notice() -> None:
            if self._gone.get(resource_id) == (reason, seen):
                told = reason if seen or after is not None else _silence_reason(resource_id, timeout)
                self._report_loss(resource_id, told, exited=seen)

        if after is not None:
            # Whoever leads then.
            self._world.schedule_at(self._world.now + after, notice)
            return
        usual = self._latencies.take(Work.NOTICE_EXIT, resource_id) if seen else timeout
        self._world.schedule_after(usual, RESOURCE_MANAGER, notice)

    def _report_loss(self, resource_id: str, reason: str, *, exited: bool, cause: int | None = None) -> None:
        manager = self._manager()
        registered = None if manager is None else manager.workers.get(resource_id)
        self._gone.pop(resource_id, None)
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
        self._world.append_from_shell(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, body, cause))

    def _configuration(self) -> dict[str, str]:
        state = self._world.replica.states.get(DISPATCHER)
        known = state.configuration if isinstance(state, DispatcherState) else None
        return dict(known or {})


def _silence_reason(resource_id: str, timeout: Time) -> str:
    return f"no heartbeat for {timeout / 1e6:g} s from TaskExecutor {resource_id}"
