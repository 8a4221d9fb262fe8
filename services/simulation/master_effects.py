"""The effects of simulated masters: each result of `simulated_effects` comes after its latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.event import EVERYONE
from ...schemas.everyone import ConfigurationChanged, FeatureLevelRaised
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Instruction, OutgoingEvent, Time
from ..dispatcher.role import BuildJobGraph
from ..job_master.instructions import CreateChannels, DeleteChannels, FindCheckpoint, MeasureTasks
from ..job_master.state import StartedJob
from ..resource_manager.instructions import StartWorkerProcess, StopWorkerProcess
from .checkpoint_storage import SimulatedStorage, StatePart, part_name
from .latencies import Latencies, Work
from .simulated_effects import perform
from .simulator import Simulator
from .task_events import ADDRESS
from .task_executors import SimulatedTaskExecutors

FindRecordedEffect = Callable[[Instruction, Time], tuple[Time, Body | None] | None]
"""(instruction, now) -> after how long its result comes, and the result if it is not the usual one; None: it is not
recorded."""


_WORK: Mapping[type[Instruction], Work] = {
    CreateChannels: Work.CREATE_CHANNELS,
    DeleteChannels: Work.DELETE_CHANNELS,
    BuildJobGraph: Work.BUILD,
}


class SimulatedMasterEffects:
    """The SimulatorShell of the roles of KINDS."""

    KINDS = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)

    def __init__(
        self,
        simulator: Simulator,
        task_executors: SimulatedTaskExecutors,
        latencies: Latencies,
        storage: SimulatedStorage,
        find_recorded: FindRecordedEffect = lambda *_: None,
    ) -> None:
        self._simulator = simulator
        self._task_executors = task_executors
        self._latencies = latencies
        self._storage = storage
        self._find_recorded = find_recorded
        self._booting: set[str] = set()
        """Workers whose processes were started and have not claimed their roles."""
        for state in map(simulator.replica.states.__getitem__, simulator.replica.active_addresses):
            if isinstance(state, StartedJob):
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
        simulator = self._simulator
        match instruction:
            case StartWorkerProcess():
                self._start_worker(role_address, instruction)
            case StopWorkerProcess(resource_id=resource_id):
                delay = self._latencies.take(Work.STOP_WORKER, resource_id)
                simulator.schedule_after(delay, role_address, lambda: self._stop_worker(instruction))
            case MeasureTasks():
                # Only a recording has what tasks do.
                measured = self._find_recorded(instruction, simulator.now)
                if measured is not None and measured[1] is not None:
                    event = OutgoingEvent(role_address, measured[1], instruction.cause)
                    simulator.schedule_after(
                        measured[0], role_address, lambda: simulator.append_from_shell(role_address, event)
                    )
            case _:
                usual = self._latencies.take(_WORK.get(type(instruction), Work.STORE), instruction.key)
                delay, body = self._find_recorded(instruction, simulator.now) or (usual, None)
                simulator.schedule_after(
                    delay, role_address, lambda: self._complete(role_address, instruction, body)
                )

    def configure(self, configuration: dict[str, str]) -> None:
        """Announces the configuration, as the leader of the Dispatcher does."""
        self._announce(ConfigurationChanged(configuration=configuration))

    def raise_level(self, level: int) -> None:
        """Announces the feature level, as the leader of a new log does."""
        self._announce(FeatureLevelRaised(level=level))

    def begin_worker_process(self, resource_id: str, slots: int) -> None:
        """Starts the process of a worker. It will register, whatever happens to the process that started it."""
        self._booting.add(resource_id)
        register = self._latencies.take(Work.REGISTER, resource_id)

        def boots() -> None:
            if resource_id in self._booting:
                self._booting.remove(resource_id)
                self._task_executors.start(resource_id, slots, delay=register)

        self._simulator.schedule_at(self._simulator.now + self._latencies.take(Work.BOOT, resource_id), boots)

    def fail_worker_start(self, resource_id: str, reason: str) -> None:
        """Ends the process of a worker before it registers, if it has not registered yet."""
        if resource_id in self._booting:
            self._booting.remove(resource_id)
            self._task_executors.end_process(resource_id, reason)

    def _announce(self, body: Body) -> None:
        event = OutgoingEvent(EVERYONE, body, self._simulator.claim_offset(DISPATCHER))
        self._simulator.append_from_shell(DISPATCHER, event)

    def _complete(self, role_address: str, instruction: Instruction, recorded: Body | None) -> None:
        if isinstance(instruction, FindCheckpoint):
            self._storage.add_candidates(instruction)
        usual = perform(role_address, instruction, self._storage)
        repeats = recorded is not None and _can_repeat(recorded, usual.body)
        event = OutgoingEvent(role_address, recorded, usual.cause) if repeats and recorded else usual
        self._simulator.append_from_shell(role_address, event)

    def _start_worker(self, role_address: str, instruction: StartWorkerProcess) -> None:
        simulator, resource_id = self._simulator, instruction.resource_id
        usual = self._latencies.take(Work.START_WORKER, resource_id)
        delay, failure = self._find_recorded(instruction, simulator.now) or (usual, None)
        if failure is not None:
            failed = OutgoingEvent(role_address, failure, instruction.cause)
            simulator.schedule_after(
                delay, role_address, lambda: simulator.append_from_shell(role_address, failed)
            )
            return
        started = resource_manager.WorkerStarted(resource_id=resource_id, address=ADDRESS)

        def begins() -> None:
            if resource_id not in self._booting and not self._task_executors.is_running(resource_id):
                self.begin_worker_process(resource_id, instruction.number_of_slots)
            simulator.append_from_shell(role_address, OutgoingEvent(role_address, started, instruction.cause))

        simulator.schedule_after(delay, role_address, begins)

    def _stop_worker(self, instruction: StopWorkerProcess) -> None:
        self._booting.discard(instruction.resource_id)
        self._task_executors.end_process(
            instruction.resource_id, f"it was stopped: {instruction.reason}", instruction.cause
        )


def _can_repeat(recorded: Body, usual: Body) -> bool:
    """Returns whether the recorded result may be used: which checkpoint is found depends on the simulated storage."""
    if not isinstance(recorded, job_master.CheckpointRestored):
        return True
    return isinstance(usual, job_master.CheckpointRestored) and recorded.checkpoint == usual.checkpoint
