"""Simulated parts of benchmarks (`tailrace.services.simulation`): a graph, shells, and tasks.

The metadata of checkpoints is really written.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.schemas.states import EXECUTION_ENDS
from tailrace.schemas.types import AccumulatorSnapshot, HardwareDescription, JobGraph
from tailrace.services.task_executor.state import TaskExecutorState

SLOTS = 100
HARDWARE = HardwareDescription(
    cpu_cores=SLOTS, physical_memory=1 << 38, jvm_heap=SLOTS * 256 << 20, managed_memory=0
)


def all_to_all(parallelism: int, *, shared: bool) -> JobGraph:
    """Returns a source of one subtask, then two vertices joined all to all; these in one slot sharing group or in
    two."""
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


def running(state: TaskExecutorState) -> Iterator[AccumulatorSnapshot]:
    """Returns the running attempts of a runtime that obeys every instruction."""
    for attempt, task in state.tasks.items():
        if task.state not in EXECUTION_ENDS:
            yield AccumulatorSnapshot(
                job_id=task.job_id, execution_attempt_id=attempt, user_accumulators={"records": 1.0}
            )
