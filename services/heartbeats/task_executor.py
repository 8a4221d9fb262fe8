"""A TaskExecutor's heartbeats: its SlotReport to the ResourceManager, and its Executions to each connected JobMaster.

A silent master stops no task: the log decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ...infra.config.option_types import Duration
from ...schemas import job_master, resource_manager, task_executor
from ...schemas.event import Record
from ...schemas.types import AccumulatorReport, AccumulatorSnapshot, SlotStatus
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, Emit, OutgoingEvent, address
from ..task_executor.state import TaskExecutorState
from .latest_states import LatestStates
from .manager import Monitor, Target
from .repeat_filter import RepeatFilter

SlotContradictions = Callable[
    [TaskExecutorState, task_executor.HeartbeatFromJobManager], tuple[Collection[str], Collection[str]]
]
"""Returns the allocations that only the JobMaster knows, and those that only the TaskExecutor holds."""
SlotReport = Callable[[TaskExecutorState], Sequence[SlotStatus]]
Running = Callable[[TaskExecutorState], Iterable[AccumulatorSnapshot]]
"""Returns one snapshot for each Execution that the runtime runs."""
_MISSING, _SURPLUS = "missing ", "surplus "
_MOST_COUNTS = 20_000
"""The limit of counts and metrics in one heartbeat: a name has a few hundred bytes at most, a message a few MiB."""


class Master(NamedTuple):
    """The ResourceManager, or a connected JobMaster, by its address."""

    address: str


class TaskExecutorHeartbeats:
    """The HeartbeatSender of a TaskExecutor."""

    def __init__(
        self,
        say: Emit,
        own_address: str,
        slot_report: SlotReport,
        running: Running,
        slot_contradictions: SlotContradictions,
    ) -> None:
        self._say = say
        self._own = own_address
        self._slot_report = slot_report
        self._running = running
        self._slot_contradictions = slot_contradictions
        self._handed: LatestStates[TaskExecutorState] = LatestStates()
        self._state: TaskExecutorState | None = None
        self._masters: frozenset[Master] = frozenset()
        self._reports: RepeatFilter[str] = RepeatFilter()

    def follow(self, state: TaskExecutorState) -> None:
        """Publishes the latest state. Called on the host's thread."""
        self._handed.publish(self._own, state)

    def update(self, monitor: Monitor, now: int) -> None:
        state = self._handed.drain().get(self._own)
        if state is None:
            return
        before, self._state = self._state, state
        if (
            before is not None
            and before.jobs is state.jobs
            and before.registration is state.registration
            and before.left == state.left
        ):
            return
        masters = frozenset(_masters(state))
        for master in self._masters - masters:
            monitor.forget(master)
            self._reports.forget(master.address)
        for master in masters - self._masters:
            monitor.watch(master, now)
        self._masters = masters

    def heartbeats_to_send(self, position: int) -> Iterable[tuple[str, Sequence[OutgoingEvent]]]:
        state = self._state
        if state is None or state.left:
            return
        owed = []
        instance_id = _instance_id(state)
        if instance_id is not None:
            report = resource_manager.HeartbeatFromTaskManager(
                resource_id=state.resource_id,
                instance_id=instance_id,
                position=position,
                slots=tuple(self._slot_report(state)),
                container_id=_container_id(state),
            )
            owed.append(OutgoingEvent(RESOURCE_MANAGER, report, None))
        snapshots: dict[str, list[AccumulatorSnapshot]] = {job_id: [] for job_id in state.jobs}
        for snapshot in self._running(state):
            if snapshot.job_id in snapshots:
                snapshots[snapshot.job_id].append(snapshot)
        for job_id, of_job in snapshots.items():
            of_job = limit_snapshots(of_job)
            body = job_master.HeartbeatFromTaskManager(
                job_id=job_id,
                resource_id=state.resource_id,
                position=position,
                accumulator_report=AccumulatorReport(accumulator_snapshots=tuple(of_job)),
            )
            owed.append(OutgoingEvent(address(JOB_MASTER, job_id), body, None))
        yield self._own, owed

    def on_heartbeat(self, record: Record) -> Target | None:
        sender, body = record.header.sender, record.body
        if not isinstance(
            body, task_executor.HeartbeatFromResourceManager | task_executor.HeartbeatFromJobManager
        ):
            return None
        if Master(sender) not in self._masters:
            return None
        if isinstance(body, task_executor.HeartbeatFromJobManager):
            job_id = body.allocated_slot_report.job_id
            if sender != address(JOB_MASTER, job_id):
                return None
            self._compare(job_id, sender, body)
        return Master(sender)

    def owns(self, target: Target) -> bool:
        return isinstance(target, Master)

    def on_timeout(self, target: Target, silence: Duration) -> None:
        if isinstance(target, Master):
            fact = task_executor.HeartbeatTimedOut(
                peer=target.address,
                reason=f"no heartbeat for {silence / 1e6:.0f} s from {target.address}: it has died, hangs, or can't "
                "reach Kafka; tasks keep running",
            )
            self._say(self._own, OutgoingEvent(self._own, fact, None))

    def _compare(self, job_id: str, sender: str, body: task_executor.HeartbeatFromJobManager) -> None:
        assert self._state is not None
        missing, surplus = self._slot_contradictions(self._state, body)
        claims = frozenset(
            [
                *(_MISSING + allocation for allocation in missing),
                *(_SURPLUS + allocation for allocation in surplus),
            ]
        )
        confirmed = self._reports.repeated(sender, claims)
        if confirmed:
            fact = task_executor.AllocatedSlotsContradicted(
                job_id=job_id,
                missing=_claims_of_kind(_MISSING, confirmed),
                surplus=_claims_of_kind(_SURPLUS, confirmed),
            )
            self._say(self._own, OutgoingEvent(self._own, fact, None))


def limit_snapshots(snapshots: list[AccumulatorSnapshot]) -> list[AccumulatorSnapshot]:
    """Limits the counts and metrics; further Executions are listed without them."""
    left, found = _MOST_COUNTS, []
    for snapshot in snapshots:
        left -= len(snapshot.user_accumulators) + len(snapshot.metrics)
        found.append(snapshot if left >= 0 else replace(snapshot, user_accumulators={}, metrics={}))
    return found


def _masters(state: TaskExecutorState) -> Iterable[Master]:
    """Returns the masters that have answered; the others are reminded through the log."""
    if state.left:
        return
    if _instance_id(state) is not None:
        yield Master(RESOURCE_MANAGER)
    for job_id, connection in state.jobs.items():
        if connection.answered:
            yield Master(address(JOB_MASTER, job_id))


def _instance_id(state: TaskExecutorState) -> str | None:
    """Returns None until the ResourceManager has answered the registration."""
    return None if state.registration is None else state.registration.instance_id


def _container_id(state: TaskExecutorState) -> str:
    return "" if state.registration is None else state.registration.is_sent.container_id


def _claims_of_kind(kind: str, claims: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(claim.removeprefix(kind) for claim in claims if claim.startswith(kind)))
