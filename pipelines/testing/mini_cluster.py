"""A cluster in one process: topics, a clock and jobs that a test drives.

Nothing happens by itself. A job works when it starts, when the test writes records, moves the clock or lets processes
fail, and then until nothing is left to do. So a test never waits, and asserts at once. The operators, formats, state,
checkpoints and transactions are those of a real cluster.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

import msgspec

from ...schemas.types import JobGraph
from ..api import Format, Formats, StreamExecutionEnvironment
from ..api.build import run_file
from ..api.executor import JobFailedError, ProgramContext, program_context
from ..graph.errors import ProgramError
from ..graph.operators import OperatorKind
from ..graph.validation import validate
from .job import MiniJob, new_job_id
from .memory.kafka import BEGIN_MS, MemoryKafka, Message
from .topic import Topic

MOST_TIMES = 100_000
"""At which something is due, while the clock moves once."""


class MiniCluster:
    """Runs programs in this process. Use it as a context manager, which cancels all jobs at its end.

    with MiniCluster() as cluster:
        orders = cluster.topic("orders", partitions=2)
        job = cluster.run(env)
        orders.write([{"user": "ann", "amount": 3}], key=lambda order: order["user"])
        cluster.advance(seconds=5)
        assert job.printed == ["('ann', 3)"]
    """

    def __init__(
        self,
        *,
        parallelism: int | None = None,
        configuration: Mapping[str, str] | None = None,
        seed: int | None = None,
        crashes: int = 0,
        now_ms: int = BEGIN_MS,
    ) -> None:
        """`parallelism`, `configuration`: as `-p` and `-D` of `tailrace run`. `now_ms`: the time at which the clock
        stands, in milliseconds since the epoch.

        `seed`: the subtasks work in an order that it decides, in small steps, so that a test can try many orders and
        repeat each; None: in the order of the graph. `crashes`: with a seed, how often processes of each job are killed
        at random moments.
        """
        if crashes and seed is None:
            raise ValueError("crashes happen at random moments: give a seed too")
        self._parallelism = parallelism
        self._configuration = dict(configuration or {})
        self._seed = seed
        self._crashes = crashes
        self._now = now_ms
        self._logs: dict[str, dict[int, list[Message]]] = {}
        self._kafka = MemoryKafka(self._logs)
        self._topics: dict[str, Topic] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="tailrace-test-")
        self.jobs: list[MiniJob] = []
        """All jobs, in the order of their start."""

    def __enter__(self) -> MiniCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels all jobs, and removes checkpoints and savepoints."""
        for job in self.jobs:
            job.cancel()
        self._directory.cleanup()

    def topic(self, name: str, partitions: int = 1, format: Format | None = None) -> Topic:
        """Creates a topic, or returns the one of that name, with at least so many partitions. `format`: of its values;
        None: JSON."""
        if partitions < 1:
            raise ValueError(f"topic {name} needs at least one partition, not {partitions}")
        logs = self._logs.setdefault(name, {})
        for partition in range(partitions):
            logs.setdefault(partition, [])
        if name not in self._topics or format is not None:
            self._topics[name] = Topic(
                name,
                self._kafka,
                format or Formats.json(),
                now=lambda: self._now,
                on_written=self.work,
            )
        return self._topics[name]

    def run(
        self,
        program: StreamExecutionEnvironment | Callable[[], object] | str | Path,
        arguments: Sequence[str] = (),
        *,
        parallelism: int | None = None,
        savepoint: str | None = None,
        name: str = "test",
    ) -> MiniJob:
        """Starts the job of a program, and returns it when it has ended or waits for records or time.

        `program`: an environment, whose job gets the `name`; a function that calls `execute`; or the path of a
        PROGRAM.py, which runs with the `arguments` as `__main__`. Of several jobs the last one is returned; `jobs` has
        all. `parallelism`: None: that of the cluster, or else of the program. `savepoint`: the directory of a savepoint
        or checkpoint that the job continues from. Raises ProgramError, JobFailedError.
        """
        before = len(self.jobs)
        executor = _Executor(self, savepoint)
        wanted = parallelism or self._parallelism
        if isinstance(program, (str, Path)):
            try:
                run_file(
                    str(program), arguments, executor, parallelism=wanted, configuration=self._configuration
                )
            except ProgramError as error:
                if isinstance(error.__cause__, JobFailedError):
                    raise error.__cause__  # noqa: B904 (its own cause is the error of the user's function)
                raise
        else:
            with program_context(ProgramContext(executor, wanted, self._configuration)):
                if isinstance(program, StreamExecutionEnvironment):
                    if wanted is not None:
                        program.set_parallelism(wanted)
                    for key, value in self._configuration.items():
                        program.configure(key, value)
                    program.execute_async(name)
                else:
                    program()
        if len(self.jobs) == before:
            raise ProgramError("the program has executed no job: end it with env.execute()")
        return self.jobs[-1]

    @property
    def now_ms(self) -> int:
        """The time at which the clock stands, in milliseconds since the epoch."""
        return self._now

    def advance(self, *, seconds: float = 0, milliseconds: int = 0) -> None:
        """Moves the clock on: timers fire, windows of processing time end, and sources with a rate go on, each at its
        time."""
        self._advance_to(self._now + round(seconds * 1000) + milliseconds)

    def set_time(self, time: int | datetime) -> None:
        """Moves the clock to a time: milliseconds since the epoch, or a datetime, which is in UTC if it has no zone."""
        if isinstance(time, datetime):
            aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            time = round(aware.timestamp() * 1000)
        self._advance_to(time)

    def fail(self) -> None:
        """Kills all processes of all running jobs, as `kill -9` does: what they had in memory is lost. They start again
        from their last commit."""
        for job in self._running():
            job.fail()
        self.work()

    def work(self) -> None:
        """Lets all jobs work until nothing is left to do at this time. Raises JobFailedError."""
        while any(job.work() for job in self._running()):
            pass

    def _running(self) -> list[MiniJob]:
        return [job for job in self.jobs if job.is_running]

    def _advance_to(self, time: int) -> None:
        if time < self._now:
            raise ValueError(f"the clock stands at {self._now}, and cannot go back to {time}")
        for _ in range(MOST_TIMES):
            due = [at for job in self._running() if (at := job.next_time) is not None and at <= time]
            if not due:
                break
            self._now = min(due)
            self.work()
        self._now = time
        self.work()

    def start(self, graph: JobGraph, savepoint: str | None = None) -> MiniJob:
        """Starts a job of a graph, as `run` does. Raises ProgramError, JobFailedError."""
        if reasons := validate(graph):
            raise ProgramError(f"the job was rejected: {reasons[0]}")
        _check_sources(graph)
        number = len(self.jobs) + 1
        job = MiniJob(
            _without_other_clusters(graph),
            new_job_id(f"job{number:03d}"),
            self._directory.name,
            self._logs,
            lambda: self._now,
            seed=None if self._seed is None else self._seed + number - 1,
            crashes=self._crashes,
            savepoint=savepoint,
        )
        self.jobs.append(job)
        self.work()
        return job


