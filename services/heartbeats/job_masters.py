"""The heartbeats of a process's JobMasters: an AllocatedSlotReport to each TaskExecutor that holds slots for a job, and
the AccumulatorReports that come back.

A TaskExecutor whose process has ended and that may return (`taskmanager.restart-grace`) is silent for a known reason. A
job does not time it out before the ResourceManager does; when it returns, it has a new timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from immutables import Map

from ...infra.config.option_types import Duration
from ...schemas import job_master, task_executor
from ...schemas.event import Record
from ...schemas.types import AllocatedSlotReport
from ..core.role import JOB_MASTER, TASK_EXECUTOR, Emit, OutgoingEvent, address, instance_of
from ..job_master.state import ConnectionState, JobMasterState, StartedJob
from .latest_states import LatestStates
from .manager import Monitor, Target
from .repeat_filter import RepeatFilter

MissingTasks = Callable[[StartedJob, job_master.HeartbeatFromTaskManager], Collection[str]]
"""Returns the Executions that the report should contain and does not."""
AllocatedSlots = Callable[[StartedJob, str], AllocatedSlotReport]
"""Returns the slots that the job holds at a TaskExecutor, given by its ResourceID."""
WorkersInGrace = Callable[[], frozenset[str]]
"""Returns the ResourceIDs of TaskExecutors whose process has ended and that may still return."""
_NO_CONNECTIONS: Map[str, ConnectionState] = Map()


class Peer(NamedTuple):
    """A TaskExecutor to which a job is connected."""

    job_id: str
    resource_id: str


class JobMasterHeartbeats:
    """The HeartbeatSender of all JobMasters of the process."""

    def __init__(
        self,
        say: Emit,
        missing_tasks: MissingTasks,
        allocated_slot_report: AllocatedSlots,
        returning: WorkersInGrace = frozenset,
    ) -> None:
        """`returning` is called on the heartbeat thread, in each round."""
        self._say = say
        self._now_returning = returning
        self._returning: frozenset[str] = frozenset()
        self._missing_tasks = missing_tasks
        self._allocated_slot_report = allocated_slot_report
        self._handed: LatestStates[StartedJob] = LatestStates()
        self._states: dict[str, StartedJob] = {}
        self._reports: RepeatFilter[Peer] = RepeatFilter()

    def follow(self, role_address: str, state: JobMasterState) -> None:
        """Publishes the latest state of a job. Called on the host's thread."""
        self._handed.publish(role_address, state if isinstance(state, StartedJob) else None)

    def retire(self, role_address: str) -> None:
        """This process no longer leads the job. Called on the host's thread."""
        self._handed.publish(role_address, None)

    def update(self, monitor: Monitor, now: int) -> None:
        for role_address, state in self._handed.drain().items():
            job_id = instance_of(role_address)
            before = self._states.get(job_id)
            known = before.connections if before is not None else _NO_CONNECTIONS
            connections = state.connections if state is not None else _NO_CONNECTIONS
            if state is not None and connections:
                self._states[job_id] = state
            else:
                self._states.pop(job_id, None)
            if known is not connections:
                self._follow(job_id, known, connections, monitor, now)
        before_return, self._returning = self._returning, self._now_returning()
        for resource_id in before_return - self._returning:
            for job_id, of_job in self._states.items():
                if _is_connected(of_job.connections.get(resource_id)):
                    monitor.watch(Peer(job_id, resource_id), now)

    def _follow(
        self,
        job_id: str,
        known: Map[str, ConnectionState],
        connections: Map[str, ConnectionState],
        monitor: Monitor,
        now: int,
    ) -> None:
        for resource_id, connection in known.items():
            if _is_connected(connection) and not _is_connected(connections.get(resource_id)):
                peer = Peer(job_id, resource_id)
                monitor.forget(peer)
                self._reports.forget(peer)
        for resource_id, connection in connections.items():
            if _is_connected(connection) and not _is_connected(known.get(resource_id)):
                monitor.watch(Peer(job_id, resource_id), now)

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        for job_id, state in self._states.items():
            yield (
                address(JOB_MASTER, job_id),
                [
                    OutgoingEvent(
                        address(TASK_EXECUTOR, resource_id),
                        task_executor.HeartbeatFromJobManager(
                            position=position,
                            allocated_slot_report=self._allocated_slot_report(state, resource_id),
                        ),
                        None,
                    )
                    for resource_id, connection in state.connections.items()
                    if _is_connected(connection)
                ],
            )

    def on_heartbeat(self, record: Record) -> Target | None:
        body = record.body
        if not isinstance(body, job_master.HeartbeatFromTaskManager):
            return None
        state = self._states.get(body.job_id)
        if (
            state is None
            or not _is_connected(state.connections.get(body.resource_id))
            or record.header.sender != address(TASK_EXECUTOR, body.resource_id)
        ):
            return None
        peer = Peer(body.job_id, body.resource_id)
        missing = self._reports.repeated(peer, frozenset(self._missing_tasks(state, body)))
        if missing:
            fact = job_master.TasksContradicted(
                resource_id=body.resource_id,
                execution_attempt_ids=tuple(sorted(missing)),
                reason=f"two reports in a row of TaskExecutor {body.resource_id} do not contain them",
            )
            self._report_missing(body.job_id, fact)
        return peer

    def owns(self, target: Target) -> bool:
        return isinstance(target, Peer)

    def on_timeout(self, target: Target, silence: Duration) -> None:
        if isinstance(target, Peer) and target.resource_id not in self._returning:
            fact = job_master.HeartbeatTimedOut(
                resource_id=target.resource_id,
                reason=f"no heartbeat for {silence / 1e6:.0f} s from TaskExecutor {target.resource_id}: it has died, "
                "hangs, or can't reach Kafka",
            )
            self._report_missing(target.job_id, fact)

    def _report_missing(
        self, job_id: str, fact: job_master.TasksContradicted | job_master.HeartbeatTimedOut
    ) -> None:
        own = address(JOB_MASTER, job_id)
        self._say(own, OutgoingEvent(own, fact, None))


def _is_connected(connection: ConnectionState | None) -> bool:
    """Returns whether there is a connection that is not being closed."""
    return connection is ConnectionState.CONNECTED
