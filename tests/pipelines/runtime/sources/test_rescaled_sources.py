"""After a change of parallelism each remaining record is read once: the rest is divided again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from connectors import Clock, open_source, operator_config
from custom_connectors import Lists
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.operators.files import file_reader
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.runtime.stream_task.input.sources.build import build_source
from tailrace.pipelines.runtime.stream_task.input.sources.source import Source, SourceSetup
from tailrace.schemas.types import OperatorConfig

in_a_directory = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
parallelisms = st.lists(st.integers(1, 4), min_size=1, max_size=3)
"""Of deployments, one after the other."""


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes splits small, so that small files have several."""
    monkeypatch.setattr(file_reader, "SPLIT_BYTES", 64)
    monkeypatch.setattr(file_reader, "_SEARCH_BYTES", 20)


class Deployment:
    """A source at some parallelism that restores the state of another one; every attempt starts from the same state."""

    def __init__(self, config: OperatorConfig, parallelism: int, before: list[list[bytes]]) -> None:
        self.config = config
        self.parallelism = parallelism
        self.before = before
        self.changelogs: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.sources = [self.attempt(subtask) for subtask in range(parallelism)]
        self.read: list[Any] = []

    def attempt(self, subtask: int) -> Source:
        source = build_source(self.config)
        if len(self.before) == self.parallelism:
            for message in self.before[subtask]:
                source.restore(message)
        else:
            for index, messages in enumerate(self.before):
                source.restore_from(Origin(index, len(self.before), 128))
                for message in messages:
                    source.restore(message)
            source.restore_from(None)
        for message in self.changelogs[subtask]:
            source.restore(message)
        context = TaskContext(subtask_index=subtask, parallelism=self.parallelism)
        source.open(SourceSetup(self.config, context, Clock(), lambda: None))
        return source

    def poll(self, subtask: int, limit: int, *, crash: bool) -> bool:
        """Runs a transaction; returns whether nothing follows it."""
        polled = self.sources[subtask].poll(limit)
        if polled.batch is not None:
            self.read += polled.batch.values
        self.changelogs[subtask] += self.sources[subtask].take_changes()
        if crash:
            self.sources[subtask].close()
            self.sources[subtask] = self.attempt(subtask)
        return polled.has_ended

    def checkpoint_state(self) -> list[list[bytes]]:
        """Returns the state as a checkpoint has it."""
        for subtask, source in enumerate(self.sources):
            self.changelogs[subtask] += source.take_changes()
        whole = [[message for _, message in source.full([])] for source in self.sources]
        for source in self.sources:
            source.close()
        return whole


def read_all(config: OperatorConfig, deployments: list[int], data: st.DataObject) -> Counter[Any]:
    read = Counter[Any]()
    rest: list[list[bytes]] = []
    for parallelism in [*deployments, data.draw(st.integers(1, 4))]:
        deployment = Deployment(config, parallelism, rest)
        for _ in range(data.draw(st.integers(0, 8))):
            subtask, limit = data.draw(st.integers(0, parallelism - 1)), data.draw(st.integers(1, 7))
            if deployment.poll(subtask, limit, crash=data.draw(st.booleans())):
                break
        rest = deployment.checkpoint_state()
        read.update(deployment.read)
    last = Deployment(config, data.draw(st.integers(1, 4)), rest)
    for subtask in range(last.parallelism):
        while not last.poll(subtask, 100, crash=False):
            pass
    read.update(last.read)
    return read


@given(deployments=parallelisms, count=st.integers(0, 60), data=st.data())
@settings(deadline=None)
def test_generator_emits_each_record_once(deployments: list[int], count: int, data: st.DataObject) -> None:
    config = operator_config("generator", int, count=count)
    assert read_all(config, deployments, data) == Counter(range(count))


@given(deployments=parallelisms, data=st.data(), lengths=st.lists(st.integers(0, 30), max_size=4))
@in_a_directory
def test_each_line_is_read_once(
    tmp_path: Path, deployments: list[int], data: st.DataObject, lengths: list[int]
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    expected = Counter[str]()
    for number, length in enumerate([*lengths, 3]):
        lines = [f"line {number}.{i} {'x' * (i % 9)}" for i in range(length)]
        (tmp_path / f"{number}.txt").write_text("".join(f"{line}\n" for line in lines))
        expected.update(lines)
    config = operator_config("files", paths=[str(tmp_path)], format="text", output_type=str)
    assert read_all(config, deployments, data) == expected


@given(deployments=parallelisms, data=st.data(), lengths=st.lists(st.integers(0, 15), max_size=5))
@settings(deadline=None)
def test_each_record_of_custom_source_is_read_once(
    deployments: list[int], data: st.DataObject, lengths: list[int]
) -> None:
    lists = [[f"{number}.{i}" for i in range(length)] for number, length in enumerate(lengths)]
    expected = Counter(record for records in lists for record in records)
    assert read_all(operator_config("custom_source", Lists(*lists)), deployments, data) == expected


def test_source_that_has_not_started_is_divided_too() -> None:
    config = operator_config("generator", int, count=10)
    assert read_all_from_nothing(config) == list(range(10))


def read_all_from_nothing(config: OperatorConfig) -> list[Any]:
    """Reads all records; only one of three subtasks had state."""
    start = open_source(config, subtask=1, parallelism=3)
    given = list(start.poll(2).batch.values)  # type: ignore[union-attr]
    rest = list(start.take_changes())
    for subtask in (0, 1):
        source = build_source(config)
        source.restore_from(Origin(1, 3, 128))
        for message in rest:
            source.restore(message)
        source.restore_from(None)
        context = TaskContext(subtask_index=subtask, parallelism=2)
        source.open(SourceSetup(config, context, Clock(), lambda: None))
        while True:
            polled = source.poll(100)
            given += [] if polled.batch is None else polled.batch.values
            if polled.has_ended:
                break
    return sorted(given)
