"""What holds of a World after every step, at rest, and when all is over. Raises AssertionError with what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tailrace.schemas.event import Record
from tailrace.schemas.states import EXECUTION_ENDS, JOB_ENDS
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.core.role import kind_of
from tailrace.services.dispatcher.state import DispatcherState, Phase
from tailrace.services.job_master.job_status import ACTIVE
from tailrace.services.job_master.slot_pool import SlotStep
from tailrace.services.job_master.state import JobMasterState
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState
from tailrace.services.task_executor.task_slot_table import TaskSlotState

from ...log_checker import Violation, check
from ...log_checker.events import Event, event
from ..async_simulator import AsyncSimulator, find_owed_events, lines
from ..job_master.invariants import check_job_master
from .checkpoint_invariants import CheckpointHistory, check_checkpoints
from .cluster import new_replica
from .index_invariants import check_dispatcher, check_resource_manager, check_task_executor

LIVE = (ExecutionState.DEPLOYING, ExecutionState.INITIALIZING, ExecutionState.RUNNING)
INDEXES: dict[type[Any], Callable[[Any], None]] = {
    TaskExecutorState: check_task_executor,
    JobMasterState: check_job_master,
    ResourceManagerState: check_resource_manager,
    DispatcherState: check_dispatcher,
}


def plain(records: Iterable[Record]) -> list[Event]:
    """A log as the checker reads it."""
    return [
        event(
            each.offset, each.body.AVRO_NAME, msgspec.to_builtins(each.header), msgspec.to_builtins(each.body)
        )
        for each in records
    ]


def violations(records: Iterable[Record], *, settled: bool = True) -> list[Violation]:
    """What the checker finds in a log."""
    return check(plain(records), settled=settled)


class Invariants:
    """Of one World; remembers how far it has looked."""

    def __init__(self, world: AsyncSimulator) -> None:
        self.world = world
        self._checkpoints = CheckpointHistory(world)
        self._looked = 0

    def always(self) -> None:
        """After every step: of what has changed, whatever is kept twice agrees; no slot is given to two jobs."""
        world = self.world
        changed = {}
        for offset in range(self._looked, len(world.log)):
            for address, state in world.changed[offset]:
                changed[address] = state
                if isinstance(state, JobMasterState):
                    self._checkpoints.note(state)
        self._checkpoints.check_storage()
        if len(world.log) == self._looked:
            return
        self._looked = len(world.log)
        slots_changed = False
        for state in changed.values():
            INDEXES[type(state)](state)
            if isinstance(state, JobMasterState):
                check_checkpoints(state)
            slots_changed = slots_changed or isinstance(state, TaskExecutorState)
        if slots_changed:
            self._one_slot_to_one_job()

    def _one_slot_to_one_job(self) -> None:
        states = [each for each in self.world.truth.states.values() if isinstance(each, TaskExecutorState)]
        held = Counter(
            slot.allocation_id
            for state in states
            for slot in state.slots.slots.values()
            if slot.state is TaskSlotState.ACTIVE
        )
        twice = [each for each, count in held.items() if count > 1]
        assert not twice, f"{twice} hold two slots each"

    def settled(self) -> None:
        """At rest: nothing is owed, no deadline is missed, and what runs is what is to run."""
        world = self.world
        for address, each in find_owed_events(world):
            raise AssertionError(f"{address} owes {each.body} still\n{self.tail()}")
        for process in world.processes():
            for address, state in process.states.items():
                assert state is world.truth.states[address], f"{address} is not up to date"
                deadline = world.truth.role(address).deadline(state)
                assert deadline is None or deadline > world.now, f"{address} has missed a deadline"
                demanded = world.truth.role(address).instructions(state)
                for instruction in demanded if process.leads_address(address) else ():
                    begun = (address, instruction.key) in process.begun
                    assert begun or (process.slots and not process.registered), (
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
        """At rest, when heartbeats have nothing to say: what runs anywhere is what its JobMaster wants to run."""
        world = self.world
        if world.master is None:
            return
        for resource_id, process in world.workers.items():
            for attempt, (job_id, vertex_id, index) in process.running.items():
                job = world.truth.states[f"job_master/{job_id}"]
                assert job.current.get((vertex_id, index)) == attempt, (
                    f"{resource_id} runs an old attempt of {job_id}"
                )
                execution = job.executions[attempt]
                assert execution.resource_id == resource_id, f"{attempt} runs where it should not"
                assert execution.state in LIVE, f"{attempt} of {job_id} runs and is {execution.state}"

    def nobody_waits_for_nothing(self) -> None:
        """At rest, when heartbeats have nothing to say: whatever a job waits for, the ResourceManager knows of."""
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

    def _jobs_have_ended(self) -> None:
        world = self.world
        jobs = world.truth.states["dispatcher"].jobs.values()
        stuck = [job for job in jobs if job.phase in (Phase.BUILDING, Phase.ADMITTED, Phase.ACCEPTED)]
        assert not stuck, f"{stuck} are stuck"
        for address, state in world.truth.states.items():
            if kind_of(address) == "job_master" and state.status in JOB_ENDS:
                instructions = world.truth.role(address).instructions(state)
                assert not instructions, f"{address} has ended, but demands {instructions}"

    def idle(self) -> None:
        """When all jobs have ended and everybody is there: nothing is held."""
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
        """The checker, which shares no code with the roles, finds nothing; folding it all again gives the same."""
        world = self.world
        found = violations(world.log)
        assert not found, "\n".join(str(each) for each in found)
        again = new_replica(on_illegal=lambda *_: None)
        for record in world.log:
            again.apply(record)
        assert again.states == world.truth.states, "folded again, the states are others"
        assert list(again.states) == list(world.truth.states)

    def tail(self, count: int = 30) -> str:
        """The end of the log, for the message of a failure."""
        return "\n".join(lines(self.world.log[-count:]))
