"""`execute_and_collect`: typed records in the program that executes the job, in this process and in a MiniCluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from tailrace import Formats, KafkaSource, ProgramError, StreamExecutionEnvironment
from tailrace.schemas.types import JobStatus
from tailrace.testing import JobFailedError, MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]

PROGRAM = """
from dataclasses import dataclass
from tailrace import StreamExecutionEnvironment

@dataclass(frozen=True)
class Pair:
    word: str
    count: int

env = StreamExecutionEnvironment.get_execution_environment()
pairs = env.from_collection(["a", "b", "a"]).map(lambda word: Pair(word, 1), output_type=Pair)
with pairs.key_by("word").sum("count").execute_and_collect() as records:
    print(list(records) == [Pair("a", 1), Pair("b", 1), Pair("a", 2)])
env = StreamExecutionEnvironment.local()
env.from_collection(["a"]).map(str.upper).print("out")
print(env.execute().status.name)
"""


@dataclass(frozen=True)
class Order:
    user: str
    amount: float


def test_records_have_their_types_without_cluster() -> None:
    orders = [Order("ann", 1.5), Order("bob", 2.0)]
    env = StreamExecutionEnvironment()
    assert list(env.from_collection(orders).execute_and_collect()) == orders
    mixed = [{"a": 1}, (1, None), "text"]
    assert list(env.from_collection(mixed).execute_and_collect()) == mixed


def test_program_runs_as_plain_python(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True\nout:1> A\nFINISHED\n", "")


def test_limit_ends_unbounded_job() -> None:
    env = StreamExecutionEnvironment(parallelism=2)
    numbers = env.generate(lambda n: n, output_type=int)
    assert len(numbers.execute_and_collect(limit=5)) == 5
    with pytest.raises(ProgramError, match="limit is -1"):
        numbers.execute_and_collect(limit=-1)


def test_closed_iterator_cancels_its_job() -> None:
    numbers = StreamExecutionEnvironment().generate(lambda n: n, rate_per_second=1_000)
    with numbers.execute_and_collect() as records:
        assert list(islice(records, 3)) == [0, 1, 2]
        client = records.job_client
        assert client.status() is JobStatus.RUNNING
    assert client.status() is JobStatus.CANCELED
    assert list(records) == []


def test_failure_of_job_is_raised() -> None:
    def checked(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    env = StreamExecutionEnvironment()
    records = env.generate(lambda n: n, count=5, output_type=int).map(checked).execute_and_collect()
    with pytest.raises(JobFailedError, match="ValueError: three"):
        list(records)


def test_records_of_topic_are_collected_as_far_as_written(tailrace_cluster: MiniCluster) -> None:
    topic = tailrace_cluster.topic("words", format=Formats.text())
    topic.write(["a", "b"])
    env = StreamExecutionEnvironment()
    found: list[str] = []

    def program() -> None:
        found.extend(env.from_source(KafkaSource("words")).map(str.upper).execute_and_collect())

    job = tailrace_cluster.run(program)
    assert found == ["A", "B"]
    topic.write(["c"])
    assert [value for value, _ in job.records(None)] == ["A", "B", "C"]
    assert job.is_running


def test_asynchronous_calls_run_where_notebook_has_loop() -> None:
    async def answer(number: int) -> int:
        await asyncio.sleep(0.001)
        return number + 1

    async def cell() -> list[int]:
        numbers = StreamExecutionEnvironment().from_collection([1, 2, 3])
        return list(numbers.async_map(answer, timeout=timedelta(seconds=30)).execute_and_collect())

    assert asyncio.run(cell()) == [2, 3, 4]
