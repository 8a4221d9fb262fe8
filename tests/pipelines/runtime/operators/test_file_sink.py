"""The file sink: each record in exactly one file, each file complete when it appears, with any crash."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Literal, NamedTuple

import fastavro
import pyarrow.parquet as pq
import pytest
from connectors import Clock, build_one, operator_config, web_server_log
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from tailrace.pipelines.runtime.common.failures import TaskError, UserCodeError
from tailrace.pipelines.runtime.operators.file_sink import FileSinkOperator
from tailrace.pipelines.runtime.operators.files.output_directory import (
    AttemptSuperseded,
    LocalOutputDirectory,
    OutputDirectory,
    RemoteOutputDirectory,
    create_output_directory,
)
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.schemas.types import OperatorConfig

Format = Literal["text", "json", "avro", "parquet"]
Step = int | Literal["tick", "commit", "crash", "crash before publishing"]
"""So many records; time passes; a commit; the end of an attempt at different moments."""


@dataclass(frozen=True)
class Order:
    id: int
    item: str
    price: float | None


class Pair(NamedTuple):
    id: int
    item: str


orders = [Order(i, f"item {i % 7}\u20ac", None if i % 5 == 0 else i / 4) for i in range(300)]


def read(file: Path) -> list[Any]:
    """Reads the records of a file as plain data."""
    match file.suffix:
        case ".txt":
            return file.read_text().splitlines()
        case ".jsonl":
            return list(map(json.loads, file.read_text().splitlines()))
        case ".avro":
            with file.open("rb") as source:
                return list(fastavro.reader(source))
        case ".parquet":
            return list(pq.read_table(file).to_pylist())
        case other:
            raise AssertionError(other)


def visible(directory: Path) -> list[Path]:
    """Returns the published records, in the order of the files' numbers."""
    paths = [path for path in directory.iterdir() if not path.name.startswith(".")]
    return sorted(paths, key=lambda file: [int(part) for part in file.stem.split("-")[2:]])


class Job:
    """A subtask of a file sink after a rewindable source, in attempt after attempt."""

    def __init__(
        self, directory: Path, config: OperatorConfig, records: list[Any], input_type: object
    ) -> None:
        self.directory = directory
        self.config = config
        self.records = records
        self.input_type = input_type
        self.clock = Clock()
        self.changelog: list[bytes] = []
        self.committed = self.position = 0
        self.attempt = -1
        self.seen: dict[str, bytes] = {}
        self.start()

    def start(self) -> None:
        self.attempt += 1
        self.position = self.committed
        self.sink, _ = build_one(
            self.config, input_type=self.input_type, clock=self.clock, attempt=self.attempt
        )
        for message in self.changelog:
            self.sink.restore(message)
        self.sink.open()

    def do(self, step: Step) -> None:
        match step:
            case "tick":
                self.clock.now += 400
                self.sink.advance_clock(self.clock.now)
            case "commit":
                self.commit()
                self.sink.committed()
            case "crash before publishing":
                self.commit()
                self.start()
            case "crash":
                self.start()
            case count:
                some = self.records[self.position : self.position + count]
                if some:
                    self.sink.process(Batch([0] * len(some), some))
                self.position += len(some)
        self.look()

    def commit(self) -> None:
        self.sink.before_commit()
        self.changelog += self.sink.take_changes()
        self.committed = self.position

    def end(self) -> None:
        self.do(len(self.records))
        self.sink.finish()
        self.do("commit")
        self.sink.close()

    def look(self) -> None:
        """Checks that published files do not change."""
        now = {file.name: file.read_bytes() for file in visible(self.directory)}
        assert self.seen.items() <= now.items()
        self.seen = now


def config(form: Format, directory: Path, **parameters: Any) -> OperatorConfig:
    return operator_config("file_sink", path=str(directory), format=form, prefix="part", **parameters)


steps = st.lists(
    st.integers(1, 30) | st.sampled_from(["tick", "commit", "crash", "crash before publishing"]), max_size=25
)