class _Executor:
    """The PipelineExecutor of programs in a MiniCluster."""

    def __init__(self, cluster: MiniCluster, savepoint: str | None) -> None:
        self._cluster = cluster
        self._savepoint = savepoint

    def execute(self, job_graph: JobGraph) -> MiniJob:
        return self._cluster.start(job_graph, self._savepoint)


def _check_sources(graph: JobGraph) -> None:
    """Raises ProgramError if a source never has nothing to do."""
    for operator in (operator for vertex in graph.vertices for operator in vertex.operators):
        if operator.kind == OperatorKind.GENERATOR:
            parameters = json.loads(operator.parameters)
            if parameters.get("count") is None and parameters.get("rate") is None:
                raise ProgramError(
                    "it generates records without end while the clock stands: give it a count, or a rate_per_second",
                    operator=operator.name,
                    location=operator.location,
                )


def _without_other_clusters(graph: JobGraph) -> JobGraph:
    """Returns the graph with sinks into the cluster's topics where it names another Kafka: all topics are here."""
    vertices = [
        msgspec.structs.replace(
            vertex,
            operators=[
                msgspec.structs.replace(operator, kind=OperatorKind.KAFKA_SINK)
                if operator.kind == OperatorKind.EXTERNAL_KAFKA_SINK
                else operator
                for operator in vertex.operators
            ],
        )
        for vertex in graph.vertices
    ]
    return msgspec.structs.replace(graph, vertices=vertices)
