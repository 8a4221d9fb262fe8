"""No result is duplicated or lost, at each point where an attempt can die, stop, or lose the broker's response.

The attempts are real StreamTasks with real transactions on a real Kafka, each in a process of its own, that stop
themselves between any two steps of their transactions (tests/fault_injection/standalone_attempt.py). Then the committed
messages are compared with the definition of the job.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL, SIGSTOP, Signals

import pytest
from polling import TIMEOUT_S, wait_until
from runtime_jobs import Job, Reports

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.graph.physical_plan import changelog_topic, channel_topic
from tailrace.pipelines.runtime.common.kafka_clients import group_consumer
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import read_tail
from tailrace.pipelines.runtime.task_runtime.task_runtime import TaskRuntime
from tailrace.schemas.types import ExecutionState, JobGraph

from ..fault_injection import result_topics
from ..fault_injection.batch_gate import BatchGate
from ..fault_injection.jobs import Shape, relaying
from ..fault_injection.kafka_proxy import END_TXN, KafkaProxy
from ..fault_injection.standalone_attempt import RunningAttempt, StandaloneAttempts
from ..fault_injection.standalone_job import COUNT, SOURCE, StandaloneJob, ended

pytestmark = pytest.mark.timeout(300)

SOAKING = "FAULTS" in os.environ
AT_A_TIME = 4
RELAY, BEHIND = 1, 2

# A transaction or two, each of some messages.
SHAPE = Shape(records=4, keys=2, parallelism=1, rate=100)


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneAttempts]:
    with StandaloneAttempts(tmp_path_factory.mktemp("lone")) as lone:
        yield lone


def at_each_step(
    kafka: EmbeddedKafka,
    lone: StandaloneAttempts,
    vertex: int,
    how: Signals,
    then: Callable[[int, StandaloneJob, RunningAttempt], None],
    stride: int = 1,
) -> None:
    """Calls `then` with a job for each step n of a vertex's first attempt, which has halted before it; n counts from
    1.

    Several steps run at a time: attempts wait for Kafka more than they compute.
    """

    # A program is written by one thread: its functions are pickled by what is registered for the whole process.
    writing = threading.Lock()

    def halted(step: int) -> int:
        """Returns the number of steps of an attempt that has ended before this one; otherwise 0."""
        with writing:
            job = StandaloneJob(lone, kafka.bootstrap_servers, SHAPE)
        if vertex == COUNT:
            job.finish(SOURCE)
        first = job.start(vertex, halt_at=step, how=how)
        outcome = first.wait()
        if outcome.exit_code == 0:
            assert first.messages[-1] == "TaskFinished", first.messages
            return len(first.messages) - 1
        assert how in (outcome.killed_by, outcome.stopped_by), (outcome, first.messages)
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
def test_results_are_exact_if_task_is_killed_between_any_two_transaction_steps(
    kafka: EmbeddedKafka, lone: StandaloneAttempts, vertex: int
) -> None:
    def then(_step: int, job: StandaloneJob, _killed: RunningAttempt) -> None:
        job.finish(vertex)
        if vertex == SOURCE:
            job.finish(COUNT)

    at_each_step(kafka, lone, vertex, SIGKILL, then)


def test_results_are_exact_if_process_of_slot_is_killed_between_any_two_transaction_steps(
    kafka: EmbeddedKafka, lone: StandaloneAttempts
) -> None:
    """The tasks of the slot hand over records to each other in the transaction; those of the other slot continue."""
    shape = dataclasses.replace(SHAPE, records=8, keys=4, parallelism=2)
    writing = threading.Lock()
    stride = 1 if SOAKING else 3

    def killed(step: int) -> int:
        """Returns the number of steps of a process that has ended before this one; otherwise 0."""
        with writing:
            job = StandaloneJob(lone, kafka.bootstrap_servers, shape, isolation="slot")
        other, first = job.start_slot(1), job.start_slot(0, halt_at=step)
        is_done = first.wait().exit_code == 0
        steps = first.messages if is_done else ended(job.start_slot(0, 1))
        assert steps[-1] == "TaskFinished", steps
        ended(other)
        assert not job.wrong(), f"step {step}: {job.wrong()}"
        return len(steps) if is_done else 0

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        for begin in itertools.count(1, AT_A_TIME * stride):
            *_, last = threads.map(killed, range(begin, begin + AT_A_TIME * stride, stride))
            if last:
                break
    assert last >= 10, f"{last} steps are no test"


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
def test_results_are_exact_if_zombie_resumes_between_any_two_transaction_steps_after_its_successor(
    kafka: EmbeddedKafka, lone: StandaloneAttempts, vertex: int
) -> None:
    def then(step: int, job: StandaloneJob, zombie: RunningAttempt) -> None:
        job.finish(vertex)
        zombie.resume()
        assert zombie.wait().exit_code == 0
        # One that had nothing left to commit notices nothing.
        had_done_all = zombie.messages[step - 1 :] == ["committed", "TaskFinished"]
        assert had_done_all or "was fenced" in zombie.messages[-1], f"step {step}: {zombie.messages}"
        if vertex == SOURCE:
            job.finish(COUNT)

    at_each_step(kafka, lone, vertex, SIGSTOP, then, 1 if SOAKING else 3)


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
@pytest.mark.parametrize("then", ["its connection ends", "its successor runs"])
def test_results_are_exact_if_response_to_commit_is_lost(
    kafka: EmbeddedKafka, lone: StandaloneAttempts, vertex: int, then: str
) -> None:
    """The broker has committed; the task learns nothing until its connection closes, before or after others
    continue."""
    job = StandaloneJob(lone, kafka.bootstrap_servers, SHAPE)
    if vertex == COUNT:
        job.finish(SOURCE)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        proxy.drop_next(END_TXN, close=then == "its connection ends")
        first = job.start(vertex, servers=proxy.address)
        assert proxy.dropped.wait(60)
        if then == "its successor runs":
            job.finish(vertex)
            proxy.reset()
        assert first.wait().exit_code == 0, first.messages
        if then == "its successor runs":
            assert first.messages[-1].startswith("Failed: "), first.messages
        elif first.messages[-1] != "TaskFinished":
            job.finish(vertex)
    if vertex == SOURCE:
        job.finish(COUNT)
    assert not job.wrong(), f"{job.wrong()}: {first.messages}"


def test_results_are_exact_if_task_is_killed_between_its_commit_and_that_of_spark(
    kafka: EmbeddedKafka,
    runtime: TaskRuntime,
    reports: Reports,
    start: Callable[[JobGraph], Job],
    scratch: Path,
    tmp_path: Path,
) -> None:
    """Spark has handed over a batch and not committed it; the task has committed its results, and dies."""
    servers = kafka.bootstrap_servers
    gate = BatchGate(str(tmp_path / "gate"))
    shape = Shape(records=40, keys=3, parallelism=1)
    lines = [f"{index}\n".encode() for index in range(shape.records)]
    counts = result_topics.make(servers, "counts", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT_S)
        port = server.getsockname()[1]
        job = start(relaying(shape, port, counts, {"execution.mode": "micro-batch"}, gate.pass_on))
        with gate.closed():
            first = job.deploy(RELAY)
            reports.wait(first, ExecutionState.RUNNING)
            others = job.deploy(BEHIND) + job.deploy(SOURCE)
            text, _ = server.accept()
            text.sendall(b"".join(lines[:20]))
            batch = wait_until(
                lambda: _committed_whole(scratch, job, servers) if gate.is_holding else None, "commit"
            )
            assert not (batch.parents[1] / "commits" / batch.name).exists()
            os.kill(runtime.process_ids()[first[0]], SIGKILL)
            reports.wait(first, ExecutionState.FAILED)
        # Not before: a task that has read all its input has ended, and is killed no more.
        text.sendall(b"".join(lines[20:]))
        text.close()
        reports.wait([*others, *job.deploy(RELAY, [0], 1)], ExecutionState.FINISHED)
    wrong = result_topics.difference(result_topics.read(servers, counts), shape.counts())
    assert not wrong, wrong


def _committed_whole(scratch: Path, job: Job, servers: str) -> Path | None:
    """Returns the last batch that the query of RELAY has planned, if the task's progress covers all of it.

    Other queries, of BEHIND and of earlier tests, run meanwhile.
    """
    vertex = job.graph.vertices[RELAY].vertex_id
    (edge,) = (edge for edge in job.graph.edges if edge.target_vertex_id == vertex)
    channel = channel_topic(job.cluster, job.id, edge.data_set_id)
    files = [path for path in scratch.glob("query-*/offsets/*") if path.name.isdecimal()]
    planned = {path: text for path in files if channel in (text := _read(path))}
    if not planned:
        return None
    # The first ones may have been empty: those no gate holds.
    batch = max(planned, key=lambda path: int(path.name))
    end = json.loads(planned[batch].splitlines()[-1])[channel]["0"]
    # It ends behind the marker of the transaction that its last record came in.
    consumer = group_consumer(KafkaConnection(servers), "anybody")
    try:
        entry = read_tail(consumer, changelog_topic(job.cluster, job.id, vertex), 0).entry
    finally:
        consumer.close()
    progress = None if entry is None else entry.find_input(channel)
    return batch if progress is not None and progress.positions[0] >= end - 1 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
