"""TaskExecutors in the test's own process, with heartbeats, whose tasks do nothing but run until a test ends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tailrace.infra.process_marker import create_marker
from tailrace.schemas import job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.states import EXECUTION_ENDS
from tailrace.schemas.types import (
    AccumulatorSnapshot,
    CheckpointMetrics,
    ExecutionState,
    HardwareDescription,
    ResourceProfile,
    SubtaskState,
)
from tailrace.services.configuration import Configuration
from tailrace.services.core.instruction_tracker import InstructionTracker
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Instruction,
    OutgoingEvent,
    address,
)
from tailrace.services.host.host import Host
from tailrace.services.log.factory import open_event_log
from tailrace.services.processes import heartbeats
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import RunTasks, StopTask, TriggerTasks
from tailrace.services.task_executor.state import TaskExecutorState

from .job_graphs import AT_ONCE

_PROFILE = ResourceProfile(
    cpu_cores=1.0,
    heap_memory_mb=256,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)


class SimulatedTaskExecutor:
    """One TaskExecutor. Tasks of jobs that are called AT_ONCE finish when they have begun, others by `finish`."""

    def __init__(self, configuration: Configuration, resource_id: str, slots: int) -> None:
        self._own = address(TASK_EXECUTOR, resource_id)
        self._resource_id = resource_id
        self._slots = slots
        self._begun = InstructionTracker()
        self._running: dict[str, str] = {}
        """Attempt -> job."""
        self._triggered: list[tuple[str, str, int]] = []
        """(job, attempt, checkpoint) that have not been acknowledged."""
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self.acknowledges = threading.Event()
        self.acknowledges.set()
        self._log = open_event_log(configuration)
        self._host = Host(
            self._log,
            Replica([TaskExecutor()], only=self._own.__eq__),
            cluster=configuration.cluster_id,
            leads=(self._own,),
            process_address=resource_id,
            session=resource_id,
            concerns=(self._own,),
        )
        self._heartbeats, self._hearts = heartbeats.create_task_executor_heartbeats(
            configuration, self._host, self._own, resource_id, self._reports
        )
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._run, self._register)
        ]
        for each in self._threads:
            each.start()

    def finish(self, job_id: str) -> None:
        """Its tasks of the job have nothing more to do."""
        with self._lock:
            ending = [attempt for attempt, job in self._running.items() if job == job_id]
        for attempt in ending:
            self._report(job_id, attempt, ExecutionState.FINISHED)

    def acknowledge(self) -> None:
        """Checkpoints that were held back by clearing `acknowledges` are taken, and those that come."""
        self.acknowledges.set()
        self._acknowledge()

    def close(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()
        self._heartbeats.close()
        self._host.close()
        self._log.close()
        if self._failure is not None:
            raise self._failure

    def retire(self, role_address: str) -> None:
        raise AssertionError(f"{role_address} was taken over")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        for instruction in self._begun.take_new(role_address, instructions):
            match instruction:
                case RunTasks(job_id=job_id, tasks=tasks):
                    for task in tasks:
                        self._run_task(job_id, instruction.job_graph.name, task.execution_attempt_id)
                case StopTask(execution_attempt_id=attempt, job_id=job_id):
                    self._report(job_id, attempt, ExecutionState.CANCELED)
                case TriggerTasks(job_id=job_id, checkpoint_id=checkpoint_id, attempts=attempts):
                    with self._lock:
                        self._triggered += [(job_id, attempt, checkpoint_id) for attempt in attempts]
                    if self.acknowledges.is_set():
                        self._acknowledge()
                case _:
                    pass
        assert isinstance(state, TaskExecutorState)
        self._hearts.follow(state)

    def _run(self) -> None:
        try:
            self._heartbeats.start()
            self._host.run(self._stop, {TASK_EXECUTOR: self})
        except Exception as error:
            self._failure = error

    def _register(self) -> None:
        while not self._host.leading.wait(0.05):
            if self._stop.is_set():
                return
        hardware = HardwareDescription(
            cpu_cores=self._slots, physical_memory=1 << 34, jvm_heap=self._slots << 28, managed_memory=0
        )
        body = resource_manager.RegisterTaskExecutor(
            address=self._resource_id,
            resource_id=self._resource_id,
            data_port=0,
            hardware=hardware,
            number_of_slots=self._slots,
            default_slot_profile=_PROFILE,
            process_mark=create_marker(os.getpid()),
        )
        self._host.emit(self._own, OutgoingEvent(RESOURCE_MANAGER, body, None))

    def _run_task(self, job_id: str, name: str, attempt: str) -> None:
        with self._lock:
            self._running[attempt] = job_id
        self._report(job_id, attempt, ExecutionState.INITIALIZING)
        self._report(job_id, attempt, ExecutionState.RUNNING)
        if name == AT_ONCE:
            self._report(job_id, attempt, ExecutionState.FINISHED)

    def _report(self, job_id: str, attempt: str, state: ExecutionState) -> None:
        if state in EXECUTION_ENDS:
            with self._lock:
                if self._running.pop(attempt, None) is None:
                    return
        body = job_master.UpdateTaskExecutionState(
            job_id=job_id, execution_attempt_id=attempt, execution_state=state
        )
        self._say(job_id, body)

    def _acknowledge(self) -> None:
        with self._lock:
            triggered, self._triggered = self._triggered, []
        for job_id, attempt, checkpoint_id in triggered:
            body = job_master.AcknowledgeCheckpoint(
                job_id=job_id,
                execution_attempt_id=attempt,
                checkpoint_id=checkpoint_id,
                metrics=CheckpointMetrics(),
                subtask_state=SubtaskState(),
            )
            self._say(job_id, body)

    def _say(self, job_id: str, body: Body) -> None:
        self._host.emit(self._own, OutgoingEvent(address(JOB_MASTER, job_id), body, None))

    def _reports(self, state: TaskExecutorState) -> list[AccumulatorSnapshot]:
        return [
            AccumulatorSnapshot(job_id=task.job_id, execution_attempt_id=attempt)
            for attempt, task in state.tasks.items()
            if task.state not in EXECUTION_ENDS
        ]


class SimulatedTaskExecutors:
    """Several. A context manager."""

    def __init__(self, configuration: Configuration, count: int, slots: int) -> None:
        self.all = [
            SimulatedTaskExecutor(configuration, f"te-{number}", slots) for number in range(1, count + 1)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.all:
            each.close()

    def finish(self, job_id: str) -> None:
        """The job's tasks have nothing more to do."""
        for each in self.all:
            each.finish(job_id)

    def hold_checkpoints(self) -> None:
        """Until `acknowledge` no task has its part of a checkpoint ready."""
        for each in self.all:
            each.acknowledges.clear()

    def acknowledge(self) -> None:
        for each in self.all:
            each.acknowledge()
