"""Programs in a MiniCluster: topics, the clock, failures and savepoints."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tailrace import (
    Formats,
    KafkaSink,
    KafkaSource,
    KeyedContext,
    KeyedProcessFunction,
    OnTimerContext,
    ProgramError,
    RuntimeContext,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    shipped_file,
)
from tailrace.pipelines.api.executor import CheckpointFailedError
from tailrace.pipelines.testing.memory.kafka import murmur2
from tailrace.schemas.types import JobStatus
from tailrace.testing import JobFailedError, MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]

WORDS = list("abcabbdaacbd")


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    """The number of each record of a key; a timer tells when 10 s have passed since the last."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int))
        self.seen = 0

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterator[tuple[str, int]]:
        self.seen += 1
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        timers = context.timer_service
        timers.register_processing_time_timer(timers.current_processing_time() + 10_000)
        yield value, count

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterator[tuple[str, int]]:
        yield context.current_key, -(self.count.value() or 0)


def words(bounded: bool = False, starting: StartingOffsets | None = None) -> KafkaSource:
    return KafkaSource(
        "words", Formats.text(), bounded=bounded, starting=starting or StartingOffsets.earliest()
    )


def counting(to: str | None = "counts", parallelism: int = 1) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(parallelism=parallelism)
    counts = env.from_source(words()).key_by(lambda word: word).process(Count())
    if to is None:
        counts.print()
    else:
        counts.sink_to(KafkaSink(to, Formats.json(), key=lambda pair: pair[0]))
    return env


def test_records_are_processed_when_they_are_written(tailrace_cluster: MiniCluster) -> None:
    topic = tailrace_cluster.topic("words", partitions=2, format=Formats.text())
    job = tailrace_cluster.run(counting(None))
    assert (job.status(), job.printed) == (JobStatus.RUNNING, [])
    topic.write(["a", "b"])
    topic.write(["a"])
    assert Counter(job.printed) == Counter(["('a', 1)", "('b', 1)", "('a', 2)"])


def test_timers_fire_at_their_time_when_clock_moves(tailrace_cluster: MiniCluster) -> None:
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(counting(None))
    topic.write(["a"])
    tailrace_cluster.advance(seconds=9.999)
    assert job.printed == ["('a', 1)"]
    tailrace_cluster.advance(milliseconds=2)
    assert job.printed == ["('a', 1)", "('a', -1)"]


def test_windows_of_processing_time_end_each_at_its_time(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    ticks = env.from_source(words()).map(lambda word: (word, 1), output_type=tuple[str, int])
    ticks.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=5)).sum(1).print()
    tailrace_cluster.set_time(datetime(2024, 1, 1))
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(env)
    for _ in range(3):
        topic.write(["a", "a"])
        tailrace_cluster.advance(seconds=2.5)
    assert job.printed == ["('a', 4)"]
    tailrace_cluster.advance(seconds=60)
    assert job.printed == ["('a', 4)", "('a', 2)"]


def later(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return max(one, other)


def test_generator_with_rate_goes_on_with_clock(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    numbers = env.generate(lambda n: ("n", n), rate_per_second=10)
    numbers.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=1)).reduce(later).print()
    tailrace_cluster.set_time(datetime(2024, 1, 1))
    job = tailrace_cluster.run(env)
    tailrace_cluster.advance(seconds=3.1)
    assert len(job.printed) == 3, "each window has the records of its second"


@pytest.mark.parametrize("seed", range(5))
def test_results_are_exactly_once_at_any_crash(seed: int) -> None:
    with MiniCluster(seed=seed, crashes=5, parallelism=2) as cluster:
        topic = cluster.topic("words", partitions=3, format=Formats.text())
        counts = cluster.topic("counts", partitions=2)
        cluster.run(counting())
        for word in WORDS:
            topic.write([word], key=word)
        cluster.fail()
        topic.write(["a"], key="a")
        expected = Counter({**Counter(WORDS), "a": WORDS.count("a") + 1})
        assert counts.by_key() == {word: [word, count] for word, count in expected.items()}
        assert len(counts.messages()) == expected.total()


