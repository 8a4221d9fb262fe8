"""A file sink with buckets: each record in one file of its bucket, markers of complete buckets, with any crash."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
from connectors import Clock, build_one, committed_records, operator_config
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import FileSink, SparkSink, StreamExecutionEnvironment
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.operators import file_sink
from tailrace.pipelines.runtime.operators.file_sink import FileSinkOperator
from tailrace.pipelines.runtime.operators.files.bucket import BucketAssigner
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType


@pytest.fixture(autouse=True)
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is not what is tested here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


BEGIN_MS = 1_700_000_000_000
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Visit:
    town: str
    id: int
    at: int


def visits(subtask: int, count: int = 40) -> list[Visit]:
    """Returns records of a few hours, whose times do not decrease."""
    return [
        Visit("abc"[i * i % 3], 1_000 * subtask + i, BEGIN_MS + (i * 14 + subtask) * MINUTE_MS)
        for i in range(count)
    ]


def bucket_of(visit: Visit) -> str:
    moment = datetime.fromtimestamp(visit.at / 1000, UTC)
    return f"town={visit.town}/{moment:%Y-%m-%d/h%H}"


class Job:
    """The subtasks of a sink, each behind a rewindable source, in attempt after attempt."""

    def __init__(self, directory: Path, parallelism: int, **parameters: Any) -> None:
        self.directory = directory
        self.parallelism = parallelism
        self.config = operator_config(
            "file_sink", path=str(directory), format="json", prefix="part",
            bucket=["town", "%Y-%m-%d/h%H"], success_files=True, **parameters,
        )  # fmt: skip
        self.records = [visits(subtask) for subtask in range(parallelism)]
        self.wanted: dict[str, set[int]] = {}
        for visit in (visit for some in self.records for visit in some):
            for bucket in (".", bucket_of(visit)):
                self.wanted.setdefault(bucket, set()).add(visit.id)
        self.all = Counter(visit.id for some in self.records for visit in some)
        self.clock = Clock()
        self.generation = 0
        self.attempt = -1
        self.changelogs: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.committed = [0] * parallelism
        self.checkpoint: list[tuple[list[bytes], int]] = [([], 0)] * parallelism
        self.positions = [0] * parallelism
        self.sinks = [self.start(subtask) for subtask in range(parallelism)]

    def start(self, subtask: int) -> FileSinkOperator:
        self.attempt += 1
        self.positions[subtask] = self.committed[subtask]
        sink, _ = build_one(
            self.config, input_type=Visit, clock=self.clock, subtask=subtask, parallelism=self.parallelism,
            attempt=self.attempt, generation=self.generation,
        )  # fmt: skip
        assert isinstance(sink, FileSinkOperator)
        for message in self.changelogs[subtask]:
            sink.restore(message)
        sink.open()
        return sink

    def do(self, subtask: int, step: int | str) -> None:
        subtask %= self.parallelism
        sink, position = self.sinks[subtask], self.positions[subtask]
        match step:
            case int(count):
                some = self.records[subtask][position : position + count]
                if some:
                    sink.process(Batch([visit.at for visit in some], list(some)))
                self.positions[subtask] += len(some)
            case "watermark":
                if position:
                    sink.advance_watermark(self.records[subtask][position - 1].at - 1)
            case "tick":
                self.clock.now += 400
                sink.advance_clock(self.clock.now)
            case "commit":
                self.commit(subtask)
                sink.committed()
            case "crash":
                self.sinks[subtask] = self.start(subtask)
            case "crash before publishing":
                self.commit(subtask)
                self.sinks[subtask] = self.start(subtask)
            case "checkpoint":
                for each in range(self.parallelism):
                    self.commit(each)
                    self.checkpoint[each] = list(whole(self.sinks[each])), self.committed[each]
                    self.sinks[each].committed()
            case "go back":
                self.generation += 1
                for each in range(self.parallelism):
                    messages, self.committed[each] = self.checkpoint[each]
                    self.changelogs[each] = list(messages)
                    self.sinks[each] = self.start(each)
        self.look()

    def commit(self, subtask: int) -> None:
        sink = self.sinks[subtask]
        sink.before_commit()
        self.changelogs[subtask] += sink.take_changes()
        self.committed[subtask] = self.positions[subtask]

    def end(self) -> None:
        for subtask in range(self.parallelism):
            self.do(subtask, len(self.records[subtask]))
            self.sinks[subtask].finish()
            self.do(subtask, "commit")
        for sink in self.sinks:
            sink.close()

    def look(self) -> None:
        """Checks that each record is in its bucket, once, and that a bucket with a marker has all of its records."""
        there = Counter[int]()
        for file in visible(self.directory):
            for record in map(json.loads, file.read_text().splitlines()):
                there[record["id"]] += 1
                assert record["id"] in self.wanted[str(file.parent.relative_to(self.directory))]
        assert there <= self.all
        for marker in self.directory.rglob("_SUCCESS"):
            bucket = str(marker.parent.relative_to(self.directory))
            assert all(there[number] for number in self.wanted[bucket]), bucket


def whole(sink: FileSinkOperator) -> Iterator[bytes]:
    return (message for _, message in sink.full([]))


def visible(directory: Path) -> list[Path]:
    found = (path for path in directory.rglob("*") if path.is_file() and path.name != "_SUCCESS")
    return [path for path in found if not any(part.startswith(".") for part in path.parts)]


STEPS = ("watermark", "tick", "commit", "crash", "crash before publishing", "checkpoint", "go back")


@settings(deadline=None, max_examples=25)
@given(
    parallelism=st.integers(1, 3),
    taken=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40) | st.sampled_from(STEPS)), max_size=20),
    limits=st.fixed_dictionaries(
        {},
        optional={
            "roll_records": st.integers(3, 20),
            "roll_bytes": st.integers(200, 2_000),
            "roll_ms": st.just(1_000),
            "inactivity_ms": st.just(500),
            "most_open": st.integers(1, 4),
        },
    ),
)
def test_buckets_are_complete_when_they_are_marked_with_any_crash(
    parallelism: int, taken: list[tuple[int, int | str]], limits: dict[str, int]
) -> None:
    with TemporaryDirectory() as made:
        job = Job(Path(made), parallelism, **limits)
        for subtask, step in taken:
            job.do(subtask, step)
            assert len(job.sinks[subtask % parallelism]._open) <= limits.get("most_open", 100)
        job.end()
        files = visible(Path(made))
        ids = [json.loads(line)["id"] for file in files for line in file.read_text().splitlines()]
        assert Counter(ids) == job.all
        buckets = {file.parent for file in files}
        assert {marker.parent for marker in Path(made).rglob("_SUCCESS")} == {*buckets, Path(made)}
        assert [path.name for path in Path(made).rglob(".*")] == []


def test_bucket_is_marked_when_last_subtask_has_passed_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    for subtask, steps in ((0, (10, "watermark", "commit")), (1, (3, "watermark", "commit"))):
        for step in steps:
            job.do(subtask, step)
    assert list(tmp_path.rglob("_SUCCESS")) == []
    for step in (7, "watermark", "commit"):
        job.do(1, step)
    hours = {marker.parent.name for marker in tmp_path.rglob("_SUCCESS")}
    assert hours == {"h22", "h23"}
    for step in ("checkpoint", 20, "watermark", "commit"):
        job.do(0, step)
        job.do(1, step)
    assert {marker.parent.name for marker in tmp_path.rglob("_SUCCESS")} > hours
    job.do(0, "go back")
    assert {marker.parent.name for marker in tmp_path.rglob("_SUCCESS")} == hours
    for step in (20, "watermark", "commit"):
        job.do(0, step)  # the other one has not said yet how far it is now
    assert {marker.parent.name for marker in tmp_path.rglob("_SUCCESS")} == hours


def test_subtask_without_records_asks_for_commit_when_it_passes_bucket(tmp_path: Path) -> None:
    job = Job(tmp_path, 2)
    idle = job.sinks[1]
    job.do(1, "commit")
    assert not idle.wants_commit
    for step in (10, "watermark", "commit"):
        job.do(0, step)
    idle.advance_watermark(BEGIN_MS)
    assert idle.wants_commit
    job.do(1, "commit")
    idle.advance_watermark(BEGIN_MS + 1)
    assert not idle.wants_commit
    assert list(tmp_path.rglob("_SUCCESS")) == []
    idle.set_idle(True)
    assert idle.wants_commit
    idle.before_commit()
    assert list(idle.take_changes()) != [], "else there would be nothing to commit"
    idle.committed()
    assert list(tmp_path.rglob("_SUCCESS")) != []
    assert not idle.wants_commit


def test_directory_without_buckets_is_marked_when_all_subtasks_have_finished(tmp_path: Path) -> None:
    config = operator_config("file_sink", path=str(tmp_path), format="json", success_files=True)
    for subtask in range(3):
        sink, _ = build_one(config, input_type=Visit, subtask=subtask, parallelism=3)
        sink.open()
        sink.process(Batch([0], [Visit("a", subtask, 0)]))
        sink.advance_watermark(BEGIN_MS)
        sink.finish()
        sink.before_commit()
        list(sink.take_changes())
        assert list(tmp_path.rglob("_SUCCESS")) == []
        sink.committed()
        sink.close()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".jsonl", ".jsonl", ".jsonl"]
    assert (tmp_path / "_SUCCESS").read_bytes() == b""


def test_least_recently_written_and_largest_files_are_closed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = operator_config("file_sink", path=str(tmp_path), format="json", bucket=["town"], most_open=2)
    sink, _ = build_one(config, input_type=Visit)
    assert isinstance(sink, FileSinkOperator)
    sink.open()
    for town in "abac":
        sink.process(Batch([0], [Visit(town, 1, 0)]))
    assert list(sink._open) == ["town=a", "town=c"]
    sink.process(Batch([0, 0], [Visit("c", 1, 0)] * 2))
    monkeypatch.setattr(file_sink, "MOST_OPEN_BYTES", 100)
    sink.before_commit()
    assert list(sink._open) == ["town=a"]


Format = Literal["parquet", "orc", "csv"]


@pytest.mark.parametrize("form", ["parquet", "orc", "csv"])
def test_directories_by_field_are_read_back(tmp_path: Path, form: Format) -> None:
    @dataclass(frozen=True)
    class Row:
        town: str | None
        open: bool
        count: int | None
        note: str

    rows = [
        Row(town, is_open, count, "x")
        for town in ("St./Gallen", "a=b", "Zürich %41", None, ".hidden", " ")
        for is_open, count in ((True, 1), (False, None))
    ]
    out = str(tmp_path)
    config = operator_config(
        "file_sink", path=out, format=form, prefix="part", bucket=["town", "open", "count"]
    )
    sink, _ = build_one(config, input_type=Row)
    sink.open()
    sink.process(Batch([0] * len(rows), rows))
    sink.finish()
    sink.before_commit()
    list(sink.take_changes())
    sink.committed()
    sink.close()
    source = operator_config("files", paths=[out], format=form, output_type=Row)
    assert Counter(committed_records(source)) == Counter(rows)
    assert {path.name for path in tmp_path.iterdir()} == {
        "town=St.%2FGallen", "town=a%3Db", "town=Zürich %2541", "town=__HIVE_DEFAULT_PARTITION__",
        "town=.hidden", "town= ",
    }  # fmt: skip
    if form == "parquet":
        table = pq.read_table(tmp_path, partitioning="hive")
        assert Counter(table["town"].to_pylist()) == Counter(row.town for row in rows)


@given(
    times=st.lists(st.integers(-(2**41), 2**41), min_size=1, max_size=30),
    elements=st.lists(
        st.sampled_from(["%Y", "%Y-%m", "%Y/%m/%d", "%Y-%m-%d-%H", "%Y-%m-%d/%H.%M", "n", "%j of %Y"]),
        min_size=1,
        unique=True,
    ),
)
def test_records_are_divided_by_field_and_time(times: list[int], elements: list[str]) -> None:
    of = RecordType.of(tuple[int | None])
    elements = ["f0" if element == "n" else element for element in elements]
    records = [(None if time % 5 == 0 else time % 3,) for time in times]
    assigner = BucketAssigner(elements, of)
    parts = list(assigner.divide(Batch(times, records)))
    assert len({part.bucket for part in parts}) == len(parts)

    def expected(record: tuple[int | None], time: int) -> str:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time)
        value = "__HIVE_DEFAULT_PARTITION__" if record[0] is None else record[0]
        return "/".join(f"f0={value}" if each == "f0" else moment.strftime(each) for each in elements)

    found = {part.bucket: list(zip(part.batch.values, part.batch.timestamps, strict=True)) for part in parts}
    wanted: dict[str, list[Any]] = {}
    for record, time in zip(records, times, strict=True):
        wanted.setdefault(expected(record, time), []).append((record, time))
    assert found == wanted
    for part in parts:
        if part.end is not None:
            assert max(part.batch.timestamps) < part.end
            assert assigner.begin_of(part.end) == part.end
            assert assigner.begin_of(part.end - 1) <= min(part.batch.timestamps)


def test_function_returns_bucket(tmp_path: Path) -> None:
    def by_size(visit: Visit, timestamp: int) -> str:
        return f"{'large' if visit.id > 5 else 'small'}/{timestamp}"

    config = operator_config("file_sink", by_size, path=str(tmp_path), format="text", prefix="part")
    sink, _ = build_one(config, input_type=Visit)
    sink.open()
    sink.process(Batch([1, 1, 2], [Visit("a", 1, 0), Visit("a", 9, 0), Visit("a", 2, 0)]))
    sink.finish()
    sink.before_commit()
    list(sink.take_changes())
    sink.committed()
    assert {str(path.parent.relative_to(tmp_path)) for path in visible(tmp_path)} == {
        "small/1", "large/1", "small/2",
    }  # fmt: skip
    for wrong in ("../a", "/a", ".a", "a//b", "_a", None):
        config = operator_config(
            "file_sink", lambda *_, wrong=wrong: wrong, path=str(tmp_path), format="text"
        )
        sink, _ = build_one(config, input_type=Visit)
        with pytest.raises(UserCodeError) as raised:
            sink.process(Batch([0], [Visit("a", 1, 0)]))
        assert "return a relative path" in str(raised.value.__cause__)


def test_wrong_buckets_are_refused() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([Visit("a", 1, 2)])
    words = env.from_collection(["a"])
    for build, reason in (
        (lambda: FileSink("a", bucket="%q"), "the pattern '%q' has no date or time"),
        (lambda: FileSink("a", bucket=""), "the bucket is '', not fields, patterns or a function"),
        (lambda: FileSink("a", bucket=["_x"]), "the bucket '_x' would be hidden"),
        (lambda: FileSink("a", bucket=["x", "x"]), "names a field twice"),
        (lambda: FileSink("a", max_open_files=0), "max_open_files is 0, not an integer of 1 or more"),
        (
            lambda: stream.sink_to(FileSink("a", bucket="who")),
            "'who' is no field of Visit, which has town, id, at",
        ),
        (lambda: words.sink_to(FileSink("a", bucket="who")), "'who' is no field of str, which has no fields"),
        (
            lambda: stream.sink_to(SparkSink("csv", "a", bucket=["town", "id", "at"])),
            "the bucket names all fields",
        ),
    ):
        with pytest.raises(ProgramError, match=reason):
            build()  # type: ignore[no-untyped-call]
