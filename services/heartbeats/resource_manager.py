"""The ResourceManager's heartbeats: one broadcast to all TaskExecutors, and their SlotReports.

A heartbeat carries the log offset that its sender has read. If that offset does not advance although it is below the
ResourceManager's, the heartbeat does not count: a TaskExecutor that sends heartbeats but does not read the log receives
no events, and is treated like one that is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from immutables import Map

from ...infra.config.option_types import Duration
from ...schemas import resource_manager, task_executor
from ...schemas.event import EVERYONE, Record
from ..core.role import RESOURCE_MANAGER, TASK_EXECUTOR, Emit, OutgoingEvent, address
from ..resource_manager.state import ResourceManagerState, WorkerRegistration
from .latest_states import LatestStates
from .manager import Monitor, Target
from .repeat_filter import RepeatFilter

IsContradiction = Callable[[ResourceManagerState, resource_manager.HeartbeatFromTaskManager], bool]
_REPORT = frozenset({"the SlotReport"})


class Worker(NamedTuple):
    """A registered TaskExecutor."""

    resource_id: str


def workers_in_grace(state: object) -> frozenset[str]:
    """Returns the TaskExecutors whose process has ended and that may still return, from the ResourceManager's state,
    whichever process leads it."""
    return frozenset(state.pool.exited) if isinstance(state, ResourceManagerState) else frozenset()


class ResourceManagerHeartbeats:
    """The HeartbeatSender of the ResourceManager."""

    def __init__(self, say: Emit, contradicts: IsContradiction) -> None:
        self._say = say
        self._contradicts = contradicts
        self._states: LatestStates[ResourceManagerState] = LatestStates()
        self._state = ResourceManagerState()
        self._workers: Map[str, WorkerRegistration] = Map()
        self._reports: RepeatFilter[str] = RepeatFilter()
        self._position = -1
        """The log offset read here, at most one interval ago."""
        self._positions: dict[str, int] = {}
        """The log offsets that TaskExecutors reported last."""
        self._not_reading: dict[str, int] = {}
        """The number of consecutive heartbeats that did not count, by TaskExecutor."""

    def follow(self, state: ResourceManagerState) -> None:
        """Publishes the latest state. Called on the host's thread."""
        self._states.publish(RESOURCE_MANAGER, state)

    def retire(self) -> None:
        """This process no longer leads the ResourceManager. Called on the host's thread."""
        self._states.publish(RESOURCE_MANAGER, None)

    def update(self, monitor: Monitor, now: int) -> None:
        taken = self._states.drain()
        if RESOURCE_MANAGER not in taken:
            return
        # A role that is not led here expects no heartbeats.
        state = self._state = taken[RESOURCE_MANAGER] or ResourceManagerState()
        known, workers = self._workers, state.workers
        if workers is known:
            return
        self._workers = workers
        for resource_id in known:
            if resource_id not in workers:
                monitor.forget(Worker(resource_id))
                self._forget(resource_id)
        for resource_id, worker in workers.items():
            before = known.get(resource_id)
            if before is worker:
                continue
            if before is None or before.instance_id != worker.instance_id:
                monitor.watch(Worker(resource_id), now)
                self._forget(resource_id)

    def _forget(self, resource_id: str) -> None:
        self._reports.forget(resource_id)
        self._positions.pop(resource_id, None)
        self._not_reading.pop(resource_id, None)

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        self._position = position
        body = task_executor.HeartbeatFromResourceManager()
        return [(RESOURCE_MANAGER, [OutgoingEvent(EVERYONE, body, None)])]

    def on_heartbeat(self, record: Record) -> Target | None:
        body = record.body
        if not isinstance(body, resource_manager.HeartbeatFromTaskManager):
            return None
        worker = self._workers.get(body.resource_id)
        if (
            worker is None
            or worker.instance_id != body.instance_id
            or record.header.sender != address(TASK_EXECUTOR, body.resource_id)
        ):
            # An unknown TaskExecutor, or a newer registration has replaced it.
            return None
        claims = _REPORT if self._contradicts(self._state, body) else frozenset()
        if self._reports.repeated(body.resource_id, claims):
            fact = resource_manager.SlotReportContradicted(
                resource_id=body.resource_id, instance_id=body.instance_id, slots=body.slots
            )
            self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, fact, None))
        before = self._positions.get(body.resource_id)
        self._positions[body.resource_id] = body.position
        if before == body.position and before < self._position:
            self._not_reading[body.resource_id] = self._not_reading.get(body.resource_id, 0) + 1
            return None
        self._not_reading.pop(body.resource_id, None)
        return Worker(body.resource_id)

    def owns(self, target: Target) -> bool:
        return isinstance(target, Worker)

    def on_timeout(self, target: Target, silence: Duration) -> None:
        if not isinstance(target, Worker) or (worker := self._workers.get(target.resource_id)) is None:
            return
        if worker.resource_id in self._state.pool.exited:
            return  # The reason is known: its grace period decides when it is lost.
        who = f"TaskExecutor {worker.resource_id} at {worker.address}"
        position = self._positions.get(worker.resource_id)
        # The last heartbeat before a process hangs may not have counted either, so a single one proves nothing.
        is_not_reading = self._not_reading.get(worker.resource_id, 0) > 1
        fact = resource_manager.WorkerLost(
            resource_id=worker.resource_id,
            instance_id=worker.instance_id,
            exited=False,
            reason=f"{who} has not read the log for {silence / 1e6:.0f} s: its position is {position}, the log is at "
            f"{self._position}"
            if is_not_reading
            else f"no heartbeat for {silence / 1e6:.0f} s from {who}: it has died, hangs, or cannot reach Kafka",
        )
        self._say(RESOURCE_MANAGER, OutgoingEvent(RESOURCE_MANAGER, fact, None))