@pytest.mark.parametrize("form", ["text", "json", "avro", "parquet"])
@settings(deadline=None, max_examples=25)
@given(taken=steps, roll_records=st.none() | st.integers(5, 30), roll_ms=st.none() | st.just(1_000))
def test_each_record_is_in_one_file_with_any_crash(
    form: Format, taken: list[Step], roll_records: int | None, roll_ms: int | None
) -> None:
    with TemporaryDirectory() as made:
        directory = Path(made) / "out" / "deep"
        job = Job(
            directory,
            config(form, directory, roll_records=roll_records, roll_ms=roll_ms),
            orders[:120],
            Order,
        )
        for step in taken:
            job.do(step)
        job.end()
        results = [read(file) for file in visible(directory)]
        expected = [str(order) if form == "text" else asdict(order) for order in orders[:120]]
        assert [record for records in results for record in records] == expected
        if roll_records is not None:
            assert all(0 < len(records) <= roll_records for records in results)
            if roll_ms is None:
                assert all(len(records) == roll_records for records in results[:-1])
        assert [name for name in os.listdir(directory) if name.startswith(".")] == []


def run(
    directory: Path, form: Format, records: list[Any], input_type: object = None, **parameters: Any
) -> list[Any]:
    job = Job(directory, config(form, directory, **parameters), records, input_type)
    job.end()
    return [record for file in visible(directory) for record in read(file)]


def test_records_are_written_by_their_type(tmp_path: Path) -> None:
    pairs = [Pair(1, "a"), Pair(2, "b")]
    objects = [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]
    formats: tuple[Format, ...] = ("json", "avro", "parquet")
    for form in formats:
        assert run(tmp_path / form / "typed", form, pairs, Pair) == objects
    assert run(tmp_path / "dicts", "parquet", objects) == objects
    assert run(tmp_path / "dict lines", "json", objects) == objects
    assert run(tmp_path / "words", "avro", ["a", "b"], str) == ["a", "b"]
    assert run(tmp_path / "words as rows", "parquet", ["a", "b"], str) == [{"value": "a"}, {"value": "b"}]
    assert run(tmp_path / "tuples", "parquet", [(1, "a")]) == [{"f0": 1, "f1": "a"}]
    assert run(tmp_path / "text", "text", [1, "b"]) == ["1", "b"]


def test_records_of_wrong_type_are_rejected_by_operator(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="declared"):
        run(tmp_path / "avro", "avro", [1])
    with pytest.raises(UserCodeError, match="file_sink"):
        run(tmp_path / "parquet", "parquet", [1])
    with pytest.raises(UserCodeError, match="file_sink"):
        run(tmp_path / "json", "json", [object()])


def test_file_rolls_over_by_age_without_input(tmp_path: Path) -> None:
    job = Job(tmp_path, config("text", tmp_path, roll_ms=1_000), ["a", "b"], str)
    job.do(1)
    job.do("commit")
    job.clock.now += 999
    job.sink.advance_clock(job.clock.now)
    assert not job.sink.wants_commit
    job.clock.now += 1
    job.sink.advance_clock(job.clock.now)
    assert job.sink.wants_commit
    assert visible(tmp_path) == []
    job.do("commit")
    assert [read(file) for file in visible(tmp_path)] == [["a"]]
    assert not job.sink.wants_commit


def test_age_of_file_survives_its_attempt(tmp_path: Path) -> None:
    job = Job(tmp_path, config("text", tmp_path, roll_ms=1_000), ["a"], str)
    job.do(1)
    job.do("commit")
    job.clock.now += 1_000
    job.do("crash")
    job.do("commit")
    assert [read(file) for file in visible(tmp_path)] == [["a"]]


def test_many_pending_records_are_written_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.pipelines.runtime.operators.file_sink.ROLL_BYTES", 5_000)
    lines = list(web_server_log(400))
    job = Job(tmp_path, config("text", tmp_path), lines, str)
    for _ in range(8):
        job.do(50)
        job.do("commit")
    assert len(visible(tmp_path)) >= 3
    job.end()
    assert [line for file in visible(tmp_path) for line in read(file)] == lines


