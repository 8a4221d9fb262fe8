"""The executor of the process: `execute` passes the JobGraph to it.

There is one executor per process, not per thread: a process runs one program, and the program may call `execute` from
any of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from ...schemas.types import JobGraph, JobStatus, PythonFile
from ..graph.errors import NotConnected
from ..graph.stream_graph import StreamGraph


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The result of a job; with `tailrace run -d`, which does not wait, what is known at its submission."""

    job_id: str
    status: JobStatus
    accumulators: Mapping[str, float] = field(default_factory=dict)
    """Name -> sum over all subtasks."""
    duration: timedelta | None = None
    """From acceptance to end; None where the job has not ended, or nobody waited for it."""


class CheckpointFailedError(Exception):
    """A checkpoint or savepoint that was asked for was not completed; the message is the reason."""


class JobClient(Protocol):
    """A submitted job."""

    @property
    def job_id(self) -> str:
        """The id under which the cluster knows the job."""

    def status(self) -> JobStatus:
        """The job's status now."""

    def cancel(self) -> None:
        """Asks for the job to be cancelled; returns at once."""

    def trigger_checkpoint(self) -> str:
        """Has a checkpoint taken now and waits for it; its directory, a path or URI. Raises CheckpointFailedError.

        It belongs to the job, which discards it when there are newer ones.
        """

    def trigger_savepoint(self, directory: str | None = None) -> str:
        """Takes a savepoint, waits for it, and returns its directory, a path or URI. Raises CheckpointFailedError.

        It is created below `directory` (a path or URI that the cluster can write to; None: `state.savepoints.dir`) and
        stays until it is disposed of.
        """

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        """As `trigger_savepoint`; the job then ends with status FINISHED, and does nothing behind the savepoint.

        `drain`: emits the maximum watermark first, so that all windows and timers fire (Flink's
        advanceToEndOfEventTime). Do not drain a job that will continue from the savepoint.
        """

    def result(self) -> JobExecutionResult:
        """Waits until the job has ended. A detached client returns at once."""

    def accumulators(self) -> Mapping[str, float]:
        """The accumulators that the tasks last reported; final once the job has ended."""


class PipelineExecutor(Protocol):
    """Takes the graphs of a program."""

    def execute(self, job_graph: JobGraph) -> JobClient:
        """Has the job run; returns when it is accepted. May raise ProgramError with the reason it is not."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """What a program runs under."""

    executor: PipelineExecutor
    parallelism: int | None = None
    """The default parallelism (`-p`); None for the program's own."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    python_files: Sequence[PythonFile] = ()
    """What the program was itself imported from; its jobs ship them too."""
    python_path: str | None = None
    """The directory where those lie unpacked: modules imported from there are shipped, not pickled."""
    on_stream_graph: Callable[[StreamGraph], None] = lambda _: None
    """Is told the StreamGraph of each job before that is handed to the executor."""


_current: ProgramContext | None = None


@contextmanager
def program_context(context: ProgramContext) -> Iterator[None]:
    """Makes the context the current one of the process."""
    global _current
    before, _current = _current, context
    try:
        yield
    finally:
        _current = before


def current_context() -> ProgramContext | None:
    """The context of the program; None if it was started as a plain Python program."""
    return _current


def current_executor() -> PipelineExecutor:
    """The executor that takes the program's graphs. Raises ProgramError if there is none."""
    if _current is None:
        raise NotConnected(
            "this process is connected to no cluster: start the program with `tailrace run PROGRAM.py`"
        )
    return _current.executor
