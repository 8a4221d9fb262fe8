"""Nothing twice, nothing missing, at each point where an attempt can die, stop, or lose the broker's answer.

The attempts are real StreamTasks with real transactions on a real Kafka, each in a process of its own, that stop
themselves between any two steps of their transactions (tests/torture/lone.py). What a reader of committed messages
finds afterwards is held against what the job's definition says.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from signal import SIGKILL, SIGSTOP, Signals

import pytest

from tailrace.infra.kafka import EmbeddedKafka

from ..torture.jobs import Shape
from ..torture.lone import Lone
from ..torture.lone_job import COUNT, SOURCE, LoneJob
from ..torture.proxy import END_TXN, KafkaProxy

pytestmark = pytest.mark.timeout(300)

SOAKING = "FAULTS" in os.environ

# A transaction or two, each of some messages.
SHAPE = Shape(records=4, keys=2, parallelism=1, rate=100)


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lone]:
    with Lone(tmp_path_factory.mktemp("lone")) as lone:
        yield lone


def each_step(
    kafka: EmbeddedKafka, lone: Lone, vertex: int, how: Signals, stride: int = 1
) -> Iterator[tuple[int, LoneJob]]:
    """A job for each step n of a vertex's first attempt, in which that has halted before it; n counts from 1."""
    for step in itertools.count(1, stride):
        job = LoneJob(lone, kafka.bootstrap_servers, SHAPE)
        if vertex == COUNT:
            job.finish(SOURCE)
        first = job.start(vertex, halt_at=step, how=how)
        outcome = first.wait()
        if outcome.exit_code == 0:
            assert first.told[-1] == "Finished", first.told
            assert step > 5, f"so few steps are no test: {first.told}"
            return
        assert how in (outcome.killed_by, outcome.stopped_by), (outcome, first.told)
        job.halted = first
        yield step, job


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
def test_a_task_that_is_killed_between_any_two_steps_of_its_transactions(
    kafka: EmbeddedKafka, lone: Lone, vertex: int
) -> None:
    for step, job in each_step(kafka, lone, vertex, SIGKILL):
        job.finish(vertex)
        if vertex == SOURCE:
            job.finish(COUNT)
        assert not job.wrong(), f"step {step}: {job.wrong()}"


@pytest.mark.parametrize("vertex", [SOURCE, COUNT], ids=["source", "count"])
def test_a_zombie_that_wakes_up_between_any_two_steps_after_its_successor_has_run(
    kafka: EmbeddedKafka, lone: Lone, vertex: int
) -> None:
    for step, job in each_step(kafka, lone, vertex, SIGSTOP, 1 if SOAKING else 3):
        zombie = job.halted
        assert zombie is not None
        job.finish(vertex)
        zombie.go_on()
        assert zombie.wait().exit_code == 0
        # One that had nothing left to commit notices nothing.
        had_done_all = zombie.told[step - 1 :] == ["committed", "Finished"]
        assert had_done_all or "was fenced" in zombie.told[-1], f"step {step}: {zombie.told}"
        if vertex == SOURCE:
            job.finish(COUNT)
        assert not job.wrong(), f"step {step}: {job.wrong()}"


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
            proxy.cut()
        assert first.wait().exit_code == 0, first.told
        if then == "its successor runs":
            assert first.told[-1].startswith("Failed: "), first.told
        elif first.told[-1] != "Finished":
            job.finish(vertex)
    if vertex == SOURCE:
        job.finish(COUNT)
    assert not job.wrong(), f"{job.wrong()}: {first.told}"
