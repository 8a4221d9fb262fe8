"""A sink into another Kafka cluster writes each record once, wherever an attempt ends between the two transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from connectors import CollectedRecords, operator_config
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.external_kafka_sink import ExternalKafkaSinkOperator
from tailrace.pipelines.runtime.operators.operator import OperatorSetup
from tailrace.pipelines.runtime.operators.pending_messages import Mark, OutgoingMessage, PendingMessages
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.types import RecordType

CONFIG = operator_config(
    "external_kafka_sink",
    None,
    None,
    None,
    None,
    None,
    topic="out",
    format={"kind": "text"},
    connection={"bootstrap_servers": "elsewhere:9092", "properties": {}},
)


@dataclass
class OtherCluster:
    """Kafka in memory: what is committed, and the mark of each owner."""

    values: list[int] = field(default_factory=list)
    surviving: list[int] = field(default_factory=list)
    """Without what a rollback of the job writes again."""
    marks: dict[str, Mark] = field(default_factory=dict)
    newest: dict[str, object] = field(default_factory=dict)
    """Owner -> the attempt that has fenced all others."""
    fails: str = ""
    """How the next transaction fails: before it is committed, or after."""


class Access:
    """ExternalKafka of one attempt."""

    def __init__(self, cluster: OtherCluster, owner: str) -> None:
        self._cluster = cluster
        self._owner = owner

    def open(self, topic: str) -> None:
        self._cluster.newest[self._owner] = self

    def partitions_of(self, topic: str) -> int:
        return 1

    def read_mark(self, owner: str, topic: str) -> Mark | None:
        return self._cluster.marks.get(owner)

    def deliver(self, messages: Iterable[OutgoingMessage], topic: str, mark: Mark) -> None:
        cluster = self._cluster
        fails, cluster.fails = cluster.fails, ""
        if fails == "before" or cluster.newest[self._owner] is not self:
            raise TaskError("the transaction was aborted")
        numbers = [int(message.value or b"") for message in messages]
        cluster.values += numbers
        cluster.surviving += numbers
        cluster.marks[self._owner] = mark
        if fails == "after":
            raise TaskError("the outcome is not known")

    def close(self) -> None: ...


class Job:
    """A subtask, in attempt after attempt and generation after generation; record n is the text of n."""

    def __init__(
        self,
        cluster: OtherCluster,
        job: str = "job",
        base: Sequence[bytes] = (),
        position: int = 0,
        subtask: int = 0,
        origins: Sequence[Sequence[bytes]] = (),
    ) -> None:
        self.cluster = cluster
        self.job = job
        self.subtask = subtask
        self.origins = origins
        self.generation = 0
        self.base, self.changelog = list(base), list[bytes]()
        self.position = self.committed = position
        self.checkpoint = list(base), position
        self.checkpoint_origins = origins
        self.zombies: list[ExternalKafkaSinkOperator] = []
        self.start()

    def start(self) -> None:
        setup = OperatorSetup(
            CONFIG,
            TaskContext(job_id=self.job, subtask_index=self.subtask),
            "c",
            self.job,
            lambda *_, **__: None,
            (RecordType.of(str),),
            generation=self.generation,
        )
        sink = ExternalKafkaSinkOperator(setup, lambda _, owner: Access(self.cluster, owner))
        sink.output = CollectedRecords()
        for index, origin in enumerate(self.origins):
            sink.restore_from(Origin(index, len(self.origins), 128))
            for message in origin:
                sink.restore(message)
        if self.origins:
            sink.restore_from(None)
        for message in (*self.base, *self.changelog):
            sink.restore(message)
        sink.open()
        self.position = self.committed
        self.sink = sink

    def commit(self) -> None:
        self.changelog += self.sink.take_changes()
        self.committed = self.position

    def do(self, step: int | str) -> None:
        match step:
            case int(count):
                numbers = [str(self.position + i) for i in range(count)]
                if numbers:
                    self.sink.process(Batch([1] * count, list(numbers)))
                self.position += count
            case "commit":
                self.commit()
                self.sink.committed()
            case "end before delivery":
                self.commit()
                self.zombies.append(self.sink)
                self.start()
            case "before" | "after":
                self.commit()
                if self.sink._pending.committed():
                    self.cluster.fails = step
                    with pytest.raises(TaskError, match="no record is lost"):
                        self.sink.committed()
                self.start()
            case "zombies go on":
                for sink in self.zombies:
                    if sink._pending.committed():
                        with pytest.raises(TaskError, match="aborted"):
                            sink.committed()
                self.zombies.clear()
            case "checkpoint":
                self.commit()
                self.checkpoint = [message for _, message in self.sink.full(())], self.committed
                self.checkpoint_origins = ()
                self.sink.committed()
            case "go on":
                self.commit()
                self.sink.committed()
                self.base, self.changelog = [message for _, message in self.sink.full(())], []
                self.origins = ()
                self.start()
            case "go back":
                self.zombies.append(self.sink)
                self.generation += 1
                (base, self.committed), self.changelog = self.checkpoint, []
                self.base, self.origins = list(base), self.checkpoint_origins
                self.cluster.surviving = [n for n in self.cluster.surviving if n < self.committed]
                self.start()
            case "crash":
                self.start()

    def end(self) -> None:
        self.do("zombies go on")
        if self.sink.wants_commit:
            self.do("commit")

    def state(self) -> list[bytes]:
        return [*self.base, *self.changelog]


STEPS = st.lists(
    st.integers(0, 4)
    | st.sampled_from(
        ["commit", "end before delivery", "before", "after", "zombies go on", "crash", "go on"]
    ),
    max_size=25,
)
WITH_ROLLBACKS = st.lists(
    st.integers(0, 4)
    | st.sampled_from(["commit", "end before delivery", "before", "after", "crash", "checkpoint", "go back"]),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_each_record_is_written_once_wherever_attempts_end(steps: list[int | str]) -> None:
    cluster = OtherCluster()
    job = Job(cluster)
    for step in steps:
        job.do(step)
    job.do("commit")
    job.end()
    assert cluster.values == list(range(job.committed))


@given(WITH_ROLLBACKS)
@settings(max_examples=300, deadline=None)
def test_rollback_writes_again_only_what_is_after_checkpoint(steps: list[int | str]) -> None:
    cluster = OtherCluster()
    job = Job(cluster)
    for step in steps:
        job.do(step)
    job.do("commit")
    job.end()
    assert sorted(cluster.surviving) == list(range(job.committed))


@given(STEPS, STEPS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_next_job_writes_what_savepoint_has_and_other_has_not(
    before: list[int | str], after: list[int | str], is_delivered: bool
) -> None:
    cluster = OtherCluster()
    old = Job(cluster)
    for step in before:
        old.do(step)
    old.commit()
    savepoint = [message for _, message in old.sink.full(())]
    if is_delivered:
        old.sink.committed()
    new = Job(cluster, "next", savepoint, old.committed)
    for step in after:
        new.do(step)
    new.do("commit")
    new.end()
    assert cluster.values == list(range(new.committed))


@given(STEPS, STEPS, STEPS)
@settings(max_examples=200, deadline=None)
def test_subtasks_that_are_joined_write_what_is_missing(
    first: list[int | str], second: list[int | str], after: list[int | str]
) -> None:
    cluster = OtherCluster()
    old = [Job(cluster, subtask=0), Job(cluster, position=1_000, subtask=1)]
    for job, steps in zip(old, (first, second), strict=True):
        for step in steps:
            job.do(step)
        job.commit()
    states = [[message for _, message in job.sink.full(())] for job in old]
    new = Job(cluster, "next", position=5_000, origins=states)
    for step in after:
        new.do(step)
    new.do("commit")
    new.end()
    expected = [*range(old[0].committed), *range(1_000, old[1].committed), *range(5_000, new.committed)]
    assert sorted(cluster.values) == expected


def test_forgotten_mark_of_other_owner_is_told_and_its_messages_are_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = OtherCluster()
    old = Job(cluster)
    old.do(3)
    old.do("commit")
    cluster.marks.clear()
    new = Job(cluster, "next", old.state(), 3)
    new.do("commit")
    assert cluster.values == [0, 1, 2, 0, 1, 2]
    assert "3 messages of the last commit are written again" in caplog.text


@pytest.mark.parametrize("size", [0, 10, 899_990, 2_000_000])
def test_messages_are_restored_from_parts(size: int) -> None:
    pending = PendingMessages()
    messages = [OutgoingMessage("t", value, None, None, 1, [("h", b"")]) for value in (b"", bytes(size))]
    for message in messages:
        pending.add(message)
    changes = list(pending.take_changes())
    assert all(len(change) < 1_000_000 for change in changes)
    for restored in (changes, list(pending.full())):
        again = PendingMessages()
        for change in restored:
            again.restore(change)
        assert again.committed() == messages


def test_connection_is_named_in_errors() -> None:
    cluster = OtherCluster()
    job = Job(cluster)
    job.do(1)
    job.commit()
    cluster.fails = "before"
    with pytest.raises(TaskError, match="to elsewhere:9092: "):
        job.sink.committed()
