"""A job of a MiniCluster, which the test drives: it works whenever the test writes records or moves the clock, until
nothing is left to do."""

from __future__ import annotations

import random
import uuid
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from ...infra.storage.errors import CheckpointError
from ...schemas.types import JobGraph, JobStatus, SnapshotType
from ..api.executor import CheckpointFailedError, JobExecutionResult, JobFailedError
from ..checkpoint.compatibility import incompatibilities, with_key_groups_of
from ..checkpoint.metadata import CheckpointMetadata, read_metadata
from ..functions import files
from ..graph.errors import ProgramError
from ..graph.python_files import unpack
from ..runtime.common.failures import describe_failure
from ..types import PICKLED
from .memory.checkpoints import MemoryCheckpoint
from .memory.cluster import MemoryCluster, Outcome
from .memory.kafka import Message
from .memory.surroundings import no_pause

IDLE_ROUNDS = 3
"""So many rounds in which no subtask does anything, then the job waits for records or time."""
IDLE_STEPS = 20
"""The same, of steps of each subtask at random."""
MOST_ROUNDS = 10_000
POLL_LIMIT = 1_000
"""Records."""


def new_job_id(prefix: str) -> str:
    """Returns an id that no other job has, also none of another process: files and transactions of sinks are named by
    it, so a job with the id of a former one would leave out what that one has written."""
    return f"{prefix}-{uuid.uuid4().hex}"


class MiniJob:
    """A job of a MiniCluster; also the JobClient that `env.execute_async()` returns there."""

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        directory: str,
        logs: dict[str, dict[int, list[Message]]],
        clock: Callable[[], int],
        *,
        seed: int | None = None,
        crashes: int = 0,
        savepoint: str | None = None,
        pause: Callable[[float], None] = no_pause,
        run: type[DrivenRun] | None = None,
    ) -> None:
        """`crashes`: the maximum number of crashes at random times, if there is a seed. `pause`: waits for so many
        seconds. `run`: the class of what runs the job; None: DrivenRun.

        Raises ProgramError if the state of the savepoint does not fit the program.
        """
        restored = None if savepoint is None else restored_from(savepoint, graph)
        if restored is not None:
            graph = with_key_groups_of(restored.metadata, graph)
        self.name = graph.name
        self._directory = directory
        self._began = clock()
        self._clock = clock
        self._crashes = crashes
        self._status = JobStatus.RUNNING
        self._collected = 0
        make = run or DrivenRun
        self._run = make(graph, job_id, f"{directory}/{job_id}", logs, clock, seed, restored)
        self._run.pause = pause
        self._shipped = Path(directory, f"{job_id}-files") if graph.python_files else None
        if self._shipped is not None:
            unpack(graph.python_files, self._shipped)
        with self._failures():
            self._run.start()

    @property
    def job_id(self) -> str:
        """The id of the job in the MiniCluster."""
        return self._run.job_id

    def status(self) -> JobStatus:
        """Returns RUNNING, FINISHED, CANCELED or FAILED."""
        return self._status

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self._status is JobStatus.RUNNING

    @property
    def printed(self) -> list[str]:
        """The text of each printed record, in the order of the job's output."""
        return [row["text"] for row in self.output]

    def printed_by(self, identifier: str) -> list[str]:
        """Returns the text of each record that `print(identifier)` has printed."""
        return [row["text"] for row in self.output if row["identifier"] == identifier]

    @property
    def output(self) -> list[dict[str, Any]]:
        """The job's output: `subtask`, `identifier`, `timestamp`, `text` and `record` (as JSON) of each record."""
        return Outcome(self._run.kafka.logs, {}, 0, 0, self.job_id).printed

    def accumulators(self) -> Mapping[str, float]:
        """Returns the committed accumulators of all subtasks together."""
        return self._run.accumulators

    def result(self) -> JobExecutionResult:
        """Returns the result so far; it does not wait, because time stands still."""
        took = timedelta(milliseconds=self._clock() - self._began)
        return JobExecutionResult(self.job_id, self._status, self.accumulators(), took)

    def cancel(self) -> None:
        """Ends the job at once."""
        if self.is_running:
            self._end(JobStatus.CANCELED)

    def trigger_checkpoint(self) -> str:
        """Takes a checkpoint, and returns its directory. Raises CheckpointFailedError."""
        return self._snapshot(SnapshotType.CHECKPOINT)

    def trigger_savepoint(self, directory: str | None = None) -> str:
        """Takes a savepoint, and returns its directory. Raises CheckpointFailedError."""
        return self._snapshot(SnapshotType.SAVEPOINT, directory)

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        """Takes a savepoint, and ends the job with status FINISHED; `drain`: all windows and timers fire first."""
        return self._snapshot(SnapshotType.SAVEPOINT, directory, stops=True, drains=drain)

    def fail(self) -> None:
        """Kills all processes of the job, as `kill -9` does: what they had in memory is lost. They start again from
        their last commit."""
        with self._failures():
            self._run.crash_all()
        self.work()

    def collected(self) -> Iterator[bytes]:
        """Yields the records of `execute_and_collect` so far that were not yielded yet, pickled."""
        while len(rows := self.output) > self._collected:
            for row in rows[self._collected :]:
                self._collected += 1
                if "collected" in row:
                    yield b64decode(row["collected"])

    def records(self, identifier: str | None) -> list[tuple[Any, int]]:
        """Returns the collected records with that identifier, with their timestamps."""
        rows = [row for row in self.output if "collected" in row and row["identifier"] == identifier]
        values = PICKLED.load(b64decode(row["collected"]) for row in rows)
        return [(value, row["timestamp"]) for value, row in zip(values, rows, strict=True)]

    def work(self, rounds: int | None = None) -> bool:
        """Works until nothing is left to do at this time, or for so many rounds. Returns whether anything was done.
        Raises JobFailedError."""
        worked = False
        if not self.is_running:
            return worked
        with self._failures():
            if self._run.rng is not None:
                worked = self._work_at_random(self._run.rng)
            idle = done = 0
            while idle < IDLE_ROUNDS and (unfinished := self._run.unfinished()):
                moved = False
                for place in unfinished:
                    moved = self._run.step(place, None) or moved
                worked = worked or moved
                idle = 0 if moved else idle + 1
                done += 1
                if done == rounds:
                    break
                if done > MOST_ROUNDS:
                    raise AssertionError(
                        f"job {self.name!r} always has more to do: give its sources an end or a rate"
                    )
        if not self._run.unfinished():
            self._end(JobStatus.FINISHED)
        return worked

    @property
    def next_time(self) -> int | None:
        """The time at which a timer, a window or a source is due (ms); None: nothing waits for a time."""
        return self._run.next_time() if self.is_running else None

    def _work_at_random(self, rng: random.Random) -> bool:
        worked, idle = False, 0
        while (unfinished := self._run.unfinished()) and idle < IDLE_STEPS * len(unfinished):
            place = rng.choice(unfinished)
            moved = self._run.step(place, rng)
            worked = worked or moved
            idle = 0 if moved else idle + 1
            self._run.kafka.deliver_late(rng)
            if self._crashes and moved and rng.random() < 0.1:
                self._crashes -= 1
                self._run.crash(place)
        return worked

    def _snapshot(
        self,
        of: SnapshotType,
        directory: str | None = None,
        *,
        stops: bool = False,
        drains: bool = False,
    ) -> str:
        if not self.is_running:
            raise CheckpointFailedError(f"job {self.job_id} is {self._status.name}")
        coordinator = self._run.checkpoints
        assert coordinator is not None
        # A cluster that loses a task meanwhile gives up the snapshot: that is not for this call to try.
        crashes, self._crashes = self._crashes, 0
        with self._failures():
            number = coordinator.trigger(of, stops=stops, drains=drains, directory=directory)
        self.work()
        self._crashes = crashes
        taken = [each for each in coordinator.taken if each.completed.checkpoint_id == number]
        if not taken:
            raise CheckpointFailedError(f"checkpoint {number} was not completed: a subtask has declined it")
        return taken[0].completed.uri

    def _end(self, status: JobStatus) -> None:
        self._status = status
        self._run.close()

    def _failures(self) -> _Failures:
        return _Failures(self)


