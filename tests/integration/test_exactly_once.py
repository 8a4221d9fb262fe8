"""Nothing twice, nothing missing, at each point where an attempt can die, stop, or lose the broker's answer.

The attempts are real StreamTasks with real transactions on a real Kafka, each in a process of its own, that stop
themselves between any two steps of their transactions (tests/torture/lone.py). What a reader of committed messages
finds afterwards is held against what the job's definition says.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL, SIGSTOP, Signals

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from runtime_jobs import Job, Reports

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.physical_plan import channels, consumer_group
from tailrace.pipelines.runtime.runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

from ..torture import topics
from ..torture.jobs import Shape, counting
from ..torture.lone import Lone, Running
from ..torture.lone_job import COUNT, SOURCE, LoneJob
from ..torture.proxy import END_TXN, KafkaProxy

pytestmark = pytest.mark.timeout(300)

SOAKING = "FAULTS" in os.environ
AT_A_TIME = 4
JOBS = 5

# A transaction or two, each of some messages.
SHAPE = Shape(records=4, keys=2, parallelism=1, rate=100)


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lone]:
    with Lone(tmp_path_factory.mktemp("lone")) as lone:
        yield lone


def at_each_step(
    kafka: EmbeddedKafka,
    lone: Lone,
    vertex: int,
    how: Signals,
    then: Callable[[int, LoneJob, Running], None],
    stride: int = 1,
) -> None:
    """`then` is given a job for each step n of a vertex's first attempt, which has halted before it; n counts from 1.

    Steps are taken some at a time: attempts wait for Kafka more than they work.
    """

    # A program is written by one thread: its functions are pickled by what is registered for the whole process.
    writing = threading.Lock()

    def halted(step: int) -> int:
        """How many steps there were, of an attempt that has come to its end before this one; else 0."""
        with writing:
            job = LoneJob(lone, kafka.bootstrap_servers, SHAPE)
        if vertex == COUNT:
            job.finish(SOURCE)
        first = job.start(vertex, halt_at=step, how=how)
        outcome = first.wait()
        if outcome.exit_code == 0:
            assert first.told[-1] == "Finished", first.told
            return len(first.told) - 1
        assert how in (outcome.killed_by, outcome.stopped_by), (outcome, first.told)
        then(step, job, first)
        assert not job.wrong(), f"step {step}: {job.wrong()}"
        return 0

    ended = 0
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for begin in itertools.count(1, AT_A_TIME * stride):
            *_, ended = threads.map(halted, range(begin, begin + AT_A_TIME * stride, stride))
            if ended:
                break
    assert ended >= 5, f"{ended} steps are no test"


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
def test_a_task_that_is_killed_between_any_two_steps_of_its_transactions(
    kafka: EmbeddedKafka, lone: Lone, vertex: int
) -> None:
    def then(_step: int, job: LoneJob, _killed: Running) -> None:
        job.finish(vertex)
        if vertex == SOURCE:
            job.finish(COUNT)

    at_each_step(kafka, lone, vertex, SIGKILL, then)


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
def test_a_zombie_that_wakes_up_between_any_two_steps_after_its_successor_has_run(
    kafka: EmbeddedKafka, lone: Lone, vertex: int
) -> None:
    def then(step: int, job: LoneJob, zombie: Running) -> None:
        job.finish(vertex)
        zombie.go_on()
        assert zombie.wait().exit_code == 0
        # One that had nothing left to commit notices nothing.
        had_done_all = zombie.told[step - 1 :] == ["committed", "Finished"]
        assert had_done_all or "was fenced" in zombie.told[-1], f"step {step}: {zombie.told}"
        if vertex == SOURCE:
            job.finish(COUNT)

    at_each_step(kafka, lone, vertex, SIGSTOP, then, 1 if SOAKING else 3)


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
@pytest.mark.parametrize("then", ["its connection ends", "its successor runs"])
def test_a_commit_whose_answer_never_arrives(
    kafka: EmbeddedKafka, lone: Lone, vertex: int, then: str
) -> None:
    """The broker has committed; the task learns nothing, until its connection ends, before or after others go on."""
    job = LoneJob(lone, kafka.bootstrap_servers, SHAPE)
    if vertex == COUNT:
        job.finish(SOURCE)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        proxy.drop_next(END_TXN, close=then == "its connection ends")
        first = job.start(vertex, servers=proxy.address)
        assert proxy.dropped.wait(60)
        if then == "its successor runs":
            job.finish(vertex)
            proxy.reset()
        assert first.wait().exit_code == 0, first.told
        if then == "its successor runs":
            assert first.told[-1].startswith("Failed: "), first.told
        elif first.told[-1] != "Finished":
            job.finish(vertex)
    if vertex == SOURCE:
        job.finish(COUNT)
    assert not job.wrong(), f"{job.wrong()}: {first.told}"


# The moment is met by chance, on a fast machine seldom.
@pytest.mark.soak
def test_a_task_that_is_killed_between_its_commit_and_sparks_own(
    kafka: EmbeddedKafka,
    runtime: TaskRuntime,
    reports: Reports,
    start: Callable[[JobGraph], Job],
    scratch: Path,
) -> None:
    """Spark has handed a batch over and not noted it; the task has committed what came of it, and dies."""
    spark = next(
        each
        for each in psutil.Process().children()
        if "org.apache.spark.deploy.SparkSubmit" in each.cmdline()
    )
    # Only so many batches come before a job has ended: another one, until one is caught between the two.
    for _ in range(JOBS):
        if _dies_in_between(kafka.bootstrap_servers, runtime, reports, start, scratch, spark):
            return
    raise AssertionError(f"never between the two, in {JOBS} jobs")


def _dies_in_between(
    servers: str,
    runtime: TaskRuntime,
    reports: Reports,
    start: Callable[[JobGraph], Job],
    scratch: Path,
    spark: psutil.Process,
) -> bool:
    """Whether a task could be killed there, its successor having given what was missing; a job of ten seconds."""
    shape = Shape(records=200, keys=3, parallelism=1, rate=20)
    counts = topics.make(servers, "counts", 1)
    known = set(scratch.glob("query-*"))
    job = start(counting(shape, counts, {"execution.mode": "micro-batch"}))
    job.reports.wait(job.deploy_all(), ExecutionState.RUNNING)
    (query,) = set(scratch.glob("query-*")) - known
    group = consumer_group(job.cluster, job.id, job.graph.vertices[COUNT].vertex_id, 0)
    (channel,) = channels(job.cluster, job.id, job.graph)
    reader = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    try:
        while True:
            before = position = _committed(reader, channel)
            while position == before:
                if ExecutionState.FINISHED in reports.of(job.attempt(COUNT, 0)):
                    return False
                position = _committed(reader, channel)
            spark.suspend()
            if _in_between(query, position):
                break
            spark.resume()
        os.kill(runtime.process_ids()[job.attempt(COUNT, 0)], SIGKILL)
    finally:
        spark.resume()
        reader.close()
    reports.wait([job.attempt(COUNT, 0)], ExecutionState.FAILED)
    reports.wait(job.deploy(COUNT, [0], 1), ExecutionState.FINISHED)
    wrong = topics.difference(topics.read(servers, counts), shape.counts())
    assert not wrong, wrong
    return True


def _committed(reader: Consumer, topic: str) -> int:
    (found,) = reader.committed([TopicPartition(topic, 0)], 30)
    return int(found.offset)


def _in_between(query: Path, position: int) -> bool:
    """Whether Spark has planned a batch that it has not noted as done, all records of which lie below the position."""
    planned = max((int(each.name) for each in query.glob("offsets/*") if each.name.isdecimal()), default=-1)
    if planned < 0 or (query / "commits" / str(planned)).exists():
        return False
    ends = json.loads((query / "offsets" / str(planned)).read_text().splitlines()[-1])
    # A batch ends behind the marker of the transaction that its last record came in.
    return all(end - 1 <= position for topic in ends.values() for end in topic.values())
