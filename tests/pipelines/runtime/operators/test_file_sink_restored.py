"""A file sink that restores a checkpoint: as a later attempt, after a rollback, at another parallelism."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import fastavro
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from connectors import Clock, build_one, operator_config
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.state_backend.stateful import Origin

RECORDS = [f"record {number} {'x' * (number % 13)}" for number in range(200)]


class Checkpoint:
    """The committed data, and all state."""

    def __init__(self, position: int, all_messages: list[bytes]) -> None:
        self.position = position
        self.whole = all_messages


class Job:
    """A subtask of a sink, in attempt after attempt and generation after generation."""

    def __init__(
        self,
        directory: Path,
        job_id: str = "1" * 32,
        checkpoint: Checkpoint | None = None,
        records: Sequence[str] = RECORDS,
        subtask: int = 0,
        **how: int,
    ) -> None:
        self.config = operator_config("file_sink", path=str(directory), format="text", prefix="part", **how)
        self.directory = directory
        self.job_id = job_id
        self.records = records
        self.subtask = subtask
        self.clock = Clock()
        self.generation = 0
        self.checkpoint = self.base = checkpoint or Checkpoint(0, [])
        self.changelog: list[bytes] = []
        self.committed = self.position = self.base.position
        self.attempt = -1
        self.stopped: list[tuple[Operator, Callable[[], None]]] = []
        """Attempts that have been stopped and have successors, and what each does next if it goes on."""
        self.start()

    def start(self) -> None:
        self.build()
        self.sink.open()

    def build(self) -> None:
        self.attempt += 1
        self.position = self.committed
        self.sink, _ = build_one(
            self.config,
            clock=self.clock,
            subtask=self.subtask,
            attempt=self.attempt,
            job_id=self.job_id,
            generation=self.generation,
        )
        for message in (*self.base.whole, *self.changelog):
            self.sink.restore(message)

    def do(self, step: int | str) -> None:
        match step:
            case int(count):
                some = self.records[self.position : self.position + count]
                if some:
                    self.sink.process(Batch([0] * len(some), list(some)))
                self.position += len(some)
            case "commit":
                self.commit()
                self.sink.committed()
            case "stop before publishing":
                self.commit()
                self.stopped.append((self.sink, self.sink.committed))
                self.start()
            case "stop before opening":
                self.build()
                self.stopped.append((self.sink, self.sink.open))
                self.start()
            case "stopped ones go on":
                for sink, act in self.stopped:
                    with suppress(TaskError):
                        act()  # and its next commit is refused
                    sink.close()
                self.stopped.clear()
            case "checkpoint":
                self.commit()
                self.checkpoint = Checkpoint(self.committed, all_messages(self.sink))
                self.sink.committed()
            case "go on":
                # A later attempt of the same generation: of the checkpoint, and of what was committed since.
                self.commit()
                self.base, self.changelog = Checkpoint(self.committed, all_messages(self.sink)), []
                self.start()
            case "go back":
                self.commit()
                self.stopped.append((self.sink, self.sink.committed))
                self.generation += 1
                self.base, self.changelog = self.checkpoint, []
                self.committed = self.base.position
                self.start()
            case "crash":
                self.start()

    def commit(self) -> None:
        self.sink.before_commit()
        self.changelog += self.sink.take_changes()
        self.committed = self.position

    def end(self) -> None:
        self.do(len(self.records))
        self.sink.finish()
        self.do("commit")
        self.do("stopped ones go on")
        self.sink.close()

    def visible(self) -> list[str]:
        return [line for file in shown(self.directory) for line in file.read_text().splitlines()]


def shown(directory: Path) -> list[Path]:
    return [file for file in directory.iterdir() if not file.name.startswith(".")]


def all_messages(sink: Operator) -> list[bytes]:
    return [message for _, message in sink.full([])]


STEPS = (
    "commit",
    "crash",
    "stop before publishing",
    "stop before opening",
    "stopped ones go on",
    "checkpoint",
    "go on",
    "go back",
)


@settings(deadline=None, max_examples=80)
@given(taken=st.lists(st.integers(1, 30) | st.sampled_from(STEPS), max_size=25), roll=st.integers(5, 30))
def test_each_record_is_in_one_file_after_rollback(taken: list[int | str], roll: int) -> None:
    with TemporaryDirectory() as made:
        job = Job(Path(made), roll_records=roll)
        for step in taken:
            job.do(step)
        job.end()
        assert Counter(job.visible()) == Counter(RECORDS)


def test_files_published_after_checkpoint_are_removed_by_first_attempt_only(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, roll_records=10)
    for step in (15, "checkpoint", 20, "commit"):
        job.do(step)
    assert Counter(job.visible()) == Counter(RECORDS[:30])
    job.do("go back")
    assert Counter(job.visible()) == Counter(RECORDS[:10])
    for step in (20, "commit", "crash", "go on"):
        job.do(step)
        assert Counter(job.visible()) == Counter(RECORDS[:30] if step != 20 else RECORDS[:10])


@pytest.mark.parametrize("stopped", [True, False])
def test_other_job_continues_from_savepoint_beside_files_of_first(tmp_path: Path, stopped: bool) -> None:
    """Closed files that the first job may have published keep their names; the open file gets a name of the new job."""
    first = Job(tmp_path, roll_records=10)
    for step in (10, "commit", 15):
        first.do(step)
    first.commit()
    savepoint = Checkpoint(first.committed, all_messages(first.sink))
    if stopped:
        first.sink.committed()
    first.sink.close()
    second = Job(tmp_path, job_id="2" * 32, checkpoint=savepoint, roll_records=10)
    assert second.sink.wants_commit
    second.do("commit")
    assert Counter(second.visible()) == Counter(RECORDS[:20])
    second.end()
    assert Counter(second.visible()) == Counter(RECORDS)


@settings(deadline=None, max_examples=40)
@given(before=st.integers(1, 4), after=st.integers(1, 4), data=st.data())
def test_pending_files_are_distributed(before: int, after: int, data: st.DataObject) -> None:
    with TemporaryDirectory() as made:
        rest, written = [], Counter[str]()
        for index in range(before):
            records = [f"{index}: {record}" for record in RECORDS]
            job = Job(Path(made), records=records, subtask=index, roll_records=10)
            for step in data.draw(st.lists(st.integers(1, 15) | st.just("commit"), max_size=6)):
                job.do(step)
            job.commit()
            rest.append(all_messages(job.sink))
            written.update(records[: job.committed])
        config = operator_config("file_sink", path=made, format="text", prefix="part")
        for subtask, attempt in product(range(after), range(2)):
            sink, _ = build_one(config, subtask=subtask, parallelism=after, attempt=attempt, job_id="2" * 32)
            for index in range(subtask, before, after):
                sink.restore_from(Origin(index, before, 128))
                for message in rest[index]:
                    sink.restore(message)
            sink.restore_from(None)
            sink.open()
            sink.before_commit()
            list(sink.take_changes())
            sink.committed()
        assert (
            Counter(line for file in shown(Path(made)) for line in file.read_text().splitlines()) == written
        )


class Visit(NamedTuple):
    town: str
    id: int


class Seen(NamedTuple):
    """A later Visit."""

    id: int
    town: str
    note: str = ""


@pytest.mark.parametrize("form", ["csv", "avro", "parquet", "orc", "json"])
def test_file_of_earlier_program_is_written_in_its_form(tmp_path: Path, form: str) -> None:
    """A file that it has closed and one that it was filling, as they are when a savepoint is restored."""

    def sink_of(input_type: type, **how: int) -> Operator:
        config = operator_config("file_sink", path=str(tmp_path), format=form, prefix="part", **how)
        return build_one(config, input_type=input_type)[0]

    first = sink_of(Visit, roll_records=2)
    first.open()
    first.process(Batch([0] * 3, [Visit("a", 1), Visit("b", 2), Visit("c", 3)]))
    first.before_commit()
    state = list(first.take_changes())
    second = sink_of(Seen)
    for message in state:
        second.restore(message)
    second.restore_from(None)
    second.open()
    second.process(Batch([0], [Seen(4, "d", "e")]))
    second.finish()
    second.before_commit()
    list(second.take_changes())
    second.committed()
    first.close()
    second.close()
    rows = [row for path in sorted(tmp_path.glob("part-*")) for row in rows_of(path)]
    old = [{"town": "a", "id": 1}, {"town": "b", "id": 2}, {"town": "c", "id": 3}]
    assert sorted(rows, key=lambda row: row["id"]) == [*old, {"id": 4, "town": "d", "note": "e"}]


def rows_of(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".parquet":
            return list(pq.read_table(path).to_pylist())
        case ".orc":
            return list(orc.read_table(path).to_pylist())
        case ".csv":
            return list(csv.read_csv(path).to_pylist())
        case ".avro":
            with path.open("rb") as file:
                return list(fastavro.reader(file))
        case _:
            return [json.loads(line) for line in path.read_text().splitlines()]