def test_failure_loses_what_is_only_in_memory(tailrace_cluster: MiniCluster) -> None:
    class InMemory(KeyedProcessFunction[str, str, int]):
        def open(self, context: RuntimeContext) -> None:
            self.seen = 0

        def process_element(self, value: str, context: KeyedContext[str]) -> Iterator[int]:
            self.seen += 1
            yield self.seen

    env = StreamExecutionEnvironment()
    env.from_source(words()).key_by(lambda word: word).process(InMemory()).print()
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(env)
    topic.write(["a", "a"])
    tailrace_cluster.fail()
    topic.write(["a"])
    assert job.printed == ["1", "2", "1"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_job_continues_from_savepoint_at_other_parallelism(parallelism: int) -> None:
    with MiniCluster() as cluster:
        topic = cluster.topic("words", partitions=2, format=Formats.text())
        counts = cluster.topic("counts")
        first = cluster.run(counting(parallelism=2))
        topic.write(WORDS)
        savepoint = first.stop_with_savepoint()
        assert first.status() is JobStatus.FINISHED
        topic.write(["a"])
        second = cluster.run(counting(), parallelism=parallelism, savepoint=savepoint)
        assert second.is_running
        assert counts.by_key()["a"] == ["a", WORDS.count("a") + 1]
        assert len(counts.messages()) == len(WORDS) + 1


def test_checkpoint_of_running_job_is_complete(tailrace_cluster: MiniCluster) -> None:
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(counting())
    topic.write(WORDS)
    checkpoint = job.trigger_checkpoint()
    assert Path(checkpoint, "_metadata").exists()
    assert job.is_running
    job.cancel()
    assert job.status() is JobStatus.CANCELED
    with pytest.raises(CheckpointFailedError, match="is CANCELED"):
        job.trigger_savepoint()


def test_savepoint_of_other_program_is_refused(tailrace_cluster: MiniCluster) -> None:
    tailrace_cluster.topic("words", format=Formats.text())
    savepoint = tailrace_cluster.run(counting()).stop_with_savepoint()
    env = StreamExecutionEnvironment()
    env.from_collection([1]).print()
    with pytest.raises(ProgramError, match="does not fit the program"):
        tailrace_cluster.run(env, savepoint=savepoint)
    with pytest.raises(ProgramError, match="is not a checkpoint or savepoint"):
        tailrace_cluster.run(counting(), savepoint="/nowhere")


def test_failure_of_function_names_line_operator_and_record(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    env.from_source(words()).map(int).name("To Number").print()
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(env)
    with pytest.raises(
        JobFailedError, match=r"ValueError: invalid literal.*'To Number'.*topic words"
    ) as failed:
        topic.write(["no number"])
    assert isinstance(failed.value.__cause__, ValueError)
    assert job.status() is JobStatus.FAILED


def test_bounded_job_ends(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    env.from_source(words(bounded=True)).map(str.upper).print("out")
    tailrace_cluster.topic("words", format=Formats.text()).write(["a"])
    job = tailrace_cluster.run(env)
    assert (job.status(), job.printed_by("out"), job.printed_by("in")) == (JobStatus.FINISHED, ["A"], [])


def test_job_begins_where_its_source_says(tailrace_cluster: MiniCluster) -> None:
    topic = tailrace_cluster.topic("words", format=Formats.text())
    topic.write(["old"], timestamp=1_000)
    topic.write(["new"], timestamp=2_000)

    def printed(starting: StartingOffsets) -> list[str]:
        env = StreamExecutionEnvironment()
        env.from_source(words(starting=starting)).print()
        job = tailrace_cluster.run(env)
        tailrace_cluster.fail()
        return job.printed

    assert printed(StartingOffsets.earliest()) == ["old", "new"]
    assert printed(StartingOffsets.timestamp(1_500)) == ["new"]
    assert printed(StartingOffsets.latest()) == []


def test_added_partitions_and_topics_are_read_at_their_interval(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    source = KafkaSource(re.compile("words.*"), discovery_interval=timedelta(seconds=10))
    env.from_source(source).print()
    tailrace_cluster.topic("words", format=Formats.text()).write(["a"])
    job = tailrace_cluster.run(env)
    tailrace_cluster.topic("words", partitions=2).write(["b"], partition=1)
    tailrace_cluster.topic("words of others", format=Formats.text()).write(["c"])
    assert job.printed == ["a"]
    tailrace_cluster.advance(seconds=10)
    assert sorted(job.printed) == ["a", "b", "c"]
    tailrace_cluster.fail()
    tailrace_cluster.topic("words of others").write(["d"])
    assert sorted(job.printed) == ["a", "b", "c", "d"]


def test_bad_records_and_tombstones_are_skipped_and_counted(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    source = KafkaSource("numbers", Formats.json(), on_bad_record="skip", output_type=int)
    env.from_source(source).print()
    numbers = tailrace_cluster.topic("numbers")
    job = tailrace_cluster.run(env)
    numbers.write([1, b"no JSON", None, 2])
    assert job.printed == ["1", "2"]
    assert job.accumulators() == {"numRecordsInErrors": 1, "numTombstones": 1}


def test_topic_has_format_with_registry_in_process(tailrace_cluster: MiniCluster) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    avro = Formats.avro(schema, registry="mock://test")
    env = StreamExecutionEnvironment()
    env.from_source(KafkaSource("in", avro)).sink_to(KafkaSink("out", avro))
    given, made = tailrace_cluster.topic("in", format=avro), tailrace_cluster.topic("out", format=avro)
    tailrace_cluster.run(env)
    given.write([{"a": 1}])
    assert made.records() == [{"a": 1}]
    assert made.messages()[0].value[:1] == b"\0"


def test_missing_topic_is_named(tailrace_cluster: MiniCluster) -> None:
    with pytest.raises(JobFailedError, match="'words' does not exist"):
        tailrace_cluster.run(counting())


def test_generator_without_end_is_refused(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    env.generate(lambda n: n).print()
    with pytest.raises(ProgramError, match="give it a count, or a rate_per_second"):
        tailrace_cluster.run(env)


def test_program_file_runs_with_arguments(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nfrom tailrace import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection(sys.argv[1:]).print()\n"
        "result = env.execute('named')\nassert result.status.name == 'FINISHED'\n"
    )
    job = tailrace_cluster.run(program, ["a", "b"], parallelism=2)
    assert (job.name, sorted(job.printed)) == ("named", ["a", "b"])


def test_sink_with_other_cluster_writes_to_topic(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    sink = KafkaSink("elsewhere", Formats.json(), bootstrap_servers="kafka.example:9092")
    env.from_collection([{"a": 1}]).sink_to(sink)
    topic = tailrace_cluster.topic("elsewhere")
    tailrace_cluster.run(env)
    assert topic.records() == [{"a": 1}]


def test_key_has_partition_of_kafkas_clients() -> None:
    # As org.apache.kafka.common.utils.Utils.murmur2 computes them (UtilsTest), without the sign.
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur2(key) for key in known} == {key: value & 0x7FFFFFFF for key, value in known.items()}


async def looked_up(word: str) -> str:
    await asyncio.sleep(0.02)
    return word.upper()


def test_asynchronous_calls_are_awaited(tailrace_cluster: MiniCluster) -> None:
    env = StreamExecutionEnvironment()
    env.from_source(words()).async_map(looked_up, timeout=timedelta(seconds=30)).print()
    topic = tailrace_cluster.topic("words", format=Formats.text())
    job = tailrace_cluster.run(env)
    topic.write(["a", "b"])
    assert job.printed == ["A", "B"]
    tailrace_cluster.fail()
    topic.write(["c"])
    assert job.printed == ["A", "B", "C"]


def test_each_job_finds_its_own_shipped_files(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    lines = tailrace_cluster.topic("lines", format=Formats.text())
    jobs = []
    for rate in ("2.5", "3.5"):
        (folder := tmp_path / rate).mkdir()
        (folder / "rate.txt").write_text(rate)
        env = StreamExecutionEnvironment()
        env.add_python_file(str(folder / "rate.txt"))
        read = env.from_source(KafkaSource("lines", Formats.text()))
        read.map(lambda line: line + shipped_file("rate.txt").read_text(), str).print()
        jobs.append(tailrace_cluster.run(env))
    lines.write(["a"])
    tailrace_cluster.fail()
    lines.write(["b"])
    assert [job.printed for job in jobs] == [["a2.5", "b2.5"], ["a3.5", "b3.5"]]


def test_failed_job_of_a_file_raises_as_that_of_a_function_does(
    tailrace_cluster: MiniCluster, tmp_path: Path
) -> None:
    program = tmp_path / "fails.py"
    program.write_text(
        "from tailrace import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([0]).map(lambda n: 1 / n).print()\n"
        "env.execute()\n"
    )
    with pytest.raises(JobFailedError, match=r"ZeroDivisionError: .* at .*fails\.py:3") as caught:
        tailrace_cluster.run(program)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
