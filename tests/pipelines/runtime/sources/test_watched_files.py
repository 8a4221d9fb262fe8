"""Watched files: each line of each file that appears is read once, with crashes, snapshots and rescaling."""

from __future__ import annotations

import logging
import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from connectors import Clock, operator_config
from hypothesis import given, settings
from hypothesis import strategies as st
from polling import wait_until

from tailrace import FileSource
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.files import file_reader
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.runtime.stream_task.input.sources.build import build_source
from tailrace.pipelines.runtime.stream_task.input.sources.files import FilesSource
from tailrace.pipelines.runtime.stream_task.input.sources.source import UNTIL_WOKEN_S, SourceSetup

INTERVAL_MS = 1_000
MAX_AGE_MS = 10_000


@pytest.fixture(autouse=True)
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes splits small, so that small files have several."""
    monkeypatch.setattr(file_reader, "SPLIT_BYTES", 16)


class Job:
    """The subtasks of a source that watches a directory, in attempt after attempt."""

    def __init__(self, directory: Path, parallelism: int, pattern: str = "") -> None:
        self.directory = directory
        self.clock = Clock()
        self.config = operator_config(
            "files", paths=[f"{directory}{pattern}"], format="text", output_type=str,
            monitor_ms=INTERVAL_MS, max_age_ms=MAX_AGE_MS,
        )  # fmt: skip
        self.written: list[str] = []
        self.committed: list[str] = []
        self.base: list[tuple[Origin, list[bytes]]] = []
        self.begin(parallelism)

    def begin(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self.changelogs: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.bases = [self.base] * parallelism
        self.pending: list[list[str]] = [[] for _ in range(parallelism)]
        self.sources = [self.start(index) for index in range(parallelism)]

    def start(self, index: int) -> FilesSource:
        source = build_source(self.config)
        assert isinstance(source, FilesSource)
        for origin, messages in self.bases[index]:
            source.restore_from(origin)
            for message in messages:
                source.restore(message)
        source.restore_from(None)
        for message in self.changelogs[index]:
            source.restore(message)
        context = TaskContext(subtask_index=index, parallelism=self.parallelism)
        source.open(SourceSetup(self.config, context, self.clock, reads_ahead=False))
        self.pending[index] = []
        return source

    def appear(self, lines: int, age_ms: int) -> None:
        """Moves a complete file into the directory; it was written a while before."""
        # Not in the order of their names.
        name = f"{len(os.listdir(self.directory)) * 37 % 101}.txt"
        text = [f"{name} {line}" for line in range(lines)]
        hidden = self.directory / f".{name}"
        hidden.write_text("".join(f"{line}\n" for line in text))
        modified = (self.clock.now - age_ms) * 1_000_000
        os.utime(hidden, ns=(modified, modified))
        hidden.rename(self.directory / name)
        self.written += text

    def poll(self, index: int, limit: int = 1_000) -> bool:
        """Returns whether there was something."""
        polled = self.sources[index % self.parallelism].poll(limit)
        assert not polled.has_ended
        if polled.batch is None:
            assert 0 < polled.wait_s <= INTERVAL_MS / 1000
            return False
        self.pending[index % self.parallelism] += polled.batch.values
        return True

    def commit(self, index: int) -> None:
        index %= self.parallelism
        self.changelogs[index] += self.sources[index].take_changes()
        self.committed += self.pending[index]
        self.pending[index] = []

    def crash(self, index: int) -> None:
        index %= self.parallelism
        self.sources[index].close()
        self.sources[index] = self.start(index)

    def snapshot(self, index: int) -> None:
        self.commit(index)
        index %= self.parallelism
        self.changelogs[index] = self.whole(index)
        self.bases[index] = []

    def rescale(self, parallelism: int) -> None:
        for index in range(self.parallelism):
            self.commit(index)
        self.base = [
            (Origin(index, self.parallelism, 128), self.whole(index)) for index in range(self.parallelism)
        ]
        for source in self.sources:
            source.close()
        self.begin(parallelism)

    def whole(self, index: int) -> list[bytes]:
        return [message for _, message in self.sources[index].full([])]

    def end(self) -> None:
        for _ in range(2):
            self.clock.now += INTERVAL_MS
            for index in range(self.parallelism):
                while self.poll(index):
                    pass
                self.commit(index)


subtasks = st.integers(0, 3)
actions = st.one_of(
    st.tuples(st.just("appear"), st.integers(0, 8), st.integers(0, MAX_AGE_MS - 1)),
    st.tuples(st.just("wait"), st.sampled_from([INTERVAL_MS, 3 * MAX_AGE_MS])),
    st.tuples(st.just("poll"), subtasks, st.integers(1, 9)),
    st.tuples(st.just("poll"), subtasks),
    st.tuples(st.sampled_from(["commit", "crash", "snapshot"]), subtasks),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
)


@settings(deadline=None, max_examples=150)
@given(before=st.integers(0, 3), parallelism=st.integers(1, 4), taken=st.lists(actions, max_size=40))
def test_each_line_is_read_once_with_crashes_and_rescaling(
    before: int, parallelism: int, taken: list[tuple[Any, ...]]
) -> None:
    with TemporaryDirectory() as made:
        writer = Job(Path(made), 0)
        for number in range(before):
            writer.appear(number * 3, 5 * MAX_AGE_MS * number)
        job = Job(Path(made), parallelism)
        job.written = writer.written
        for name, *arguments in taken:
            if name == "wait":
                job.clock.now += arguments[0]
            else:
                getattr(job, name)(*arguments)
        job.end()
        assert Counter(job.committed) == Counter(job.written)


def test_restarted_subtask_continues_in_list_that_it_found(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.appear(2, 0)
    job.end()
    job.appear(8, 0)
    job.clock.now += INTERVAL_MS
    job.poll(0, 3)
    job.commit(0)
    job.crash(0)
    for _ in range(4):
        job.appear(5, 0)
    job.end()
    assert Counter(job.committed) == Counter(job.written)


def test_old_files_are_forgotten_and_not_read_again(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    for _ in range(50):
        job.appear(5, 0)
        job.clock.now += INTERVAL_MS
        while job.poll(0):
            pass
        job.commit(0)
    job.end()
    most_bytes = sum(map(len, job.whole(0)))
    assert len(list(job.sources[0]._state.known or ())) <= MAX_AGE_MS // INTERVAL_MS + 1
    assert most_bytes < 2_000
    job.snapshot(0)
    job.crash(0)
    job.end()
    assert Counter(job.committed) == Counter(job.written)


def test_file_with_time_in_future_hides_no_later_files(tmp_path: Path) -> None:
    job = Job(tmp_path, 1)
    job.appear(1, -100 * MAX_AGE_MS)
    job.end()
    job.appear(1, 0)
    job.end()
    assert job.committed == job.written


def test_watched_glob_may_match_nothing_yet(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, pattern="/*.txt")
    job.end()
    job.appear(2, 0)
    (tmp_path / "other.log").write_text("no\n")
    job.end()
    assert Counter(job.committed) == Counter(job.written)


def test_file_that_changes_is_not_read_again_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(tmp_path, 3)
    job.appear(2, 0)
    job.end()
    with (tmp_path / "0.txt").open("a") as file:
        file.write("more\n")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            job.end()
    assert Counter(job.committed) == Counter(job.written)
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/0.txt has changed since it was found, and is not read again: write into new files"
    ]


def test_watched_directory_that_vanishes_fails_task(tmp_path: Path) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    job = Job(directory, 1)
    directory.rmdir()
    job.clock.now += INTERVAL_MS
    with pytest.raises(TaskError, match=r"no such file or directory: .*/in; it must be there"):
        job.poll(0)


def test_thread_lists_and_wakes_task(tmp_path: Path) -> None:
    """The task waits, and is woken when a new list is there."""
    (tmp_path / "a.txt").write_text("a\n")
    source = FileSource(str(tmp_path)).monitor_continuously(timedelta(milliseconds=5))
    config = operator_config(
        "files", paths=list(source.paths), format="text", output_type=str,
        monitor_ms=source.monitor_ms, max_age_ms=source.max_age_ms,
    )  # fmt: skip
    opened = build_source(config)
    woken = [0]

    def wake() -> None:
        woken[0] += 1

    opened.open(SourceSetup(config, TaskContext(), Clock(), wake))
    try:
        lines: list[str] = []

        def take() -> None:
            while (polled := opened.poll(10)).batch is not None:
                lines.extend(polled.batch.values)
            assert polled.wait_s == UNTIL_WOKEN_S

        take()
        assert lines == ["a"]
        (tmp_path / ".b.txt").write_text("b\n")
        (tmp_path / ".b.txt").rename(tmp_path / "b.txt")

        def has_both() -> bool:
            take()
            return lines == ["a", "b"]

        wait_until(has_both)
        assert woken[0] > 0
    finally:
        opened.close()
