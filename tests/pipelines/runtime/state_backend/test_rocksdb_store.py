"""State in RocksDB is the same state: the same changes, snapshots and restores as in memory, with any of its objects
in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.state_backend.programs import ALL, KEYS, TABLES, Step, backend, deeds_of, programs

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.state_files import read_messages
from tailrace.pipelines.graph.key_groups import key_group_of, key_groups_of_subtask
from tailrace.pipelines.runtime.common.failures import StateDiskError, TaskError
from tailrace.pipelines.runtime.common.local_state import LEAST_MEMORY
from tailrace.pipelines.runtime.operators.user_functions import user_code
from tailrace.pipelines.runtime.state_backend import rocksdb_timers
from tailrace.pipelines.runtime.state_backend.entry_codec import EntryCodec
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.rocksdb_database import FIGURES, RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import RocksStore, open_store
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.runtime.state_backend.timer_queue import HeapTimerQueue
from tailrace.pipelines.runtime.stream_task.state.full_snapshot import write_full_snapshot
from tailrace.pipelines.runtime.stream_task.state.store_fork import fork_with_database
from tailrace.pipelines.types import PICKLED, Types
from tailrace.schemas.types import OperatorConfig, StateFile
from tailrace.services.metrics import table as metrics_table

GROUPS = 8
EXAMPLES = settings(max_examples=example_count(40))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocksDatabase]:
    made = RocksDatabase(tmp_path_factory.mktemp("state") / "database", 0)
    yield made
    made.close()
    assert not made.directory.exists()


def store(database: RocksDatabase, kept_bytes: int) -> RocksStore:
    """Returns a store that keeps about so many bytes of objects, and so many timers of a key group, in memory."""
    database._generation_bytes = kept_bytes
    rocksdb_timers._MOST_AHEAD = 1 + kept_bytes // 1_000
    return open_store(database, "operator", GROUPS)


def run(lived: KeyedStateBackend, steps: list[Step | None]) -> list[bytes]:
    changelog = list[bytes]()
    for step in steps:
        if step is None:
            changelog += lived.take_changes()
        else:
            step(lived)
    return changelog + lived.take_changes()


def restored(into: KeyedStateBackend, messages: list[bytes]) -> KeyedStateBackend:
    for message in messages:
        into.restore(message)
    return into


@EXAMPLES
@given(steps=programs(ALL), kept=st.sampled_from([0, 1_000, 100_000]), cut=st.integers(0, GROUPS))
def test_state_on_disk_is_that_in_memory(
    database: RocksDatabase, steps: list[Step | None], kept: int, cut: int
) -> None:
    in_memory, on_disk = backend(GROUPS), backend(GROUPS, store=store(database, kept))
    changelog = run(on_disk, steps)
    assert changelog == run(in_memory, steps)
    assert on_disk.snapshot() == in_memory.snapshot()
    sections = [range(*pair) for pair in pairwise(sorted({0, cut, GROUPS}))]
    full = list(on_disk.full(sections))
    for section, message in full:
        if section is not None:
            alone = restored(backend(GROUPS), [message]).snapshot()
            held = [*alone["value"], *alone["list"], *alone["map"]]
            assert all(key_group_of(key, GROUPS) in section for key in held)
    for messages in ([message for _, message in full], changelog):
        again = restored(backend(GROUPS, store=store(database, kept)), messages)
        assert again.snapshot() == in_memory.snapshot()
        assert again.take_changes() == []


@EXAMPLES
@given(
    steps=deeds_of(ALL), kept=st.sampled_from([0, 1_000]), before=st.integers(1, 3), after=st.integers(1, 3),
    asked=st.booleans(),
)  # fmt: skip
def test_state_on_disk_moves_by_key_groups(
    database: RocksDatabase,
    steps: list[tuple[str, Step] | None],
    kept: int,
    before: int,
    after: int,
    asked: bool,
) -> None:
    """Into tables that exist, or that are requested behind the restore."""
    files = list[list[bytes]]()
    for subtask in range(before):
        own = key_groups_of_subtask(subtask, GROUPS, before)
        some = [step and step[1] for step in steps if step is None or key_group_of(step[0], GROUPS) in own]
        lived = backend(GROUPS, own, store=store(database, kept))
        changelog = run(lived, some)
        files.append([message for _, message in lived.full([own])] if subtask % 2 else changelog)
    for subtask in range(after):
        own = key_groups_of_subtask(subtask, GROUPS, after)
        tables = list(TABLES) if asked else []
        both = [backend(GROUPS, own, tables), backend(GROUPS, own, tables, store=store(database, kept))]
        for each in both:
            for origin, messages in enumerate(files):
                if set(key_groups_of_subtask(origin, GROUPS, before)) & set(own):
                    each.restore_from(Origin(origin, before, GROUPS))
                    restored(each, messages)
            each.restore_from(None)
        both[1].take_changes()
        late = [message for _, message in both[1].full([own])]
        for each in both:
            for name in TABLES:
                TABLES[name](each)
        assert both[1].snapshot() == both[0].snapshot()
        assert restored(backend(GROUPS, own), late).snapshot() == both[0].snapshot()


def test_snapshot_is_state_at_fork_while_task_continues(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path / "database", 0)
    lived = KeyedStateBackend(Types.STRING(), GROUPS, store=store(database, 10_000))
    table = lived.value_table("v", Types.LONG())
    for number in range(3_000):
        table.put(f"key-{number}", number)
    lived.take_changes()
    storage = Storage(str(tmp_path))

    def work(progress: Any) -> bytes:
        files = write_full_snapshot(storage, str(tmp_path / "full"), {"o": lived}, range(GROUPS), progress)
        return msgspec.msgpack.encode(files)

    forked = fork_with_database(database, work)
    for number in range(3_000):
        table.put(f"key-{number}", -1)
        table.put(f"other-{number}", -1)
    lived.take_changes()
    files = msgspec.msgpack.decode(forked.result.result(60), type=dict[str, tuple[StateFile, ...]])
    again = KeyedStateBackend(Types.STRING(), GROUPS)
    for file in files["o"]:
        restored(again, list(read_messages(storage, file)))
    assert again.value_table("v", Types.LONG()).snapshot() == {f"key-{n}": n for n in range(3_000)}
    database.close()


@EXAMPLES
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("arps"), st.sampled_from(KEYS), st.integers(-9, 9)), max_size=80
    ),
    kept=st.sampled_from([0, 1_000]),
)
def test_timers_on_disk_fire_in_order(
    database: RocksDatabase, steps: list[tuple[str, str, int]], kept: int
) -> None:
    queues = on_disk, in_memory = store(database, kept).create_timers("t"), HeapTimerQueue()
    for step, key, time in steps:
        for queue in queues:
            if step == "p":
                if (timer := queue.first()) is not None:
                    assert queue.remove(timer)
                continue
            if step == "s":
                database.flush()
                continue
            (queue.add if step == "a" else queue.remove)((time, key))
        assert len({(queue.first(), len(queue)) for queue in queues}) == 1
    assert sorted(on_disk) == sorted(in_memory)
    while (timer := in_memory.first()) is not None:
        assert on_disk.first() == timer
        assert timer in on_disk
        assert in_memory.remove(timer) == on_disk.remove(timer)
    assert (on_disk.first(), len(on_disk)) == (None, 0)


def test_timers_on_disk_end_before_next_table(database: RocksDatabase) -> None:
    kept_in = store(database, 10_000)
    timers, behind = kept_in.create_timers("t"), kept_in.create_entries("v", 0)
    for number in range(1_000):
        timers.add((number, f"key-{number}"))
        behind[f"key-{number}"] = 1_000 + number
    database.flush()
    fired = []
    while (timer := timers.first()) is not None:
        fired.append(timer)
        assert timers.remove(timer)
    assert fired == [(number, f"key-{number}") for number in range(1_000)]


def test_database_has_figures_of_metrics(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path / "database", 0)
    entries = open_store(database, "o", GROUPS).create_entries("v", 0)
    entries.update((f"key-{number}", number) for number in range(1_000))
    database.flush()
    figures = database.figures()
    assert set(figures) == set(FIGURES) == set(metrics_table.DATABASE)
    assert figures["rocksdb.estimate-num-keys"] == 1_000
    assert figures["rocksdb.block-cache-capacity"] == LEAST_MEMORY // 2
    database.close()


class Limited:
    """A database whose disk is full."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def write(self, *_: Any) -> None:
        raise Exception("IO error: No space left on device")

    close = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def test_full_disk_fails_task_and_not_users_function(tmp_path: Path) -> None:
    database = RocksDatabase(tmp_path / "database", 0)
    table = KeyedStateBackend(Types.STRING(), GROUPS, store=store(database, 0)).value_table("v", Types.LONG())
    limited: Any = Limited(database.db)
    database.db = limited
    config = OperatorConfig(
        operator_id="o", name="Count", kind="reduce", parameters="", code=b"", location="program.py:7"
    )

    def fill() -> None:
        with user_code(config):
            for number in range(10):
                table.put(f"key-{number}", number)

    with pytest.raises(
        StateDiskError, match=r"^keyed state on disk in .* No space left on device; free space"
    ):
        fill()
    forked = fork_with_database(database, lambda progress: b"")
    with pytest.raises(TaskError, match="state could not be written: keyed state on disk"):
        forked.result.result(10)
    database.close()
    assert not database.directory.exists()


def test_entry_holds_classes_and_functions_of_program() -> None:
    made: Any = make_dataclass("Made", [("number", int), ("call", Any)])
    key, held = EntryCodec.decode(EntryCodec().encode(("k", 1), made(1, lambda: 7)))
    assert key == ("k", 1)
    assert type(held) is made
    assert held.call() == 7


def test_keys_of_other_types_are_other_keys(database: RocksDatabase) -> None:
    lived = KeyedStateBackend(PICKLED, GROUPS, store=store(database, 0))
    table = lived.value_table("v", PICKLED)
    one, other = make_dataclass("One", ["n"], frozen=True), make_dataclass("Other", ["n"], frozen=True)
    keys = [1, "1", b"1", None, (1, 2), one(1), other(1), frozenset({1})]
    for number, key in enumerate(keys):
        table.put(key, number)
    table.put(True, 8)
    lived.take_changes()
    assert [table.space().get(key) for key in keys] == [8, *range(1, 8)]
