"""Invariants of a world after every step, when it is idle, and at its end. Raises AssertionError with the violation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tailrace.schemas import client, dispatcher, job_master
from tailrace.schemas.event import Record
from tailrace.schemas.states import EXECUTION_ENDS, JOB_ENDS
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.core.resource_profile import profile_key
from tailrace.services.core.role import CLIENT, RESOURCE_MANAGER, kind_of
from tailrace.services.dispatcher.state import DispatcherState, Phase, submitter_of
from tailrace.services.job_master.checkpoints.stop_phase import StopPhase
from tailrace.services.job_master.job_status import ACTIVE
from tailrace.services.job_master.rescale import adaptive_scheduler
from tailrace.services.job_master.rescale.fitting import (
    fitting_width,
    largest_width,
    least_width,
    slots_to_assign,
    width_of,
)
from tailrace.services.job_master.slot_pool import SlotStep
from tailrace.services.job_master.slot_sharing import leaves
from tailrace.services.job_master.state import NewJob, StartedJob, TerminatedJob
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ...log_checker import Violation, check
from ...log_checker.events import Event, event
from ..async_simulator import AsyncSimulator, find_owed_events, lines
from ..job_master.invariants import check_job_master, check_processes
from .checkpoint_invariants import CheckpointHistory, check_checkpoints
from .cluster import new_replica
from .index_invariants import check_dispatcher, check_resource_manager, check_task_executor
from .operation_chaos import check_offset_resets, check_quarantines

LIVE = (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING)
INDEXES: dict[type[Any], Callable[[Any], None]] = {
    TaskExecutorState: check_task_executor,
    **dict.fromkeys((NewJob, StartedJob, TerminatedJob), check_job_master),
    ResourceManagerState: check_resource_manager,
    DispatcherState: check_dispatcher,
}


def plain(records: Iterable[Record]) -> list[Event]:
    """Converts a log to the events of the checker."""
    return [
        event(
            record.offset,
            record.body.AVRO_NAME,
            msgspec.to_builtins(record.header),
            msgspec.to_builtins(record.body),
        )
        for record in records
    ]


def violations(
    records: Iterable[Record], *, settled: bool = True, outsiders: bool = False
) -> list[Violation]:
    """Returns the violations that the checker finds in a log."""
    return check(plain(records), settled=settled, outsiders=outsiders)


def check_quotas(state: DispatcherState) -> None:
    """No tenant has more jobs or slots than its options allow."""
    for tenant, options in state.options.tenants.items():
        submitter = submitter_of(tenant, "")
        assert options.max_jobs is None or state.jobs_of.get(submitter, 0) <= options.max_jobs
        assert options.max_slots is None or state.slots_of.get(submitter, 0) <= options.max_slots


def check_tenants(records: Iterable[Record]) -> None:
    """What a tenant requests concerns its own jobs only, and the answers are for its clients only."""
    asked: dict[int, str] = {}
    owners: dict[str, str] = {}
    savepoints: dict[str, str] = {}
    for record in records:
        origin, cause, body = record.header.origin, record.header.cause, record.body
        if origin is not None:
            asked[record.offset] = origin.tenant
        if isinstance(body, dispatcher.SubmissionRefused):
            asked[record.offset] = body.source.tenant
        tenant = "" if cause is None else asked.get(cause, "")
        if isinstance(body, job_master.TriggerCheckpoint | job_master.RescaleJob):
            asked[record.offset] = tenant
        audience = ""
        if kind_of(record.header.recipient) == CLIENT:
            # The end of a job, and what becomes of its program, are caused by other events than the request.
            audience = tenant if cause in asked else owners[body.job_id]  # type: ignore[attr-defined]
        assert record.header.tenant == audience, record
        if isinstance(body, client.JobAccepted | dispatcher.ProgramAccepted) and cause in asked:
            owners[body.job_id] = tenant
        elif isinstance(body, job_master.CancelJob | job_master.TriggerCheckpoint) and tenant:
            assert owners[body.job_id] == tenant
        elif isinstance(body, job_master.CheckpointCompleted):
            savepoints[body.checkpoint.uri] = owners[body.job_id]
        elif isinstance(body, job_master.CheckpointRestored):
            assert len({savepoints.get(body.checkpoint.uri, ""), owners[body.job_id]} - {""}) <= 1, record
        elif isinstance(body, dispatcher.SavepointDisposed) and body.failure is None:
            # The log may lack the completion of a savepoint whose leader was lost.
            assert not asked[body.request] or savepoints.get(body.path, tenant) == tenant, record


class Invariants:
    """The invariants of one world; remembers the position up to which the log is checked."""

    def __init__(self, world: AsyncSimulator) -> None:
        self.world = world
        self._checkpoints = CheckpointHistory(world)
        self._looked = 0
        self.has_outsiders = False
        """Whether an outsider has written to the log."""

    def always(self) -> None:
        """After every step: the indexes of changed states are consistent, and no slot belongs to two jobs."""
        world = self.world
        changed = {}
        for offset in range(self._looked, len(world.log)):
            for address, state in world.changed[offset]:
                changed[address] = state
                if isinstance(state, StartedJob):
                    self._checkpoints.note(state)
        self._checkpoints.check_storage()
        if len(world.log) == self._looked:
            return
        self._looked = len(world.log)
        slots_changed = False
        for state in changed.values():
            INDEXES[type(state)](state)
            if isinstance(state, StartedJob):
                check_checkpoints(state)
                check_processes(state)
            if isinstance(state, DispatcherState):
                check_quotas(state)
            slots_changed = slots_changed or isinstance(state, TaskExecutorState)
        if slots_changed:
            self._one_slot_to_one_job()

    def _one_slot_to_one_job(self) -> None:
        states = [state for state in self.world.truth.states.values() if isinstance(state, TaskExecutorState)]
        held = Counter(
            slot.allocation_id
            for state in states
            for slot in state.slots.slots.values()
            if slot.state is TaskSlotState.ACTIVE
        )
        twice = [item for item, count in held.items() if count > 1]
        assert not twice, f"{twice} hold two slots each"

    def _requests_have_their_profiles(self) -> None:
        """The ResourceManager has found the profile of each request that names its number."""
        states = self.world.truth.states
        manager = states.get(RESOURCE_MANAGER)
        if not isinstance(manager, ResourceManagerState):
            return
        known = manager.slot_manager.requests.known
        for state in states.values():
            for request in state.slots.requests.values() if isinstance(state, StartedJob) else ():
                if request.allocation_id in known:
                    assert profile_key(request.profile) == known[request.allocation_id].key

    def _stopped_tasks_are_awaited(self) -> None:
        """A task that stands still behind a savepoint, or behind the cut of a rescale, waits for its end."""
        states = self.world.truth.states
        for executor in states.values():
            if not isinstance(executor, TaskExecutorState):
                continue
            for attempt, task in executor.tasks.items():
                job, number = states.get(f"job_master/{task.job_id}"), task.stopped_by_savepoint
                if number is None or not isinstance(job, StartedJob) or job.status not in ACTIVE:
                    continue
                execution = job.executions.get(attempt)
                if execution is None or execution.state is not ExecutionState.RUNNING:
                    continue
                is_awaited = number in job.checkpoints.pending or job.checkpoints.stop is StopPhase.SAVED
                assert is_awaited, (
                    f"{attempt} of {job.job_id} stands still behind checkpoint {number}, which is over"
                )

    def settled(self) -> None:
        """When idle: no event is required, no deadline has passed, and exactly the required tasks run."""
        world = self.world
        self._requests_have_their_profiles()
        self._stopped_tasks_are_awaited()
        for address, outgoing_event in find_owed_events(world):
            raise AssertionError(f"{address} owes {outgoing_event.body} still\n{self.tail()}")
        for process in world.processes():
            for address, state in process.states.items():
                assert state is world.truth.states[address], f"{address} is not up to date"
                deadline = world.truth.role(address).deadline(state)
                assert deadline is None or deadline > world.now - world.largest_error, (
                    f"{address} has missed a deadline"
                )
                demanded = world.truth.role(address).instructions(state)
                for instruction in demanded if process.leads_address(address) else ():
                    start = process.instructions.is_started(address, instruction.key)
                    assert start or (process.slots and not process.registered), (
                        f"{address}: {instruction} is not begun"
                    )
        for process in world.workers.values():
            state = process.states.get(process.leads[0])
            tasks = (
                {}
                if state is None
                else {k: v for k, v in state.tasks.items() if v.state not in EXECUTION_ENDS}
            )
            for attempt in process.running:
                assert attempt in tasks, (
                    f"{process.leads[0]} runs {attempt}, of which its state knows nothing"
                )
                slot = state.slots.by_allocation(tasks[attempt].allocation_id)
                assert slot is not None, f"{attempt} runs in no slot"
                assert slot.job_id == tasks[attempt].job_id, f"{attempt} runs in another job's slot"
        if world.master is not None:
            self._jobs_have_ended()

    def healed(self) -> None:
        """When idle and consistent with heartbeats: exactly the tasks run that their JobMaster expects to run."""
        world = self.world
        if world.master is None:
            return
        for resource_id, process in world.workers.items():
            for attempt, (job_id, vertex_id, index) in process.running.items():
                job = world.truth.states[f"job_master/{job_id}"]
                assert isinstance(job, StartedJob), f"{resource_id} runs {attempt} of {job_id}, which is over"
                assert job.current_attempts.get((vertex_id, index)) == attempt, (
                    f"{resource_id} runs an old attempt of {job_id}"
                )
                execution = job.executions[attempt]
                assert execution.resource_id == resource_id, f"{attempt} runs where it should not"
                assert execution.state in LIVE, f"{attempt} of {job_id} runs and is {execution.state}"

    def processes_start(self) -> None:
        """When idle and consistent with heartbeats: a task waits for the other tasks of its slot only if one of them
        is still to be submitted."""
        world = self.world
        if world.master is None:
            return
        for resource_id, process in world.workers.items():
            for attempt, task in process.tasks.waiting().items():
                job = world.truth.states[f"job_master/{task.job_id}"]
                assert isinstance(job, StartedJob), f"{resource_id} starts {attempt} of a job that is over"
                slot = job.topology.slot_of((task.vertex_id, task.subtask_index))
                inside = [
                    job.executions[leaf.execution_attempt_id] for leaf in leaves(job.sharing.trees[slot].root)
                ]
                assert any(each.state is ExecutionState.SCHEDULED for each in inside), (
                    f"{attempt} at {resource_id} waits for ever for {task.slot_tasks} tasks: {inside}\n{self.tail()}"
                )

    def every_wait_is_known(self) -> None:
        """When idle and consistent with heartbeats: the ResourceManager knows of every slot that a job waits for."""
        world = self.world
        if world.master is None:
            return
        known = world.truth.states["resource_manager"].slot_manager.requests.known
        for address, job in world.truth.states.items():
            if kind_of(address) != "job_master" or job.status not in ACTIVE:
                continue
            for request in job.slots.requests.values():
                if request.step is not SlotStep.PENDING:
                    continue
                asked = known.get(request.allocation_id)
                assert asked is not None, f"{address} waits for {request}, of which nobody knows"
                if asked.fulfilled:
                    # Its TaskExecutor offers it when it comes back, unless it is declared lost.
                    resource_id = asked.slot[0]
                    assert resource_id not in world.workers, (
                        f"{resource_id} does not offer {asked} to {address}"
                    )

    def is_parallelism_to_change(self) -> bool:
        """Whether the adaptive scheduler of a job waits for a time to change it: slots have come late, or a rescale has
        failed."""
        states = self.world.truth.states.values()
        return any(isinstance(state, StartedJob) and adaptive_scheduler.deadline(state) for state in states)

    def adaptive_jobs_use_their_slots(self) -> None:
        """After all timeouts: a job with the adaptive scheduler that runs has the highest parallelism within its bounds
        that fits its slots, and asks for the slots of a higher one."""
        for address, state in self.world.truth.states.items():
            if not isinstance(state, StartedJob) or not state.rescaling.is_adaptive:
                continue
            rescaling = state.rescaling
            is_calm = state.is_fully_running and rescaling.current is None and not rescaling.requests
            if not is_calm or state.counts.finished or state.checkpoints.stop is not StopPhase.NONE:
                continue
            width, widest = width_of(state.topology, rescaling.bounds), largest_width(rescaling.bounds)
            held = slots_to_assign(state.slots)
            fitting = fitting_width(rescaling.places, held, widest)
            assert fitting is None or fitting <= width, (
                f"{address} could have {fitting} subtasks, not {width}"
            )
            assert fitting is None or fitting == width or least_width(rescaling.bounds) == width, address
            if width < widest and not state.shares_slots and len(held) == len(state.sharing.trees):
                assert any(request.is_optional for request in state.slots.requests.values()), address

    def _jobs_have_ended(self) -> None:
        world = self.world
        jobs = world.truth.states["dispatcher"].jobs.values()
        not_started = (Phase.BUILDING, Phase.BUILT, Phase.BUILD_FAILED, Phase.ACCEPTED)
        stuck = [job for job in jobs if job.phase in not_started]
        assert not stuck, f"{stuck} are stuck"
        for address, state in world.truth.states.items():
            if kind_of(address) == "job_master" and state.status in JOB_ENDS:
                instructions = world.truth.role(address).instructions(state)
                assert not instructions, f"{address} has ended, but demands {instructions}"

    def idle(self) -> None:
        """When all jobs have ended and all processes run: no slot is held."""
        world = self.world
        for job in world.truth.states["dispatcher"].jobs.values():
            assert job.phase is Phase.ENDED, f"{job.job_id} has not ended but is {job.phase}"
            if job.status is JobStatus.FINISHED:
                assert job.accumulators == world.total(job.job_id), f"{job.job_id} has not counted all, once"
        self._checkpoints.check_what_is_left()
        for process in world.processes():
            assert not process.running, f"{process.leads} still runs {process.running}"
        registered = world.truth.states["resource_manager"].workers
        for resource_id, process in world.workers.items():
            state = process.states[process.leads[0]]
            assert resource_id in registered, f"{resource_id} lives and is not registered"
            for slot in state.slots.slots.values():
                assert slot.state is TaskSlotState.FREE, f"{resource_id} holds {slot}"
            assert not state.jobs, f"{resource_id} is connected to {list(state.jobs)}"
            assert not state.tasks, f"{resource_id} remembers {list(state.tasks)}"

    def over_the_log(self) -> None:
        """The checker, which shares no code with the roles, finds no violation, and a replay gives the same states."""
        world = self.world
        results = violations(world.log, outsiders=self.has_outsiders)
        assert not results, "\n".join(str(violation) for violation in results)
        check_tenants(record for record in world.log if world.admitted[record.offset])
        check_quarantines(record for record in world.log if world.admitted[record.offset])
        check_offset_resets(record for record in world.log if world.admitted[record.offset])
        again = new_replica(on_illegal=lambda *_: None)
        for record in world.log:
            again.apply(record)
        assert again.states == world.truth.states, "folded again, the states are others"
        assert list(again.states) == list(world.truth.states)

    def tail(self, count: int = 30) -> str:
        """Returns the end of the log, for the message of a failed test."""
        return "\n".join(lines(self.world.log[-count:]))
