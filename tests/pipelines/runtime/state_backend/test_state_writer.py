"""State in storage: the files of a cut restore the state at the cut, however they were written."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.state_backend.programs import ALL, backend, programs
from polling import TIMEOUT_S

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.delta_writer import DeltaWriter
from tailrace.pipelines.checkpoint.layout import base_of
from tailrace.pipelines.checkpoint.redistribution import StateAssignment
from tailrace.pipelines.graph.key_groups import key_group_of, key_groups_of_subtask
from tailrace.pipelines.runtime.common.failures import ProgressLostError, TaskError
from tailrace.pipelines.runtime.state_backend.accumulators import Accumulators
from tailrace.pipelines.runtime.state_backend.stateful import ORIGIN_KEY, read_origin
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import restored_state
from tailrace.pipelines.runtime.stream_task.state import state_writer
from tailrace.pipelines.runtime.stream_task.state.fork_worker import ForkedWork, ForkedWorker
from tailrace.pipelines.runtime.stream_task.state.state_writer import StateSnapshot, StateWriter
from tailrace.schemas.types import CheckpointOptions, OperatorState, SnapshotType

GROUPS = 8
OPERATOR = "0123456789abcdef" * 2


class Held:
    """A fork whose work is done at once, and reported when it is released."""

    def __init__(self, work: ForkedWork) -> None:
        self.result: Future[bytes] = Future()
        self._done = work(lambda: None)

    def let_go(self) -> None:
        self.result.set_result(self._done)

    def fail(self) -> None:
        self.result.set_exception(TaskError("it hung"))

    def kill(self) -> None: ...


class Forks:
    """All running forks; with `prompt`, none stays."""

    def __init__(self, *, prompt: bool = False) -> None:
        self.held: list[Held] = []
        self.made = 0
        self._prompt = prompt

    def __call__(self, work: ForkedWork) -> Held:
        fork = Held(work)
        self.made += 1
        if self._prompt:
            fork.let_go()
        else:
            self.held.append(fork)
        return fork

    def end(self, *, failing: bool = False) -> None:
        for item in self.held:
            item.fail() if failing else item.let_go()
        self.held.clear()


class SlowStorage(Executor):
    """A storage that performs operations, in order, when the test lets it."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def do() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self._tasks.append(do)
        return future

    def work(self, count: int | None = None) -> None:
        some, self._tasks = self._tasks[:count], [] if count is None else self._tasks[count:]
        for function in some:
            function()


class Task:
    """An attempt of a subtask with one keyed operator and accumulators."""

    def __init__(self, base: str, fork: Any = ForkedWorker, *, incremental: bool = True) -> None:
        self.base = base
        self.operator = backend(GROUPS)
        self.accumulators = Accumulators()
        self.writer = StateWriter(
            {OPERATOR: self.operator, "accumulators": self.accumulators},
            range(GROUPS),
            incremental=incremental,
            name=f"subtask-{uuid.uuid4().hex[:8]}",
            fork=fork,
        )

    def commit(self) -> None:
        for message in self.operator.take_changes():
            self.writer.add(OPERATOR.encode(), message)
        if (counted := self.accumulators.take_changes()) is not None:
            self.writer.add(b"accumulators", counted)

    def options(self, number: int, *, savepoint: bool = False, full: bool = False) -> CheckpointOptions:
        return CheckpointOptions(
            snapshot_type=SnapshotType.SAVEPOINT if savepoint else SnapshotType.CHECKPOINT,
            directory=f"{self.base}/savepoint-{number}" if savepoint else f"{self.base}/job/chk-{number}",
            shared=f"{self.base}/job/shared",
            full=full,
        )

    def cut(self, number: int, **how: bool) -> tuple[StateSnapshot, CheckpointOptions, dict[str, Any]]:
        self.commit()
        options = self.options(number, **how)
        return self.writer.take_snapshot(options), options, self.state()

    def state(self) -> dict[str, Any]:
        return {**self.operator.snapshot(), "~accumulators": self.accumulators.committed()}

    def restore(self, options: CheckpointOptions, operators: Mapping[str, OperatorState]) -> None:
        owners: dict[bytes, Any] = {OPERATOR.encode(): self.operator, b"accumulators": self.accumulators}
        pieces = {key: (StateAssignment(0, 1, GROUPS, state),) for key, state in operators.items()}
        for key, message in restored_state(Storage(base_of(options.directory)), pieces, 0, 1):
            owners[key].restore(message)


