"""A sink of the user's: with any crash and at any parallelism each record is in one transaction, which never changes.

FilePerTransaction fails if an id comes with other records than before.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from connectors import Clock, build_one, operator_config
from custom_connectors import FilePerTransaction
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.records.buffers import MAX_WATERMARK
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.schemas.types import OperatorConfig

RECORDS = [f"record {number}" for number in range(200)]
steps = st.lists(
    st.integers(1, 12) | st.sampled_from(["commit", "commit, then crash", "crash", "wait", "go on"]),
    max_size=25,
)


def config_of(sink: object, roll_records: int = 10) -> OperatorConfig:
    return operator_config("transactional_sink", sink, roll_records=roll_records, roll_ms=1_000)


class Deployment:
    """The subtasks of a sink, which share the records."""

    def __init__(
        self, config: OperatorConfig, parallelism: int, before: list[list[bytes]], number: int
    ) -> None:
        self.config = config
        self.parallelism = parallelism
        self.before = before
        self.job_id = f"{number:032}"
        self.clock = Clock()
        self.changelogs: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.sinks = [self.attempt(subtask) for subtask in range(parallelism)]
        self.pending: list[list[str]] = [[] for _ in range(parallelism)]

    def attempt(self, subtask: int) -> Operator:
        sink, _ = build_one(
            self.config,
            input_type=str,
            clock=self.clock,
            subtask=subtask,
            parallelism=self.parallelism,
            job_id=self.job_id,
        )
        for index, messages in enumerate(self.before):
            if index % self.parallelism == subtask:
                sink.restore_from(Origin(index, len(self.before), 128))
                for message in messages:
                    sink.restore(message)
        sink.restore_from(None)
        for message in self.changelogs[subtask]:
            sink.restore(message)
        sink.open()
        return sink

    def commit(self, subtask: int, *, crash: bool = False) -> None:
        sink = self.sinks[subtask]
        sink.before_commit()
        self.changelogs[subtask] += sink.take_changes()
        self.pending[subtask].clear()
        if crash:
            self.sinks[subtask] = self.attempt(subtask)
        else:
            sink.committed()

    def crash(self, subtask: int) -> list[str]:
        """Returns the records that are to be processed again."""
        again = self.pending[subtask]
        self.pending[subtask] = []
        self.sinks[subtask] = self.attempt(subtask)
        return again

    def stop(self) -> list[list[bytes]]:
        for subtask in range(self.parallelism):
            self.commit(subtask, crash=True)
        return [[message for _, message in sink.full([])] for sink in self.sinks]


@given(st.lists(st.tuples(st.integers(1, 3), steps), min_size=1, max_size=4), st.integers(1, 12))
@settings(deadline=None)
def test_each_record_is_in_one_transaction(
    deployments: list[tuple[int, list[Any]]], roll_records: int
) -> None:
    with TemporaryDirectory() as name:
        sink = FilePerTransaction(Path(name))
        config, left, state = config_of(sink, roll_records), list(RECORDS), []
        for number, (parallelism, taken) in enumerate([*deployments, (1, [])]):
            job = Deployment(config, parallelism, state, number)
            for turn, step in enumerate(taken):
                subtask = turn % parallelism
                match step:
                    case int(count) if left:
                        some, left = left[:count], left[count:]
                        job.sinks[subtask].process(Batch([0] * len(some), list(some)))
                        job.pending[subtask] += some
                    case "commit" | "commit, then crash":
                        job.commit(subtask, crash=step != "commit")
                    case "crash":
                        left = job.crash(subtask) + left
                    case "wait":
                        job.clock.now += 700
                        for each in job.sinks:
                            if each.next_clock <= job.clock.now - 1:
                                each.advance_clock(job.clock.now - 1)
            state = job.stop()
        last = Deployment(config, 1, state, len(deployments) + 1)
        if left:
            last.sinks[0].process(Batch([0] * len(left), left))
        last.sinks[0].finish()
        last.commit(0)
        assert Counter(sink.records()) == Counter(RECORDS)


def opened(sink: object, **how: Any) -> Operator:
    operator, _ = build_one(config_of(sink), input_type=str, **how)
    operator.open()
    return operator


def test_transaction_is_closed_by_count_and_by_age(tmp_path: Path) -> None:
    clock = Clock()
    sink = opened(FilePerTransaction(tmp_path), clock=clock)
    assert sink.next_clock == MAX_WATERMARK
    sink.process(Batch([0] * 25, RECORDS[:25]))
    assert sink.wants_commit
    commit(sink)
    sizes = sorted(len(path.read_text().splitlines()) for path in tmp_path.iterdir())
    assert sizes == [10, 10]
    assert not sink.wants_commit
    clock.now += 1_000
    sink.advance_clock(sink.next_clock)
    assert sink.wants_commit
    commit(sink)
    assert len(list(tmp_path.iterdir())) == 3


def test_ids_name_subtask_number_and_generation(tmp_path: Path) -> None:
    for how in ({}, {"subtask": 1}, {"generation": 2}, {"job_id": "2" * 32}):
        sink = opened(FilePerTransaction(tmp_path), **how)
        sink.process(Batch([0] * 20, RECORDS[:20]))
        commit(sink)
    names = [path.name.split("-", 1) for path in tmp_path.iterdir()]
    assert sorted(behind for _, behind in names) == [
        "0-0",
        "0-0",
        "0-0-2",
        "0-1",
        "0-1",
        "0-1-2",
        "1-0",
        "1-1",
    ]
    assert len({sink for sink, _ in names}) == 2


class Refusing(FilePerTransaction):
    def commit(self, transaction_id: str, records: Any) -> None:
        raise OSError("full")


def test_error_of_commit_names_transaction_and_nothing_is_lost(tmp_path: Path) -> None:
    refusing = opened(Refusing(tmp_path))
    refusing.process(Batch([0] * 10, RECORDS[:10]))
    changes = list(refusing.take_changes())
    with pytest.raises(UserCodeError) as raised:
        refusing.committed()
    assert raised.value.place is not None
    assert raised.value.place.endswith("-0-0, which is committed again when the task restarts")
    sink = FilePerTransaction(tmp_path)
    again, _ = build_one(config_of(sink), input_type=str)
    for message in changes:
        again.restore(message)
    again.open()
    commit(again)
    assert sink.records() == RECORDS[:10]


def commit(sink: Operator) -> None:
    sink.before_commit()
    list(sink.take_changes())
    sink.committed()
