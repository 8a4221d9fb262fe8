"""Acts on a simulated cluster from outside of its roles: requests, elections, hangs and ends of processes."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ....schemas import job_master, resource_manager, task_executor
from ....schemas.event import Event
from ....schemas.everyone import LeaderElected
from ...configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ...core.role import DISPATCHER, RESOURCE_MANAGER, OutgoingEvent, Time
from ...job_master.state import StartedJob
from ...resource_manager.state import ResourceManagerState
from ..cluster import SimulatedCluster
from ..task_behavior import Subtask

ContradictionEvent = (
    resource_manager.SlotReportContradicted
    | job_master.TasksContradicted
    | job_master.HeartbeatTimedOut
    | task_executor.AllocatedSlotsContradicted
    | task_executor.HeartbeatTimedOut
)
"""Events that shells derive from heartbeats alone."""


class ExternalActions:
    """Acts on a simulated cluster from outside. It knows neither the recording nor the times."""

    def __init__(self, cluster: SimulatedCluster, changes: Mapping[str, str]) -> None:
        """`changes`: the options that the scenario changes."""
        self.simulator = cluster.simulator
        self.task_executors = cluster.task_executors
        self.masters = cluster.masters
        self._tasks = cluster.tasks
        self._replica = cluster.replica
        self._changes = changes
        self._waiting: list[Event] = []
        """The requests of clients that wait for a leader of the Dispatcher."""

    def end_task_executor(
        self, resource_id: str, reason: str, detected_after: Time, *, seen: bool = False
    ) -> None:
        """Ends the process of a TaskExecutor, which is detected after a time. `seen`: because its end was observed."""
        is_other = not seen and HEARTBEAT_TIMEOUT.key in self._changes
        after = None if is_other else detected_after
        self.task_executors.kill(resource_id, reason, seen=seen, detected_after=after)

    def pause(self, role_address: str) -> None:
        """Lets the process that leads an address hang."""
        if (session := self.simulator.session(role_address)) is not None:
            self.simulator.pause(session)
            self._tasks.pause(role_address)

    def resume(self, role_address: str) -> None:
        """Lets the process that leads an address continue."""
        if (session := self.simulator.session(role_address)) is not None:
            self.simulator.resume(session)
            self._tasks.resume(role_address)

    def contradict(self, role_address: str, body: ContradictionEvent, subtasks: list[Subtask]) -> None:
        """Heartbeats contradict what a role knows. Ids of allocations and Executions are derived, so they are the same
        as in the history; those of registrations are not."""
        states = self._replica.states
        if isinstance(body, resource_manager.SlotReportContradicted):
            manager = states.get(RESOURCE_MANAGER)
            known = (
                manager.workers.get(body.resource_id) if isinstance(manager, ResourceManagerState) else None
            )
            if known is None:
                return
            body = replace(body, instance_id=known.instance_id)
        elif isinstance(body, job_master.TasksContradicted):
            job = states.get(role_address)
            current = job.current_attempts if isinstance(job, StartedJob) else {}
            places = [(vertex, index) for _, vertex, index in subtasks]
            attempts = tuple(sorted(current[place] for place in places if place in current))
            if not attempts:
                return
            self._tasks.lose(attempts)
            body = replace(body, execution_attempt_ids=attempts)
        self.simulator.append_from_shell(role_address, OutgoingEvent(role_address, body, None))

    def configure(self, configuration: dict[str, str]) -> None:
        """Announces a configuration as the leader of the Dispatcher, with the scenario's changes."""
        self.masters.configure({**configuration, **self._changes})

    def admit(self, event: Event) -> None:
        """Sends a request of a client; it waits in its topic while nobody leads the Dispatcher."""
        if not self.simulator.is_led(DISPATCHER):
            self._waiting.append(event)
            return
        self.simulator.inject(Event(replace(event.header, time=self.simulator.now), event.body))

    def lead(self, claim: LeaderElected) -> None:
        """Elects a session of masters."""
        self.simulator.lead(claim)
        if claim.role == DISPATCHER:
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                self.admit(event)