@pytest.fixture(params=["file", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield str(tmp_path)
        return
    base = f"memory://{uuid.uuid4().hex}"
    yield base
    fsspec.filesystem("memory").rm(base.removeprefix("memory:/"), recursive=True)


def check(base: str, cut: StateSnapshot, options: CheckpointOptions, state: dict[str, Any]) -> None:
    restored = Task(base)
    restored.restore(options, cut.finish())
    assert restored.state() == state


@pytest.mark.parametrize("incremental", [True, False])
@given(data=st.data())
@settings(max_examples=example_count(20), deadline=None)
def test_every_cut_restores_its_state(
    incremental: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cuts come before and after FULL files are ready, of the chain and separate ones; attempts continue from each."""
    local = data.draw(st.booleans())
    base = str(tmp_path_factory.mktemp("state")) if local else f"memory://{uuid.uuid4().hex}"
    forks = Forks()
    task = Task(base, forks, incremental=incremental)
    if data.draw(st.booleans()):
        task.writer.continue_from({})
    cuts = []
    for number in range(1, data.draw(st.integers(1, 6)) + 1):
        for step in data.draw(programs(ALL)):
            if step is None:
                task.commit()
            else:
                step(task.operator)
        task.accumulators.counter("n").inc(data.draw(st.integers(0, 2)))
        how = data.draw(st.sampled_from([{}, {}, {}, {"full": True}, {"savepoint": True}]))
        cut, options, state = task.cut(number, **how)
        cuts.append((cut, options, state))
        if data.draw(st.booleans()):
            forks.end()
        if data.draw(st.integers(0, 3)) == 0:
            forks.end()
            operators = cut.finish()
            task.writer.close()
            task = Task(base, forks, incremental=incremental)
            task.restore(options, operators)
            if not how.get("savepoint"):
                task.writer.continue_from(operators, number)
    forks.end()
    for cut, options, state in cuts:
        check(base, cut, options, state)
    task.writer.close()


@given(data=st.data())
@settings(max_examples=example_count(20), deadline=None)
def test_slow_storage_bounds_pending_writes_and_no_cut_is_wrong(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A cut is declined, or restores its state; when storage recovers, the next one is not declined."""
    local = data.draw(st.booleans())
    base = str(tmp_path_factory.mktemp("state")) if local else f"memory://{uuid.uuid4().hex}"
    forks, slow = Forks(), SlowStorage()
    task = Task(base, forks)
    task.writer._io.shutdown()
    task.writer._io = slow  # type: ignore[assignment]
    if data.draw(st.booleans()):
        task.writer.continue_from({})
    most, cuts = 2_000, []
    with (
        patch.object(state_writer, "MAX_UNWRITTEN_BYTES", most),
        patch.object(state_writer, "_APPEND_BYTES", 100),
    ):
        for number in range(1, data.draw(st.integers(1, 12)) + 1):
            for key in data.draw(st.lists(st.integers(0, 20), max_size=20)):
                task.operator.timer_table("timers").register(f"key {key} {'x' * 50}", number)
                task.commit()
                assert task.writer.unwritten <= most
            how = data.draw(st.sampled_from([{}, {}, {}, {"full": True}, {"savepoint": True}]))
            cuts.append(task.cut(number, **how))
            slow.work(data.draw(st.integers(0, 4)))
            if data.draw(st.booleans()):
                forks.end()
        slow.work()
        forks.end()
        last = task.cut(number + 1)
        slow.work()
        forks.end()
    for cut, options, state in cuts:
        try:
            cut.finish()
        except TaskError as error:
            assert "storage is too slow" in str(error) or "storage is slow" in str(error)
        else:
            check(base, cut, options, state)
    check(base, *last)


def test_hanging_storage_blocks_neither_task_nor_later_checkpoints_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_writer, "MAX_UNWRITTEN_BYTES", 20_000)
    monkeypatch.setattr(state_writer, "_APPEND_BYTES", 1_000)
    task = Task(str(tmp_path), Forks(prompt=True))
    task.writer.continue_from({})
    task.cut(1)[0].finish()
    hangs, hanging = threading.Event(), threading.Event()

    def hang(self: DeltaWriter, messages: object) -> None:
        hanging.set()
        hangs.wait()

    timers = task.operator.timer_table("timers")
    with monkeypatch.context() as patched:
        patched.setattr(DeltaWriter, "append", hang)
        for number in range(1000):
            timers.register(f"key {number}", number)
            task.commit()
            if task.writer.unwritten > 1_000:
                # What is given up before the thread begins to write it is not written at all.
                assert hanging.wait(TIMEOUT_S)
        refused = task.cut(2)[0]
        with pytest.raises(TaskError, match=r"state could not be written: storage is too slow") as raised:
            refused.finish()
        assert "\n" not in str(raised.value)
    assert task.writer.unwritten == 0
    hangs.set()
    assert task.writer._behind is not None
    task.writer._behind.result(TIMEOUT_S)
    cut, options, state = task.cut(3)
    check(str(tmp_path), cut, options, state)
    assert cut.finish()[OPERATOR].files[0].path.endswith(".full")
    task.writer.close()


def test_number_of_concurrent_full_files_is_limited(tmp_path: Path) -> None:
    forks = Forks()
    task = Task(str(tmp_path), forks, incremental=False)
    task.operator.timer_table("timers").register("a", 1)
    cuts = [task.cut(number) for number in range(1, state_writer.MAX_FULLS + 2)]
    with pytest.raises(TaskError, match="8 files of all state are still being written"):
        cuts.pop()[0].finish()
    forks.end()
    for group in (*cuts, task.cut(10)):
        forks.end()
        check(str(tmp_path), *group)


def test_only_changes_are_written_between_cuts(base: str) -> None:
    forks = Forks(prompt=True)
    task = Task(base, forks)
    task.writer.continue_from({})
    for number in range(1000):
        task.operator.timer_table("timers").register(f"key {number}", number)
    first, options, state = task.cut(1)
    first.finish()
    task.operator.timer_table("timers").register("another", 1)
    second, later, grown = task.cut(2)
    second.finish()
    assert forks.made == 0
    assert 0 < second.bytes_written < first.bytes_written / 10
    check(base, first, options, state)
    check(base, second, later, grown)


def test_full_file_replaces_long_chain(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "LEAST_CHAIN", 1000)
    forks = Forks()
    task = Task(base, forks)
    task.writer.continue_from({})
    timers = task.operator.timer_table("timers")

    def turn(number: int) -> tuple[StateSnapshot, CheckpointOptions, dict[str, Any]]:
        for i in range(100):
            timers.register(f"key {i}", number)
            timers.delete(f"key {i}", number - 1)
        return task.cut(number)

    cuts = [turn(1), turn(2)]
    assert forks.made == 1, "it is under way; the changes are named, and go on"
    names = {file.path for file in cuts[1][0].finish()[OPERATOR].files}
    assert not any(name.endswith(".full") for name in names)
    forks.end(failing=True)
    cuts += [turn(3), turn(4)]
    assert forks.made == 2, "and it is tried again, later"
    forks.end()
    cuts.append(turn(5))
    files = cuts[-1][0].finish()[OPERATOR].files
    assert files[0].path.endswith(".full")
    assert not names & {file.path for file in files}
    for cut in cuts:
        check(base, *cut)


def test_changes_before_first_cut_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a large FULL file more may wait, since the next one would cost as much."""
    monkeypatch.setattr(state_writer, "_MAX_WAITING", 2_000)
    forks = Forks(prompt=True)
    task = Task(str(tmp_path), forks)
    task.writer.continue_from({})

    def change(number: int) -> None:
        for key in range(50):
            task.operator.timer_table("timers").register(f"key {key}", number)
            task.commit()
            assert task.writer._waiting_size <= max(2_000, task.writer._base_size)

    for number in range(20):
        change(number)
    cut, options, state = task.cut(1)
    operators = cut.finish()
    check(str(tmp_path), cut, options, state)
    assert forks.made == 1
    large = sum(file.length for file in operators[OPERATOR].files)
    assert large > 10_000
    successor = Task(str(tmp_path), forks)
    successor.restore(options, operators)
    successor.writer.continue_from(operators, 1)
    task = successor
    change(21)
    check(str(tmp_path), *task.cut(2))
    assert forks.made == 1


def test_without_interval_nothing_is_written_between_checkpoints(tmp_path: Path) -> None:
    task = Task(str(tmp_path), Forks(prompt=True), incremental=False)
    task.operator.timer_table("timers").register("a", 1)
    task.commit()
    assert not list(tmp_path.rglob("*"))
    cut, options, state = task.cut(1)
    check(str(tmp_path), cut, options, state)
    assert {path.parent.name for path in tmp_path.rglob("*") if path.is_file()} == {"chk-1"}


def test_savepoint_is_self_contained(tmp_path: Path) -> None:
    task = Task(str(tmp_path), Forks(prompt=True))
    task.writer.continue_from({})
    task.operator.timer_table("timers").register("a", 1)
    task.cut(1)[0].finish()
    task.operator.timer_table("timers").register("b", 2)
    cut, options, state = task.cut(2, savepoint=True)
    for file in cut.finish()[OPERATOR].files:
        assert Path(options.directory, file.path).is_file()
    (tmp_path / "savepoint-2").rename(tmp_path / "elsewhere")
    moved = task.options(2, savepoint=True)
    restored = Task(str(tmp_path))
    restored.restore(CheckpointOptions(
        snapshot_type=SnapshotType.SAVEPOINT, directory=str(tmp_path / "elsewhere"), shared=moved.shared
    ), cut.finish())  # fmt: skip
    assert restored.state() == state


def test_files_that_predecessor_still_writes_are_not_referenced(tmp_path: Path) -> None:
    first = Task(str(tmp_path))
    first.writer.continue_from({})
    first.operator.timer_table("timers").register("a", 1)
    cut, options, _ = first.cut(1)
    operators = cut.finish()
    second = Task(str(tmp_path))
    second.restore(options, operators)
    second.writer.continue_from(operators, 1)
    first.operator.timer_table("timers").register("zombie", 1)
    first.cut(2)[0].finish()
    second.operator.timer_table("timers").register("b", 2)
    check(str(tmp_path), *second.cut(2))


def test_cut_that_cannot_be_written_fails_and_next_one_is_complete(tmp_path: Path) -> None:
    forks = Forks(prompt=True)
    task = Task(str(tmp_path), forks)
    task.writer.continue_from({})
    task.operator.timer_table("timers").register("a", 1)
    (tmp_path / "job").write_text("in the way")
    cut, _, _ = task.cut(1)
    with pytest.raises(TaskError, match=r"state could not be written: .*job"):
        cut.finish()
    (tmp_path / "job").unlink()
    task.operator.timer_table("timers").register("b", 2)
    check(str(tmp_path), *task.cut(2))
    assert forks.made == 1


@pytest.mark.parametrize("harm", ["missing", "torn"])
def test_missing_or_truncated_state_is_lost_progress(tmp_path: Path, harm: str) -> None:
    task = Task(str(tmp_path), Forks(prompt=True))
    task.operator.timer_table("timers").register("a", 1)
    cut, options, _ = task.cut(1)
    operators = cut.finish()
    (path,) = (path for path in tmp_path.rglob("*.full"))
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ProgressLostError, match=path.name):
        Task(str(tmp_path)).restore(options, operators)


@given(before=st.integers(1, 4), after=st.integers(1, 4))
@settings(max_examples=example_count(10), deadline=None)
def test_files_move_by_key_groups(before: int, after: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = str(tmp_path_factory.mktemp("state"))
    options = CheckpointOptions(snapshot_type=SnapshotType.SAVEPOINT, directory=base, shared=f"{base}/shared")
    pieces, keys = [], [f"key {i}" for i in range(40)]
    for subtask in range(before):
        own = key_groups_of_subtask(subtask, GROUPS, before)
        operator = backend(GROUPS, own)
        for key in keys:
            if key_group_of(key, GROUPS) in own:
                operator.timer_table("timers").register(key, 1)
        operator.take_changes()
        forks = Forks(prompt=True)
        writer = StateWriter({OPERATOR: operator}, own, incremental=False, name=f"s{subtask}", fork=forks)
        pieces.append(
            StateAssignment(subtask, before, GROUPS, writer.take_snapshot(options).finish()[OPERATOR])
        )
    results = []
    for subtask in range(after):
        keyed_state_backend = backend(GROUPS, key_groups_of_subtask(subtask, GROUPS, after))
        for key, message in restored_state(Storage(base), {OPERATOR: pieces}, subtask, after):
            if key == ORIGIN_KEY:
                keyed_state_backend.restore_from(read_origin(message)[1])
            else:
                keyed_state_backend.restore(message)
        results += [key for _, key in keyed_state_backend.timer_table("timers").snapshot()]
    assert sorted(results) == sorted(keys)


def test_files_superseded_by_full_checkpoint_are_never_referenced_again(base: str) -> None:
    """It may be complete, and its predecessor's files deleted, before a later cut is."""
    forks = Forks()
    task = Task(base, forks)
    task.writer.continue_from({})
    timers = task.operator.timer_table("timers")
    timers.register("a", 1)
    before = {file.path for file in task.cut(1)[0].finish()[OPERATOR].files}
    timers.register("b", 2)
    full = task.cut(2, full=True)
    timers.register("c", 3)
    later = task.cut(3)
    forks.end()
    for cut, options, state in (full, later):
        assert not before & {file.path for file in cut.finish()[OPERATOR].files}
        check(base, cut, options, state)


def test_restored_chain_keeps_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that die often, before they write much, do not let it grow for ever."""
    monkeypatch.setattr(state_writer, "LEAST_CHAIN", 2000)
    forks = Forks(prompt=True)
    task = Task(str(tmp_path), forks)
    task.writer.continue_from({})
    names: list[str] = []
    for number in range(1, 60, 2):
        for key in range(10):
            task.operator.timer_table("timers").register(f"key {key}", number)
        # A FULL file that is begun at a cut counts from the next one on.
        task.cut(number)
        cut, options, state = task.cut(number + 1)
        operators = cut.finish()
        task.writer.close()
        task = Task(str(tmp_path), forks)
        task.restore(options, operators)
        task.writer.continue_from(operators, number + 1)
        assert task.state() == state
        names = [file.path for file in operators[OPERATOR].files]
    assert any(name.endswith(".full") for name in names)
    assert len([name for name in names if not name.endswith(".full")]) < 20


def test_files_that_may_be_deleted_are_not_continued(tmp_path: Path) -> None:
    """An earlier attempt's part may have completed a checkpoint after the one that this attempt restored."""
    forks = Forks(prompt=True)
    first = Task(str(tmp_path), forks)
    first.writer.continue_from({})
    first.operator.timer_table("timers").register("a", 1)
    cut, options, _ = first.cut(1)
    operators = cut.finish()
    for following, forked in ((2, 0), (3, 1)):
        second = Task(str(tmp_path), forks)
        second.restore(options, operators)
        second.writer.continue_from(operators, 1)
        check(str(tmp_path), *second.cut(following))
        assert forks.made == forked
