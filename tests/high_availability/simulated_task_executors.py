"""TaskExecutors in the process of the test, with heartbeats. Their tasks run until a test ends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from tailrace.infra.process_marker import create_marker
from tailrace.schemas.types import HardwareDescription
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import TASK_EXECUTOR, Instruction, Time, address
from tailrace.services.host.host import Host
from tailrace.services.log.factory import open_event_log
from tailrace.services.processes import heartbeats
from tailrace.services.simulation.fake_effects import InstantTaskBehavior, NoOpTaskExecutorEffects
from tailrace.services.simulation.task_behavior import CheckpointContribution, Subtask, TaskEnd
from tailrace.services.simulation.task_events import register_event, running_report
from tailrace.services.task_executor import TaskExecutor
from tailrace.services.task_executor.instructions import TriggerTasks
from tailrace.services.task_executor.resources import Task
from tailrace.services.task_executor.state import TaskExecutorState

from .job_graphs import FINISH_AT_ONCE


class _TestTaskBehavior(InstantTaskBehavior):
    """Tasks of some jobs finish as soon as they run, others never. Checkpoints can be held back."""

    def __init__(self) -> None:
        super().__init__()
        self.holds_checkpoints = False

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        return TaskEnd() if subtask[0].startswith(FINISH_AT_ONCE) else None

    def contribution(self, task: Task, trigger: TriggerTasks, now: Time) -> CheckpointContribution | None:
        return CheckpointContribution(1 if self.holds_checkpoints else 0)


class SimulatedTaskExecutor:
    """One TaskExecutor. Tasks of jobs with ids FINISH_AT_ONCE finish after their start, others by `finish`."""

    def __init__(self, configuration: Configuration, resource_id: str, slots: int) -> None:
        self._own = address(TASK_EXECUTOR, resource_id)
        self._resource_id = resource_id
        self._slots = slots
        self._lock = threading.RLock()
        self._failure: BaseException | None = None
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
        self._behavior = _TestTaskBehavior()
        self._effects = NoOpTaskExecutorEffects(self._host.emit, behavior=self._behavior)
        self._heartbeats, self._hearts = heartbeats.create_task_executor_heartbeats(
            configuration, self._host, self._own, resource_id, running_report
        )
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._run, self._register)
        ]
        for thread in self._threads:
            thread.start()

    def finish(self, job_id: str) -> None:
        """Ends its tasks of the job."""
        with self._lock:
            for attempt, subtask in self._effects.tasks.running().items():
                if subtask[0] == job_id:
                    self._effects.tasks.end(attempt, TaskEnd())

    def hold_checkpoints(self) -> None:
        """Acknowledges no checkpoint until `acknowledge`."""
        with self._lock:
            self._behavior.holds_checkpoints = True

    def acknowledge(self) -> None:
        """Acknowledges the checkpoints that were held back, and those that come."""
        with self._lock:
            self._behavior.holds_checkpoints = False
            self._effects.run_delayed()

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._heartbeats.close()
        self._host.close()
        self._log.close()
        if self._failure is not None:
            raise self._failure

    def retire(self, role_address: str) -> None:
        raise AssertionError(f"{role_address} was taken over")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        with self._lock:
            self._effects.perform(role_address, instructions, state)
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
        event = register_event(
            self._resource_id, self._slots, hardware=hardware, process_address=self._resource_id
        )
        body = replace(event.body, process_mark=create_marker(os.getpid()))
        self._host.emit(self._own, replace(event, body=body))


class SimulatedTaskExecutors:
    """Several simulated TaskExecutors. A context manager."""

    def __init__(self, configuration: Configuration, count: int, slots: int) -> None:
        self.all = [
            SimulatedTaskExecutor(configuration, f"te-{number}", slots) for number in range(1, count + 1)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task_executor in self.all:
            task_executor.close()

    def finish(self, job_id: str) -> None:
        """Ends the tasks of the job."""
        for task_executor in self.all:
            task_executor.finish(job_id)

    def hold_checkpoints(self) -> None:
        """No task acknowledges a checkpoint until `acknowledge`."""
        for task_executor in self.all:
            task_executor.hold_checkpoints()

    def acknowledge(self) -> None:
        """All tasks acknowledge the checkpoints that were held back."""
        for task_executor in self.all:
            task_executor.acknowledge()