class _Failures:
    """Makes a job FAILED by what its subtasks raise. Meanwhile `shipped_file` finds the files of this job."""

    def __init__(self, job: MiniJob) -> None:
        self._job = job

    def __enter__(self) -> None:
        self._before, files.directory = files.directory, self._job._shipped

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        files.directory = self._before
        if error is not None:
            self._job._end(JobStatus.FAILED)
        if isinstance(error, Exception) and not isinstance(error, AssertionError):
            first = describe_failure(error).partition("\n")[0]
            raise JobFailedError(f"job {self._job.name!r} has failed: {first}") from (
                error.__cause__ or error
            )


class DrivenRun(MemoryCluster):
    """A job that steps when it is told to, at the cluster's time."""

    is_real_time = True

    def __init__(
        self,
        graph: JobGraph,
        job_id: str,
        directory: str,
        logs: dict[str, dict[int, list[Message]]],
        clock: Callable[[], int],
        seed: int | None,
        restored: MemoryCheckpoint | None,
    ) -> None:
        self._clock = clock
        super().__init__(
            graph,
            {},
            seed,
            job_id=job_id,
            directory=directory,
            scratch=f"{directory}/state",
            restored=restored,
            logs=logs,
        )
        self.poll_limit = POLL_LIMIT

    @property
    def now(self) -> int:
        return self._clock()

    def wall_clock(self) -> int:
        return self._clock()

    def repeats_now(self, rng: random.Random | None) -> bool:
        return self.rng is not None and (rng is None or rng.random() < 0.05)

    def crash_all(self) -> None:
        """Kills all processes, and starts them again."""
        for places in self._processes():
            if alive := [place for place in places if not self._attempts[place].finished]:
                self.crash(alive[0])

    def next_time(self) -> int | None:
        """Returns the time after now at which something is due (ms)."""
        now = self._clock()
        times = [self._attempts[place].next_time for place in self.unfinished()]
        return min((time for time in times if time is not None and time > now), default=None)


def restored_from(savepoint: str, graph: JobGraph) -> MemoryCheckpoint:
    """Returns the savepoint or checkpoint in a directory. Raises ProgramError if it does not fit the graph."""
    try:
        metadata: CheckpointMetadata = read_metadata(savepoint)
    except CheckpointError as error:
        raise ProgramError(f"the savepoint {savepoint} cannot be read: {error}") from error
    if reasons := incompatibilities(metadata, with_key_groups_of(metadata, graph)):
        raise ProgramError(f"the savepoint {savepoint} does not fit the program: {reasons[0]}")
    return MemoryCheckpoint(metadata, ())