def test_chunk_larger_than_message_is_split(tmp_path: Path) -> None:
    records = ["x" * 2_500_000, "y"]
    job = Job(tmp_path, config("text", tmp_path), records, str)
    job.do(2)
    job.do("commit")
    assert all(len(message) < 1_000_000 for message in job.changelog)
    job.do("crash")
    job.end()
    assert [line for file in visible(tmp_path) for line in read(file)] == records


def test_subtasks_and_jobs_write_side_by_side(tmp_path: Path) -> None:
    for job_id in ("a" * 32, "b" * 32):
        for subtask in (1, 10):
            sink, _ = build_one(
                config("text", tmp_path), input_type=str, subtask=subtask, parallelism=11, job_id=job_id
            )
            sink.open()
            sink.process(Batch([0], [f"{job_id} {subtask}"]))
            sink.finish()
            sink.before_commit()
            list(sink.take_changes())
            sink.committed()
    assert len({line for file in visible(tmp_path) for line in read(file)}) == 4


def test_files_left_by_crash_are_removed_by_same_subtask_only(tmp_path: Path) -> None:
    sink, _ = build_one(config("text", tmp_path), input_type=str, subtask=1, parallelism=20, attempt=1)
    assert isinstance(sink, FileSinkOperator)
    beginning = sink._beginning
    own = [f".{beginning}0.0.ab", f".{beginning}0.1.cd", f".{beginning}0.0.ef.ended"]
    others = [f".{beginning[:-1]}0-0.0.ab", f".{beginning}0.2.ab", f".{beginning}1.0.ab", ".part-x"]
    for item in (*own, *others):
        (tmp_path / item).mkdir()
        (tmp_path / item / f"{beginning}0.txt").write_text("half")
    sink.open()
    assert {path.name for path in tmp_path.iterdir()} - set(others) == {sink._directory._own.name}  # type: ignore[attr-defined]
    sink.close()
    assert {path.name for path in tmp_path.iterdir()} == set(others)


