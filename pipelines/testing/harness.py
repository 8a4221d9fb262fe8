"""Drives steps of a stream by hand, without a source and a sink: elements and times go in, records come out at once.

The steps run as the tasks of a job, so keys, state, timers, windows, side outputs and snapshots are those of a real
cluster, at any parallelism. Event time is what the test says: nothing else makes watermarks.
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from ...infra.storage.storage import Storage
from ...schemas.types import JobGraph
from ..api import (
    DataStream,
    OutputTag,
    SingleOutputStreamOperator,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)
from ..graph.errors import ProgramError
from ..runtime.operators.watermarks import WatermarkAssigner
from ..runtime.records.batch import Batch
from ..runtime.records.timestamps import encode_timestamps
from ..runtime.stream_task.input.sources.source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup
from .job import DrivenRun, MiniJob
from .memory.attempt import MemoryAttempt
from .memory.kafka import BEGIN_MS, Place

X = TypeVar("X")


class HarnessSnapshot:
    """The state of a harness. Its files are in memory, and are removed with it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        weakref.finalize(self, _delete, uri)


class StreamHarness:
    """Drives what `build` makes of one or several streams.

    harness = StreamHarness(lambda words: words.key_by(lambda word: word).process(Count()))
    harness.process_element("a", timestamp=1_000)
    harness.process_watermark(5_000)
    assert harness.extract_output_values() == [("a", 1)]
    """

    def __init__(
        self,
        build: Callable[..., DataStream[Any]],
        *,
        types: Sequence[object] | None = None,
        side_outputs: Iterable[OutputTag[Any]] = (),
        parallelism: int = 1,
        configuration: Mapping[str, str] | None = None,
        now_ms: int = BEGIN_MS,
        snapshot: HarnessSnapshot | None = None,
    ) -> None:
        """`build`: takes a stream for each of its parameters, and returns the stream whose records are the output.
        `types`: the record type of each input, as `output_type` in a program; None: any. `side_outputs`: of the last
        step, those to record. `now_ms`: the processing time at the beginning. `snapshot`: of another harness, from
        which this one continues; the parallelism may be another one.
        """
        env = StreamExecutionEnvironment(parallelism=parallelism, configuration=configuration)
        count = len(inspect.signature(build).parameters)
        self._inputs = [f"input {i}" for i in range(count)]
        of = list(types or [None] * count)
        if len(of) != count:
            raise ValueError(f"build takes {count} streams, and there are {len(of)} types")
        streams: list[DataStream[Any]] = [
            env.from_collection([], output_type=hint)
            .uid(name)
            .assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
            .set_parallelism(1)
            .uid(f"{name}, event time")
            .name(name)
            for name, hint in zip(self._inputs, of, strict=True)
        ]
        built = build(*streams)
        built._collect("StreamHarness", "")
        for tag in side_outputs:
            if not isinstance(built, SingleOutputStreamOperator):
                raise ProgramError(f"the last step has no side outputs, such as {tag.name!r}")
            built.get_side_output(tag)._collect("StreamHarness", tag.name)
        self._sides = {"", *(tag.name for tag in side_outputs)}
        self._now = now_ms
        self._watermarks: dict[str, int] = {}
        directory = tempfile.mkdtemp(prefix="tailrace-harness-")
        self._remove = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        graph = env.get_job_graph("harness")
        clock = _Clock(now_ms)
        self._clock = clock
        self._job = _HarnessJob(graph, directory, clock, None if snapshot is None else snapshot.uri)
        self._job.work()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the functions."""
        self._job.cancel()
        self._remove()

    def process_element(self, value: Any, timestamp: int | None = None, *, input: int = 0) -> None:
        """Processes an element. `timestamp`: in milliseconds since the epoch; None: the processing time. `input`: the
        number of the stream, from 0. Raises JobFailedError with the function's error."""
        self.process_elements([(value, timestamp)], input=input)

    def process_elements(self, elements: Iterable[tuple[Any, int | None]], *, input: int = 0) -> None:
        """Processes elements with their timestamps that arrive together."""
        pairs = [(value, self._clock.now if at is None else at) for value, at in elements]
        if pairs:
            times = encode_timestamps("an element has the timestamp", [at for _, at in pairs])
            batch = Batch.from_rows(times, [value for value, _ in pairs])
            self._job.inject(self._input(input), lambda assigner: assigner.output.emit(batch))
            self._job.work()

    def process_watermark(self, time: int, *, input: int | None = None) -> None:
        """Says that no element with a timestamp up to this one follows: timers and windows of event time fire.
        `input`: of this stream only; None: of all."""
        for name in self._inputs if input is None else [self._input(input)]:
            if time > self._watermarks.get(name, time - 1):
                self._watermarks[name] = time
                self._job.inject(name, lambda assigner: assigner.output.emit_watermark(time))
        self._job.work()

    def set_processing_time(self, time: int) -> None:
        """Moves the processing time to this one (ms): timers and windows of processing time fire, each at its time."""
        while (due := self._job.next_time) is not None and due <= time:
            self._clock.now = due
            self._job.work()
        self._clock.now = max(self._clock.now, time)
        self._job.work()

    def advance(self, *, seconds: float = 0, milliseconds: int = 0) -> None:
        """Moves the processing time on."""
        self.set_processing_time(self._clock.now + round(seconds * 1000) + milliseconds)

    def _input(self, number: int) -> str:
        if not 0 <= number < len(self._inputs):
            raise ValueError(f"there is no input {number}: the steps have {len(self._inputs)}, from 0")
        return self._inputs[number]

    def end_input(self) -> None:
        """Says that no element follows on any input: event time comes to its end, and all windows fire."""
        for name in self._inputs:
            self._job.end(name)
        self._job.work()

    def extract_output_values(self) -> list[Any]:
        """Returns the records of the output so far, in order."""
        return [value for value, _ in self._records("")]

    def extract_output(self) -> list[tuple[Any, int]]:
        """Returns the records of the output so far, with their timestamps (ms)."""
        return self._records("")

    def side_output(self, tag: OutputTag[X]) -> list[X]:
        """Returns the records of a side output so far, in order."""
        if tag.name not in self._sides:
            raise ValueError(f"side output {tag.name!r} is not recorded: name it in side_outputs")
        return [value for value, _ in self._records(tag.name)]

    def accumulators(self) -> Mapping[str, float]:
        """Returns the accumulators."""
        return self._job.accumulators()

    def fail(self) -> None:
        """Kills the tasks, as `kill -9` does, and starts them again from what they have committed."""
        self._job.fail()
        for name, time in self._watermarks.items():
            self._job.inject(name, lambda assigner, time=time: assigner.output.emit_watermark(time))  # type: ignore[misc]
        self._job.work()

    def snapshot(self) -> HarnessSnapshot:
        """Takes a snapshot of all state and timers."""
        return HarnessSnapshot(self._job.trigger_savepoint(f"memory://harness/{uuid.uuid4().hex}"))

    def _records(self, identifier: str) -> list[tuple[Any, int]]:
        return self._job.records(identifier)


