"""The world around the roles, simulated: a graph, topics that exist at once, tasks that run when asked for.

Checkpoints of these tasks hold nothing, and barriers take no time: as soon as one task of a job is told of a
checkpoint, all have acknowledged it. Their metadata is really written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.schemas import job_master
from tailrace.schemas.body import Body
from tailrace.schemas.states import EXECUTION_ENDS
from tailrace.schemas.types import (
    AccumulatorSnapshot,
    CheckpointMetrics,
    ExecutionState,
    HardwareDescription,
    JobGraph,
    ResourceProfile,
    SubtaskState,
)
from tailrace.services.begun import Begun
from tailrace.services.job_master.checkpoints.shell import CheckpointShell
from tailrace.services.job_master.instructions import (
    CreateChannels,
    DeleteChannels,
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)
from tailrace.services.roles import JOB_MASTER, Instruction, Owed, Say, address
from tailrace.services.task_executor.instructions import (
    AbortTasks,
    ConfirmTasks,
    RunTasks,
    StopTask,
    TriggerTasks,
)
from tailrace.services.task_executor.state import TaskExecutorState

SLOTS = 100
Follow = Callable[[str, Any], object]
"""Told of each address and state, as the heartbeats of a real shell are."""

PROFILE = ResourceProfile(
    cpu_cores=1.0,
    heap_memory_mb=256,
    direct_memory_mb=0,
    native_memory_mb=0,
    network_memory_mb=0,
    managed_memory_mb=0,
)
HARDWARE = HardwareDescription(
    cpu_cores=SLOTS, physical_memory=1 << 38, jvm_heap=SLOTS * 256 << 20, managed_memory=0
)


def all_to_all(parallelism: int, *, shared: bool) -> JobGraph:
    """A source of one subtask, then two vertices joined all to all; these in one slot sharing group or in two."""
    environment = StreamExecutionEnvironment(max_parallelism=1 << 15)
    groups = ["default", "default"] if shared else ["first", "second"]
    stream = environment.socket_text_stream("localhost", 9999).slot_sharing_group(groups[0])
    pairs = stream.map(_pair, tuple[str, int]).slot_sharing_group(groups[0]).set_parallelism(1)
    for group in groups:
        windows = pairs.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=5))
        pairs = windows.reduce(_later).set_parallelism(parallelism).slot_sharing_group(group)
    pairs.print().set_parallelism(parallelism).slot_sharing_group(groups[1])
    return environment.get_job_graph(f"2 x {parallelism}")


def _pair(line: str) -> tuple[str, int]:
    return line, 1


def _later(_one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return other


class ChannelsExist:
    """The JobMaster's shell where topics cost nothing."""

    def __init__(self, say: Say, follow: Follow = lambda *_: None) -> None:
        self._say = say
        self._follow = follow
        self._begun = Begun()
        self._checkpoints = CheckpointShell(say)

    def retire(self, role_address: str) -> None: ...

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._begun.new(role_address, instructions):
            body: Body
            match instruction:
                case CreateChannels(job_id=job_id, cause=cause):
                    body = job_master.ChannelsCreated(job_id=job_id)
                case DeleteChannels(job_id=job_id, cause=cause):
                    body = job_master.ChannelsDeleted(job_id=job_id)
                case WriteMetadata() | DiscardCheckpoint() | FindCheckpoint() | RemoveCheckpoints():
                    self._checkpoints.obey(role_address, instruction)
                    continue
                case _:
                    raise TypeError(f"not simulated: {instruction!r}")
            self._say(role_address, Owed(role_address, body, cause))

    def close(self) -> None:
        self._checkpoints.close()


class TasksRun:
    """The shell of many TaskExecutors whose tasks run as soon as they are asked for."""

    def __init__(self, say: Say, follow: Follow = lambda *_: None) -> None:
        self._say = say
        self._follow = follow
        self._begun = Begun()
        self._running: dict[str, dict[str, str]] = {}
        """Job -> attempt -> its TaskExecutor."""
        self._acknowledged: dict[str, int] = {}
        """Job -> its newest checkpoint."""

    def retire(self, role_address: str) -> None: ...

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)
        for instruction in self._begun.new(role_address, instructions):
            match instruction:
                case RunTasks(job_id=job_id, tasks=tasks):
                    for task in tasks:
                        self._running.setdefault(job_id, {})[task.execution_attempt_id] = role_address
                        for reached in (ExecutionState.INITIALIZING, ExecutionState.RUNNING):
                            self._report(role_address, job_id, task.execution_attempt_id, reached, task.cause)
                case StopTask(execution_attempt_id=attempt, job_id=job_id, cause=cause):
                    self._running.get(job_id, {}).pop(attempt, None)
                    self._report(role_address, job_id, attempt, ExecutionState.CANCELED, cause)
                case TriggerTasks(job_id=job_id, checkpoint_id=checkpoint_id):
                    self._acknowledge(job_id, checkpoint_id)
                case ConfirmTasks() | AbortTasks():
                    pass
                case _:
                    raise TypeError(f"not simulated: {instruction!r}")

    def _acknowledge(self, job_id: str, checkpoint_id: int) -> None:
        if self._acknowledged.get(job_id, 0) >= checkpoint_id:
            return
        self._acknowledged[job_id] = checkpoint_id
        for attempt, role_address in self._running.get(job_id, {}).items():
            body = job_master.AcknowledgeCheckpoint(
                job_id=job_id,
                execution_attempt_id=attempt,
                checkpoint_id=checkpoint_id,
                metrics=CheckpointMetrics(),
                subtask_state=SubtaskState(),
            )
            self._say(role_address, Owed(address(JOB_MASTER, job_id), body, None))

    def _report(
        self, role_address: str, job_id: str, attempt: str, state: ExecutionState, cause: int
    ) -> None:
        body = job_master.UpdateTaskExecutionState(
            job_id=job_id, execution_attempt_id=attempt, execution_state=state
        )
        self._say(role_address, Owed(address(JOB_MASTER, job_id), body, cause))

    def close(self) -> None:
        pass


class Follower:
    """A shell that obeys nothing: the ResourceManager's, where workers are started by hand."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow

    def retire(self, role_address: str) -> None: ...

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._follow(role_address, state)

    def close(self) -> None:
        pass


def running(state: TaskExecutorState) -> Iterator[AccumulatorSnapshot]:
    """What a runtime that does all that it is asked for has."""
    for attempt, task in state.tasks.items():
        if task.state not in EXECUTION_ENDS:
            yield AccumulatorSnapshot(
                job_id=task.job_id, execution_attempt_id=attempt, user_accumulators={"records": 1.0}
            )
