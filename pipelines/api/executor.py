"""The executor of the process: `execute` passes the JobGraph to it.

There is one executor per process, not per thread: a process runs one program, and the program may call `execute` from
any of its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Final, Protocol

from ...schemas.types import JobGraph, JobStatus, PythonFile
from ..graph.errors import NotConnected
from ..graph.stream_graph import StreamGraph


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The result of a job. With `tailrace run -d`, which does not wait, it has only what is known at submission."""

    job_id: str
    status: JobStatus
    accumulators: Mapping[str, float] = field(default_factory=dict)
    """Name -> sum over all subtasks."""
    duration: timedelta | None = None
    """From acceptance to end; None if the job has not ended, or the client did not wait."""


class CheckpointFailedError(Exception):
    """A requested checkpoint or savepoint was not completed; the message is the reason."""


class JobFailedError(Exception):
    """A job whose records a program collects has failed; the message is the reason that a cluster reports."""


class JobClient(Protocol):
    """A submitted job."""

    @property
    def job_id(self) -> str:
        """The id under which the cluster knows the job."""

    def status(self) -> JobStatus:
        """Returns the current status of the job."""

    def cancel(self) -> None:
        """Requests the cancellation of the job; returns at once."""

    def trigger_checkpoint(self) -> str:
        """Triggers a checkpoint, waits for it, and returns its directory, a path or URI. Raises
        CheckpointFailedError.

        The checkpoint belongs to the job, which discards it when newer ones replace it.
        """

    def trigger_savepoint(self, directory: str | None = None) -> str:
        """Takes a savepoint, waits for it, and returns its directory, a path or URI. Raises CheckpointFailedError.

        It is created below `directory` (a path or URI that the cluster can write to; None: `state.savepoints.dir`) and
        stays until it is disposed of.
        """

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        """Takes a savepoint like `trigger_savepoint`, and ends the job with status FINISHED. No record after the
        savepoint is processed.

        `drain`: emits the maximum watermark first, so that all windows and timers fire (Flink's
        advanceToEndOfEventTime). Do not drain a job that will continue from the savepoint.
        """

    def result(self) -> JobExecutionResult:
        """Waits until the job has ended. A detached client returns at once."""

    def collected(self) -> Iterator[bytes]:
        """Yields the records of `execute_and_collect`, pickled, to the end of the job. Raises
        JobFailedError."""

    def accumulators(self) -> Mapping[str, float]:
        """Returns the accumulators that the tasks last reported; they are final after the job has ended."""


class PipelineExecutor(Protocol):
    """Executes the graphs of a program."""

    def execute(self, job_graph: JobGraph) -> JobClient:
        """Submits the job; returns when it is accepted. May raise ProgramError with the reason of a rejection."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """The settings and the executor of a program."""

    executor: PipelineExecutor
    parallelism: int | None = None
    """The default parallelism (`-p`); None for the program's own."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    python_files: Sequence[PythonFile] = ()
    """The files that the program itself was imported from; its jobs ship them too."""
    python_path: str | None = None
    """The directory of the unpacked files: modules imported from there are shipped, not pickled."""
    on_stream_graph: Callable[[StreamGraph], None] = lambda _: None
    """Called with the StreamGraph of each job before the job is passed to the executor."""


_LOCAL: Final = "testing.local"
"""What executes jobs in this process. It lies above this package, so it is loaded by name."""

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
    """Returns the context of the program; None if it was started as a plain Python program."""
    return _current


def current_executor() -> PipelineExecutor:
    """Returns the executor that takes the program's graphs. Raises ProgramError if there is none."""
    if _current is None:
        raise NotConnected(
            "this process is not connected to a cluster: start the program with `tailrace run PROGRAM.py`, or"
            " use StreamExecutionEnvironment.local()"
        )
    return _current.executor


def local_executor(*, prints: bool = False) -> PipelineExecutor:
    """Returns an executor that runs jobs in this process, without a cluster. `prints`: their output on stdout."""
    package = __package__.rpartition(".")[0]
    made: PipelineExecutor = import_module(f"{package}.{_LOCAL}").LocalExecutor(prints=prints)
    return made


def collecting_executor() -> PipelineExecutor:
    """Returns the executor of the program; that of this process if the program is connected to no cluster."""
    return local_executor() if _current is None else _current.executor