class _Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class _SilentSource(Source):
    """A source that reads nothing: the harness emits in its place."""

    def __init__(self) -> None:
        self.has_ended = False

    def restore(self, message: bytes) -> None:
        pass

    def open(self, setup: SourceSetup) -> None:
        pass

    def poll(self, limit: int) -> PollResult:
        return PollResult(has_ended=self.has_ended, wait_s=UNTIL_WOKEN_S)


class _HarnessRun(DrivenRun):
    """A run whose sources are silent."""

    def _prepare(self, place: Place) -> None:
        super()._prepare(place)
        attempt = self._attempts[place]
        if not attempt.finished and attempt.polls:
            attempt.task._source = (attempt.assembly.vertex.operators[0].operator_id, _SilentSource())

    def source(self, name: str) -> MemoryAttempt:
        """Returns the attempt that emits the elements of an input."""
        return next(
            attempt
            for attempt in self._attempts.values()
            if any(operator.name == name for operator in attempt.assembly.vertex.operators)
        )


class _HarnessJob(MiniJob):
    """The job of a harness."""

    _run: _HarnessRun

    def __init__(self, graph: JobGraph, directory: str, clock: _Clock, savepoint: str | None) -> None:
        super().__init__(
            graph, f"harness-{uuid.uuid4().hex}", directory, {}, clock, savepoint=savepoint, run=_HarnessRun
        )

    def inject(self, name: str, emit: Callable[[WatermarkAssigner], None]) -> None:
        """Lets an input emit."""
        with self._failures():
            task = self._run.source(name).task
            (assigner,) = (each for each in task._chain.operators if isinstance(each, WatermarkAssigner))
            emit(assigner)
            task.output.is_dirty = True

    def end(self, name: str) -> None:
        """Ends an input."""
        source = self._run.source(name).task._source
        assert source is not None
        assert isinstance(source[1], _SilentSource)
        source[1].has_ended = True


def _delete(uri: str) -> None:
    Storage.open(uri).delete_tree("")
