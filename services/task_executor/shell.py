"""The TaskExecutor's shell: lets the runtime run and stop tasks, and reports their states.

It is the only module of the services that imports pipelines.runtime.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import psutil

from ...infra import threads
from ...infra.config.options import Scope
from ...infra.process_marker import create_marker
from ...pipelines.graph.accumulators import bounded
from ...pipelines.runtime.common.deployment import CheckpointTrigger, SubtaskDeployment, VertexDeployment
from ...schemas import job_master, resource_manager
from ...schemas.body import Body
from ...schemas.states import EXECUTION_ENDS
from ...schemas.types import (
    AccumulatorSnapshot,
    CheckpointMetrics,
    ExecutionState,
    HardwareDescription,
    SubtaskAcknowledgement,
    SubtaskState,
)
from ..blobs.library_cache import BlobLibraryCacheManager
from ..configuration import Configuration
from ..configuration.options.task_executor import MANAGED_MEMORY
from ..configuration.resources import slot_profile
from ..core.instruction_tracker import InstructionTracker
from ..core.role import JOB_MASTER, RESOURCE_MANAGER, Emit, Instruction, OutgoingEvent, address
from .acknowledgement_batches import AcknowledgementBatches, Batch
from .blob_staging import BlobStager
from .instructions import AbortTasks, ConfirmTasks, RunTasks, StopTask, TriggerTasks
from .state import TaskExecutorState

_NONE: Mapping[str, float] = MappingProxyType({})


class Runtime(Protocol):
    """The part of pipelines.runtime.TaskRuntime that the shell uses."""

    def jvm_heap_bytes(self) -> int: ...

    def deploy(self, deployment: VertexDeployment) -> None: ...

    def cancel(self, execution_attempt_id: str) -> None: ...

    def trigger_checkpoint(
        self, execution_attempt_ids: Sequence[str], checkpoint: CheckpointTrigger
    ) -> None: ...

    def confirm_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None: ...

    def abort_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None: ...

    def accumulators(self) -> Mapping[str, Mapping[str, float]]: ...

    def attempts(self) -> Mapping[str, Mapping[str, float]]: ...

    def close(self) -> None: ...


class TaskExecutorShell:
    """Performs instructions. The runtime calls `reported`, `acknowledged` and `declined` from its own threads.

    `follow` receives each state on the host's thread: heartbeats read from it. `blobs`: the source of tasks' blobs.
    """

    def __init__(
        self,
        say: Emit,
        role_address: str,
        cluster: str,
        follow: Callable[[TaskExecutorState], None] = lambda _: None,
        blobs: BlobLibraryCacheManager | None = None,
    ) -> None:
        self._say = say
        self._follow = follow
        self._address = role_address
        self._cluster = cluster
        self._runtime: Runtime | None = None
        self._started = InstructionTracker()
        self._jobs: dict[str, tuple[str, int]] = {}
        """Each attempt that has not ended here -> its job, and the offset of what it does."""
        self._stopped: dict[str, tuple[str, int]] = {}
        """The same for attempts that were to be stopped and do not run: they never started, or have ended already."""
        self._triggered: dict[str, tuple[int, int]] = {}
        """Job -> the last checkpoint that was started here, and the offset of the request."""
        self._libraries = BlobStager(blobs, self._deploy, self._on_deployment_failed)
        self._reporting = threading.Lock()
        """Held for each report of a task, for what is sent before it, and when attempts start or end."""
        self._batches = AcknowledgementBatches()
        self._linger: threads.Timer | None = None

    @property
    def registered(self) -> bool:
        """Whether the TaskExecutor has sent its registration."""
        return self._runtime is not None

    def register(
        self,
        runtime: Runtime,
        configuration: Configuration,
        *,
        resource_id: str,
        process_address: str,
        diagnostics_address: str = "",
        container_id: str = "",
        cause: int | None = None,
    ) -> None:
        """Sends the registration after the runtime has started. `cause`: the offset of the TaskExecutor's own claim."""
        self._runtime = runtime
        cores = os.cpu_count() or 1
        hardware = HardwareDescription(
            cpu_cores=cores,
            physical_memory=psutil.virtual_memory().total,
            jvm_heap=runtime.jvm_heap_bytes(),
            managed_memory=configuration.get(MANAGED_MEMORY),
        )
        body = resource_manager.RegisterTaskExecutor(
            address=process_address,
            resource_id=resource_id,
            data_port=0,
            hardware=hardware,
            number_of_slots=configuration.task_slots,
            default_slot_profile=slot_profile(configuration, cpu_cores=cores, jvm_heap=hardware.jvm_heap),
            configuration=configuration.as_map(Scope.TASKMANAGER),
            process_mark=create_marker(os.getpid()),
            diagnostics_address=diagnostics_address,
            container_id=container_id,
        )
        self._say(self._address, OutgoingEvent(RESOURCE_MANAGER, body, cause))

    def running(self, state: TaskExecutorState) -> Iterator[AccumulatorSnapshot]:
        """Returns the attempts in the runtime, and those still to be passed to it; from any thread."""
        # In this order: an attempt whose blobs have arrived is in both, not in neither.
        attempts: dict[str, Mapping[str, float]] = {each: {} for each in self._libraries.waiting()}
        measured: Mapping[str, Mapping[str, float]] = {}
        if self._runtime is not None:
            attempts |= self._runtime.accumulators()
            measured = self._runtime.attempts()
        for attempt, counts in attempts.items():
            known = self._jobs.get(attempt)
            if known is not None:
                all_counts = measured.get(attempt, {})
                metrics = {name: value for name, value in all_counts.items() if name not in counts}
                yield AccumulatorSnapshot(
                    job_id=known[0],
                    execution_attempt_id=attempt,
                    user_accumulators=counts,
                    metrics=bounded(metrics),
                )
        for attempt, task in state.tasks.items():
            if attempt not in self._jobs:
                yield AccumulatorSnapshot(job_id=task.job_id, execution_attempt_id=attempt)

    def retire(self, role_address: str) -> None:
        """Ends this process and its tasks: another process has this resource id."""

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._perform(instructions)
        if isinstance(state, TaskExecutorState):
            if self._stopped:
                with self._reporting:
                    self._stopped = {each: job for each, job in self._stopped.items() if each in state.tasks}
            self._follow(state)

    def _perform(self, instructions: Sequence[Instruction]) -> None:
        runtime = self._runtime
        if runtime is None:
            # The runtime has not started: the registration that follows brings the instructions here again.
            return
        for instruction in self._started.take_new(self._address, instructions):
            match instruction:
                case RunTasks():
                    self._run(instruction)
                case StopTask(execution_attempt_id=attempt, job_id=job_id, cause=cause):
                    with self._reporting:
                        attempts = self._jobs if attempt in self._jobs else self._stopped
                        attempts[attempt] = (job_id, cause)
                    self._libraries.cancel(attempt)
                    runtime.cancel(attempt)
                case TriggerTasks(
                    job_id=job_id,
                    checkpoint_id=number,
                    attempts=attempts,
                    timestamp=timestamp,
                    options=options,
                    cause=cause,
                ):
                    self._triggered[job_id] = (number, cause)
                    checkpoint = CheckpointTrigger(checkpoint_id=number, timestamp=timestamp, options=options)
                    runtime.trigger_checkpoint(attempts, checkpoint)
                case ConfirmTasks(checkpoint_id=number, attempts=attempts):
                    runtime.confirm_checkpoint(attempts, number)
                case AbortTasks(checkpoint_id=number, attempts=attempts):
                    runtime.abort_checkpoint(attempts, number)
                case _:
                    raise TypeError(f"the TaskExecutor's shell does not know {instruction!r}")

    def reported(
        self,
        execution_attempt_id: str,
        state: ExecutionState,
        failure: str | None,
        accumulators: Mapping[str, float] = _NONE,
        progress_lost: bool = False,
    ) -> None:
        """Reports a task's new state. `accumulators`: the committed counts of its subtask, at its end.
        `progress_lost`: it failed because the data that it should continue from is gone."""
        with self._reporting:
            attempts = self._jobs if execution_attempt_id in self._jobs else self._stopped
            job_id, cause = attempts[execution_attempt_id]
            if state in EXECUTION_ENDS:
                del attempts[execution_attempt_id]
        if state in EXECUTION_ENDS:
            self._libraries.ended(job_id, execution_attempt_id)
        body = job_master.UpdateTaskExecutionState(
            job_id=job_id,
            execution_attempt_id=execution_attempt_id,
            execution_state=state,
            failure=failure,
            accumulators=bounded(accumulators) if state in EXECUTION_ENDS else {},
            progress_lost=progress_lost,
        )
        self._send_after_acknowledgements(job_id, body, cause)

    def acknowledged(
        self,
        execution_attempt_id: str,
        checkpoint_id: int,
        state: SubtaskState,
        metrics: CheckpointMetrics,
    ) -> None:
        """Reports that a task's snapshot for a checkpoint is in storage: in one event with those of the job's other
        tasks here."""
        found = self._cause_of_part(execution_attempt_id, checkpoint_id)
        if found is None:
            return
        job_id, cause = found
        part = SubtaskAcknowledgement(
            execution_attempt_id=execution_attempt_id, metrics=metrics, subtask_state=state
        )

        def running() -> list[str]:
            # The runtime starts tasks while others acknowledge.
            return [attempt for attempt, known in list(self._jobs.items()) if known[0] == job_id]

        with self._reporting:
            now_us = time.monotonic_ns() // 1000
            self._send(
                self._batches.add(job_id, checkpoint_id, part, running=running, cause=cause, now_us=now_us)
            )
            self._start_linger(now_us)

    def declined(self, execution_attempt_id: str, checkpoint_id: int, reason: str) -> None:
        """Reports that a task declines a checkpoint."""
        found = self._cause_of_part(execution_attempt_id, checkpoint_id)
        if found is None:
            return
        job_id, cause = found
        body = job_master.DeclineCheckpoint(
            job_id=job_id,
            execution_attempt_id=execution_attempt_id,
            checkpoint_id=checkpoint_id,
            reason=reason,
        )
        self._send_after_acknowledgements(job_id, body, cause)

    def _cause_of_part(self, execution_attempt_id: str, checkpoint_id: int) -> tuple[str, int] | None:
        """Returns the job of an Execution, and the cause of its part in a checkpoint; None if it has ended."""
        known = self._jobs.get(execution_attempt_id)
        if known is None:
            return None
        job_id, cause = known
        last, trigger = self._triggered.get(job_id, (-1, cause))
        # A task that received only barriers of other senders knows no event except its SubmitTask.
        return job_id, trigger if last == checkpoint_id else cause

    def _send_after_acknowledgements(self, job_id: str, body: Body, cause: int) -> None:
        with self._reporting:
            self._send(self._batches.take_job(job_id))
            self._say(self._address, OutgoingEvent(address(JOB_MASTER, job_id), body, cause))

    def _send(self, batches: Iterable[Batch]) -> None:
        for body, cause in batches:
            self._say(self._address, OutgoingEvent(address(JOB_MASTER, body.job_id), body, cause))

    def _start_linger(self, now_us: int) -> None:
        due_us = self._batches.due_us()
        if due_us is not None and self._linger is None:
            delay_s = max(0, due_us - now_us) / 1e6
            self._linger = threads.Timer(delay_s, self._on_linger, name="acknowledgements")
            self._linger.start()

    def _on_linger(self) -> None:
        with self._reporting:
            self._linger = None
            now_us = time.monotonic_ns() // 1000
            self._send(self._batches.take_due(now_us))
            self._start_linger(now_us)

    def close(self) -> None:
        with self._reporting:
            self._send(self._batches.take_all())
        self._libraries.close()
        if self._runtime is not None:
            self._runtime.close()

    def _deploy(self, deployment: VertexDeployment) -> None:
        if self._runtime is not None:
            self._runtime.deploy(deployment)

    def _on_deployment_failed(self, execution_attempt_id: str, reason: str) -> None:
        self.reported(execution_attempt_id, ExecutionState.FAILED, reason)

    def _run(self, instruction: RunTasks) -> None:
        with self._reporting:
            for task in instruction.tasks:
                self._jobs[task.execution_attempt_id] = (instruction.job_id, task.cause)
        subtasks = tuple(
            SubtaskDeployment(
                task.execution_attempt_id,
                task.subtask_index,
                task.attempt_number,
                resumes=task.state is not ExecutionState.DEPLOYING,
                generation=task.generation,
                restore=task.restore,
                finished=task.finished,
                checkpoints_over=task.checkpoints_over,
                offset_resets=task.offset_resets,
                slot=task.allocation_id,
                slot_tasks=instruction.process_size(task),
            )
            for task in instruction.tasks
        )
        self._libraries.deploy(
            instruction.job_id,
            (subtask.execution_attempt_id for subtask in subtasks),
            instruction.job_graph,
            lambda graph: VertexDeployment(
                cluster=self._cluster,
                job_id=instruction.job_id,
                job_graph=graph,
                vertex_id=instruction.vertex_id,
                subtasks=subtasks,
            ),
        )
