"""The effects of simulated masters: each result of `simulated_effects` comes after its latency."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import EVERYONE
from ...schemas.everyone import ConfigurationChanged, FeatureLevelRaised
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Instruction, OutgoingEvent, Time
from ..dispatcher.role import BuildJobGraph
from ..job_master.instructions import CreateChannels, DeleteChannels, FindCheckpoint
from ..job_master.state import JobMasterState
from ..resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from .checkpoint_storage import SimulatedStorage, StatePart, part_name
from .latencies import Latencies, Work
from .simulated_effects import BuildProgram, perform, reject_programs
from .simulator import Simulator
from .task_events import ADDRESS
from .task_executors import SimulatedTaskExecutors

FindRecordedEffect = Callable[[Instruction, Time], tuple[Time, Body | None] | None]
"""(what is demanded, now) -> after how long it is answered, and with what where that is not the usual answer; None:
nothing is known of it."""


class SimulatedMasterEffects:
    """A world's WorldShell for the roles of KINDS."""

    KINDS = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)

    def __init__(
        self,
        world: Simulator,
        workers: SimulatedTaskExecutors,
        latencies: Latencies,
        storage: SimulatedStorage,
        build: BuildProgram = reject_programs,
        told: FindRecordedEffect = lambda *_: None,
    ) -> None:
        self._world = world
        self._workers = workers
        self._latencies = latencies
        self._storage = storage
        self._build = build
        self._told = told
        self._booting: set[str] = set()
        """Workers whose processes have been started and say nothing yet."""
        for state in map(world.replica.states.__getitem__, world.replica.active_addresses):
            if isinstance(state, JobMasterState):
                for each in (*state.checkpoints.completed, *state.checkpoints.savepoints):
                    self._storage.add_existing(each)
                for pending in state.checkpoints.pending.values():
                    for (vertex, index), part in pending.acknowledged.items():
                        name = part_name(vertex, index)
                        self._storage.write(
                            pending.options.directory, name, StatePart(part.execution_attempt_id, 0)
                        )

    def perform(self, role_address: str, instruction: Instruction, state: Any) -> None:
        del state
        world = self._world
        match instruction:
            case StartWorkerProcess():
                self._start_worker(role_address, instruction)
            case StopWorkerProcess(resource_id=resource_id):
                delay = self._latencies.take(Work.STOP_WORKER, resource_id)
                world.schedule_after(delay, role_address, lambda: self._stop_worker(instruction))
            case _:
                told = self._told(instruction, world.now)
                delay, body = told if told is not None else (self._usual_delay(instruction), None)
                world.schedule_after(
                    delay, role_address, lambda: self._answer(role_address, instruction, body)
                )

    def configure(self, configuration: dict[str, str]) -> None:
        """The Dispatcher's leader says by which configuration it goes."""
        changed = ConfigurationChanged(configuration=configuration)
        self._world.append_from_shell(
            DISPATCHER, OutgoingEvent(EVERYONE, changed, self._world.claim_offset(DISPATCHER))
        )

    def raise_level(self, level: int) -> None:
        """The leader of a new log says by which feature level it goes."""
        raised = FeatureLevelRaised(level=level)
        self._world.append_from_shell(
            DISPATCHER, OutgoingEvent(EVERYONE, raised, self._world.claim_offset(DISPATCHER))
        )

    def begin_worker_process(self, resource_id: str, slots: int) -> None:
        """A worker's process is there, and will register, whatever becomes of who started it."""
        self._booting.add(resource_id)
        register = self._latencies.take(Work.REGISTER, resource_id)

        def boots() -> None:
            if resource_id in self._booting:
                self._booting.remove(resource_id)
                self._workers.start(resource_id, slots, delay=register)

        self._world.schedule_at(self._world.now + self._latencies.take(Work.BOOT, resource_id), boots)

    def fail_worker_start(self, resource_id: str, reason: str) -> None:
        """A worker's process ends before it has registered, if it has not yet."""
        if resource_id in self._booting:
            self._booting.remove(resource_id)
            self._workers.end_process(resource_id, reason)

    def _usual_delay(self, instruction: Instruction) -> Time:
        match instruction:
            case CreateChannels():
                work = Work.CREATE_CHANNELS
            case DeleteChannels():
                work = Work.DELETE_CHANNELS
            case BuildJobGraph():
                work = Work.BUILD
            case _:
                work = Work.STORE
        return self._latencies.take(work, instruction.key)

    def _answer(self, role_address: str, instruction: Instruction, body: Body | None) -> None:
        if isinstance(instruction, FindCheckpoint):
            self._storage.add_candidates(instruction)
        usual = perform(role_address, instruction, self._storage, self._build)
        told = body is not None and _is_about_same_facts(body, usual.body)
        self._world.append_from_shell(
            role_address, OutgoingEvent(role_address, body, usual.cause) if told and body else usual
        )

    def _start_worker(self, role_address: str, instruction: StartWorkerProcess) -> None:
        world, resource_id = self._world, instruction.resource_id
        usual = self._latencies.take(Work.START_WORKER, resource_id)
        delay, failure = self._told(instruction, world.now) or (usual, None)
        if failure is not None:
            failed = OutgoingEvent(role_address, failure, instruction.cause)
            world.schedule_after(delay, role_address, lambda: world.append_from_shell(role_address, failed))
            return
        started = resource_manager.WorkerStarted(resource_id=resource_id, address=ADDRESS)

        def begins() -> None:
            if resource_id not in self._booting and not self._workers.is_running(resource_id):
                self.begin_worker_process(resource_id, instruction.number_of_slots)
            world.append_from_shell(role_address, OutgoingEvent(role_address, started, instruction.cause))

        world.schedule_after(delay, role_address, begins)

    def _stop_worker(self, instruction: StopWorkerProcess) -> None:
        self._booting.discard(instruction.resource_id)
        self._workers.end_process(
            instruction.resource_id, f"it was stopped: {instruction.reason}", instruction.cause
        )


def _is_about_same_facts(told: Body, usual: Body) -> bool:
    """Whether an answer tells of what is there: which checkpoint is found, the simulation knows better."""
    if not isinstance(told, job_master.CheckpointRestored):
        return True
    return isinstance(usual, job_master.CheckpointRestored) and told.checkpoint == usual.checkpoint