@contextmanager
def files_no_larger_than(limit: int) -> Iterator[None]:
    """Limits the size of files of this process, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_fails_task_and_loses_nothing(tmp_path: Path) -> None:
    lines = list(web_server_log(200))
    job = Job(tmp_path, config("text", tmp_path), lines, str)
    job.do(200)
    job.sink.finish()
    with files_no_larger_than(1_000), pytest.raises(TaskError) as raised:
        job.do("commit")
    assert "\n" not in str(raised.value)
    assert f"{tmp_path} could not be written to: File too large" in str(raised.value)
    assert "no record is lost" in str(raised.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    job.do("crash")
    job.do("commit")
    assert [line for file in visible(tmp_path) for line in read(file)] == lines


def test_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match=r"/file/out could not be used: Not a directory"):
        Job(tmp_path, config("text", tmp_path / "file" / "out"), [], str)


Make = Callable[[str], OutputDirectory]
DIRECTORIES: list[Make] = [
    lambda path: LocalOutputDirectory(Path(path)),
    lambda path: RemoteOutputDirectory(fs.LocalFileSystem(), f"{path}/"),
    lambda path: create_output_directory(f"memory:/{path}"),
]


def files(directory: OutputDirectory) -> dict[str, str]:
    """Returns the published files."""
    if isinstance(directory, LocalOutputDirectory):
        directory = RemoteOutputDirectory(fs.LocalFileSystem(), str(directory._path))
    assert isinstance(directory, RemoteOutputDirectory)
    path = directory._path
    return {
        name: directory._system.open_input_file(f"{path}/{name}").read().decode()
        for name in directory.names("")
        if not name.startswith(".")
    }


def hidden(directory: OutputDirectory) -> list[str]:
    """Returns the names of hidden files and directories."""
    if isinstance(directory, LocalOutputDirectory):
        directory = RemoteOutputDirectory(fs.LocalFileSystem(), str(directory._path))
    assert isinstance(directory, RemoteOutputDirectory)
    found = directory._system.get_file_info(fs.FileSelector(directory._path))
    return [info.base_name for info in found if info.base_name.startswith(".")]


@pytest.mark.parametrize("make", DIRECTORIES, ids=["local", "remote", "memory"])
def test_file_in_bucket_is_published_replaced_and_removed(make: Make, tmp_path: Path) -> None:
    directory = make(f"{tmp_path}/out")
    directory.begin("part-1-", 0, 0)
    for content in (b"a", b"b"):
        directory.publish("x/y/part-1-0.txt", lambda out, content=content: out.write(content))  # type: ignore[misc]
        directory.publish("x/z", lambda out, content=content: out.write(content), replaces=True)  # type: ignore[misc]
    assert directory.read("x/y/part-1-0.txt") == b"a"
    assert directory.read("x/z") == b"b"
    assert directory.read("x/none") is None
    assert directory.names("part-1-") == ["x/y/part-1-0.txt"]
    directory.remove("x/y/part-1-0.txt")
    assert directory.names("part-1-") == []
    directory.close()


@pytest.mark.parametrize("make", DIRECTORIES, ids=["local", "remote", "memory"])
def test_file_is_published_once_on_any_file_system(make: Make, tmp_path: Path) -> None:
    for attempt, content in enumerate((b"a\n", b"b\n")):
        directory = make(f"{tmp_path}/out")
        directory.begin("part-1-", 0, attempt)
        directory.publish("part-1-0.txt", lambda out, content=content: out.write(content))  # type: ignore[misc]
        assert files(directory) == {"part-1-0.txt": "a\n"}
        directory.close()
        assert hidden(directory) == []


@pytest.mark.parametrize("make", DIRECTORIES, ids=["local", "remote", "memory"])
@pytest.mark.parametrize("successor", [(0, 1), (0, 0), (1, 0), (1, 5)])
@pytest.mark.parametrize("while_writing", [False, True])
def test_attempt_with_successor_publishes_nothing_more(
    make: Make, successor: tuple[int, int], while_writing: bool, tmp_path: Path
) -> None:
    """At any point: what it publishes later would duplicate the output of its successor."""
    old, new = make(f"{tmp_path}/out"), make(f"{tmp_path}/out")
    old.begin("part-1-", 0, 0)

    def write(out: BinaryIO) -> None:
        out.write(b"old")
        if while_writing:
            new.begin("part-1-", *successor)

    if not while_writing:
        new.begin("part-1-", *successor)
    with pytest.raises(AttemptSuperseded):
        old.publish("part-1-0.txt", write)
    old.close()
    assert files(new) == {}
    new.publish("part-1-0-1.txt", lambda out: out.write(b"new"))
    assert files(new) == {"part-1-0-1.txt": "new"}
    new.close()
    assert hidden(new) == []


@pytest.mark.parametrize("make", DIRECTORIES, ids=["local", "remote", "memory"])
@pytest.mark.parametrize("late", [(0, 0), (0, 4), (1, 2)])
def test_attempt_that_starts_after_its_successor_does_no_harm(
    make: Make, late: tuple[int, int], tmp_path: Path
) -> None:
    new, old = make(f"{tmp_path}/out"), make(f"{tmp_path}/out")
    new.begin("part-1-", 1, 3)
    old.begin("part-1-", *late)
    new.publish("part-1-0-1.txt", lambda out: out.write(b"new"))
    assert files(new) == {"part-1-0-1.txt": "new"}


def test_sink_with_successor_raises(tmp_path: Path) -> None:
    job = Job(tmp_path, config("text", tmp_path, roll_records=1), ["a"], str)
    job.do(1)
    job.commit()
    old = job.sink
    job.start()
    with pytest.raises(TaskError, match="'file_sink' was fenced: a newer attempt") as raised:
        old.committed()
    assert "\n" not in str(raised.value)


def test_nothing_is_published_before_commit_and_commit_is_requested(tmp_path: Path) -> None:
    """It may have a successor before it starts: only its producer detects that."""
    job = Job(tmp_path, config("text", tmp_path, roll_records=1), ["a"], str)
    job.do(1)
    job.do("crash before publishing")
    assert visible(tmp_path) == []
    assert job.sink.wants_commit
    job.sink.before_commit()
    assert list(job.sink.take_changes()) != [], "else there would be nothing to commit"
    job.sink.committed()
    assert [read(file) for file in visible(tmp_path)] == [["a"]]
