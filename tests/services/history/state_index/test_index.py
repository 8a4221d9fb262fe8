"""The history index: whatever is in it or is wrong with it, the state at an offset is the live one, hash included."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.infra.storage.storage import Storage
from tailrace.services.history.log_position import LogPosition, PositionOutOfRange
from tailrace.services.history.state_index import index_file
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.history.time_travel import fold_to, state_hash
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots import state_delta
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.store import SnapshotStore

from ..recorded_history import SEEDS, SHORT, create_log, describe_difference, events, record_live_moments

SEED = 3
LAST = len(record_live_moments(SEED)) - 1
INTERVAL = 25


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated histories are short: their maps are large where a few entries are many."""
    monkeypatch.setattr(state_delta, "LARGE_MAP", 2)
    monkeypatch.setattr(state_delta, "LARGE_FIELD", 64)


def index_of(log: MemoryEventLog, directory: Path, interval: int = INTERVAL) -> closing[StateIndex]:
    return closing(StateIndex(log, "c", directory=directory, interval=interval))


def check(log: MemoryEventLog, directory: Path, offset: int, seed: int = SEED, **more: Any) -> None:
    """The state at the offset is the live one, and goes on as it should."""
    with index_of(log, directory, **more) as index:
        replica = fold_to(log, offset, index=index)
    assert describe_difference(replica, record_live_moments(seed)[offset]) is None
    assert state_hash(replica) == record_live_moments(seed)[offset].state_hash


def built(directory: Path, seed: int = SEED) -> Path:
    """An index of a whole history; its file."""
    log = create_log(events(seed))
    with index_of(log, directory) as index:
        fold_to(log, index=index)
        assert index.path is not None
        return index.path


def rows(path: Path) -> list[Any]:
    """All that an index holds."""
    connection = sqlite3.connect(path)
    try:
        return [
            connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4").fetchall()
            for table in ("marks", "pieces")
        ]
    finally:
        connection.close()


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_the_state_at_an_offset_is_the_live_one_whatever_was_asked_before(
    seed: int, data: st.DataObject
) -> None:
    """From the start, from a mark, and behind the last one."""
    interval = data.draw(st.integers(1, 60))
    with tempfile.TemporaryDirectory() as directory:
        log = create_log(events(seed))
        for offset in data.draw(
            st.lists(st.integers(0, len(record_live_moments(seed)) - 1), min_size=2, max_size=6)
        ):
            check(log, Path(directory), offset, seed, interval=interval)


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_an_index_that_grew_with_its_log_is_the_one_that_was_made_at_once(
    seed: int, data: st.DataObject
) -> None:
    some = events(seed)
    with tempfile.TemporaryDirectory() as directory:
        log, position = create_log([]), 0
        while position < len(some):
            size = data.draw(st.integers(len(some) // 10, len(some)))
            log.append(some[position : position + size])
            position = min(position + size, len(some))
            check(log, Path(directory, "grown"), position - 1, seed)
        (grown,) = Path(directory, "grown").glob("*.sqlite")
        assert rows(grown) == rows(built(Path(directory, "at-once"), seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_from_a_mark_folds_on_as_the_live_one_did(seed: int, tmp_path: Path) -> None:
    built(tmp_path, seed)
    log = create_log(events(seed))
    with index_of(log, tmp_path) as index:
        replica = fold_to(log, len(record_live_moments(seed)) // 2, index=index)
    for batch in [log.tail(replica.offset + 1).poll(0)]:
        for record in batch:
            replica.apply(record)
            assert replica.offset == record_live_moments(seed)[record.offset].offset
    assert describe_difference(replica, record_live_moments(seed)[-1]) is None


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_mark_is_found_by_time(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        built(Path(directory))
        some = record_live_moments(SEED)
        time = data.draw(st.sampled_from([each.time for each in some])) + data.draw(
            st.sampled_from((-1, 0, 1))
        )
        with index_of(create_log(events(SEED)), Path(directory)) as index:
            mark = index.not_after(time)
        marks = [each for each in some if each.offset % INTERVAL == INTERVAL - 1 and each.time <= time]
        assert (None if mark is None else (mark.offset, mark.time)) == (
            (marks[-1].offset, marks[-1].time) if marks else None
        )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_time_is_the_same_place_with_marks_and_without(data: st.DataObject) -> None:
    """The longest beginning whose events have that time at most."""
    some = record_live_moments(SEED)
    time = data.draw(st.sampled_from([each.time for each in some])) + data.draw(st.sampled_from((-1, 0, 1)))
    expected = [each.offset for each in some if each.time <= time]
    with tempfile.TemporaryDirectory() as directory:
        if data.draw(st.booleans()):
            built(Path(directory))
        log = create_log(events(SEED))
        with index_of(log, Path(directory)) as index:
            try:
                assert LogPosition("t", time=time).at(log, index) == expected[-1]
            except PositionOutOfRange:
                assert expected == []


def test_a_log_that_is_shorter_than_the_way_to_the_first_mark_leaves_no_file(tmp_path: Path) -> None:
    log = create_log(events(SEED)[: INTERVAL - 1])
    with index_of(log, tmp_path) as index:
        fold_to(log, index=index)
        assert (index.not_after(1 << 60), index.newest(LAST)) == (None, None)
        assert list(tmp_path.iterdir()) == []
        log.append(events(SEED)[INTERVAL - 1 :])
        fold_to(log, index=index)
        assert index.newest(LAST) is not None


def test_only_what_has_changed_is_written_again(tmp_path: Path) -> None:
    marks, found = rows(built(tmp_path))
    assert len(marks) == (LAST + 1) // INTERVAL
    by_piece: dict[tuple[Any, ...], list[tuple[int, int, bytes]]] = {}
    for address, field, key, since, until, _, data in found:
        by_piece.setdefault((address, field, key), []).append((since, until, data))
    for versions in by_piece.values():
        for (_, until, data), (since, _, later) in pairwise(versions):
            assert until <= since
            assert until < since or data != later, "the same piece twice in a row"


# What may be wrong with it


@contextmanager
def one_warning(about: str) -> Iterator[None]:
    with capture_logs() as said:
        yield
    told = [f"{each['event']}: {each['reason']}" for each in said]
    assert len(told) == 1, told
    assert about in told[0]
    assert "\n" not in told[0]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_is_noticed_or_harmless(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = built(Path(directory))
        whole = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 20))):
            place = data.draw(st.integers(0, len(whole) - 1))
            whole[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole[: data.draw(st.sampled_from((len(whole), len(whole), len(whole) // 2)))])
        log = create_log(events(SEED))
        with capture_logs() as said:
            for offset in (LAST, LAST // 2):
                check(log, Path(directory), offset)
        assert len(said) <= 2


def garbage(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n" * 1000)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


def another_database(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE cookies(name)")
    connection.commit()
    connection.close()


def another_cluster(path: Path) -> None:
    changed(path, "UPDATE about SET value = 'x' WHERE name = 'cluster'")


def a_state_of_another_time(path: Path) -> None:
    changed(path, f"UPDATE pieces SET until = {1 << 61} WHERE address = 'resource_manager'")


def a_state_that_is_gone(path: Path) -> None:
    changed(path, "DELETE FROM pieces WHERE address = 'resource_manager'")


def another_mark(path: Path) -> None:
    changed(path, "UPDATE marks SET awake = '[]'")


def changed(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (garbage, "not a database"),
        (torn, "malformed"),
        (another_database, "no such table"),
        (another_cluster, "another cluster"),
        (a_state_of_another_time, "not those that were written"),
        (a_state_that_is_gone, "not those that were written"),
        (another_mark, "not those that were written"),
    ],
)
def test_what_is_no_index_or_another_one_is_thrown_away_with_a_warning_and_built_anew(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    path = built(tmp_path)
    whole = rows(path)
    damage(path)
    with one_warning(reason):
        check(create_log(events(SEED)), tmp_path, LAST)
    assert rows(path) == whole
    with capture_logs() as said:
        check(create_log(events(SEED)), tmp_path, LAST)
    assert said == []


def test_that_of_another_release_is_built_anew_without_a_word(tmp_path: Path) -> None:
    path = built(tmp_path)
    whole = rows(path)
    changed(path, "UPDATE about SET value = 'x' WHERE name = 'release'")
    with capture_logs() as said:
        check(create_log(events(SEED)), tmp_path, LAST)
    assert rows(path) == whole
    assert [each["log_level"] for each in said] == ["debug"]


def test_an_empty_file_is_an_index_without_marks(tmp_path: Path) -> None:
    path = built(tmp_path)
    whole = rows(path)
    path.write_bytes(b"")
    with capture_logs() as said:
        check(create_log(events(SEED)), tmp_path, LAST)
    assert (said, rows(path)) == ([], whole)


def test_another_log_that_began_the_same_way_is_noticed(tmp_path: Path) -> None:
    other = events(SEED)
    half = len(other) // 2
    log = create_log([*other[:half], *other[half + 1 :]])
    with index_of(log, tmp_path) as index:
        fold_to(log, index=index)
    with one_warning("has another event at offset"):
        check(create_log(other), tmp_path, LAST)


def test_logs_that_began_otherwise_do_not_share_one(tmp_path: Path) -> None:
    assert len({built(tmp_path, seed) for seed in SEEDS}) > 1


def test_a_log_without_events_has_no_index(tmp_path: Path) -> None:
    log = create_log([])
    with index_of(log, tmp_path) as index:
        assert fold_to(log, index=index).offset == -1
        assert (index.path, index.not_after(1 << 60)) == (None, None)


def test_where_no_file_can_be_it_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with one_warning("Not a directory"):
        check(create_log(events(SEED)), tmp_path / "file" / "below", LAST)


def test_an_index_that_somebody_holds_is_gone_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_PATIENCE_S", 0.01)
    connection = sqlite3.connect(built(tmp_path), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    with one_warning("locked"):
        check(create_log(events(SEED)), tmp_path, LAST)
    connection.close()


ALONE = """
import os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.services.snapshots.simulated_logs import create_log
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.history.log_position import LogPosition, PositionOutOfRange
from tailrace.services.history.time_travel import fold_to, state_hash
log = create_log(int(sys.argv[2]))
exec(sys.argv[4])
print(state_hash(fold_to(log, index=StateIndex(log, "c", directory=Path(sys.argv[3]), interval=25))))
"""


def alone(directory: Path, before: str) -> tuple[str, list[str]]:
    """A process that does something before it asks; the hash of the whole log's state, and its lines on stderr."""
    checkout = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(checkout), str(SEED), str(directory), before],
        capture_output=True,
        text=True,
        check=True,
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if "index" in line]
    return done.stdout.split()[-1], told


def test_a_full_disk_does_no_harm(tmp_path: Path) -> None:
    """No file may grow beyond 60 kB."""
    found, told = alone(tmp_path, "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))")
    assert found == record_live_moments(SEED)[-1].state_hash
    assert len(told) == 1, told
    assert "goes on without a history index" in told[0]
    check(create_log(events(SEED)), tmp_path, LAST)


LOCKED = """
directory = Path(sys.argv[3])
index = StateIndex(log, "c", directory=directory, interval=25)
fold_to(log, index=index)
index.close()
index.path.chmod(0o444)
directory.chmod(0o555)
os.getuid() or os.setuid(65534)
"""


def test_what_may_only_be_read_is_read() -> None:
    with tempfile.TemporaryDirectory() as directory:
        found, told = alone(Path(directory), LOCKED)
        Path(directory).chmod(0o755)
        assert (found, told) == (record_live_moments(SEED)[-1].state_hash, [])
        (path,) = Path(directory).iterdir()
        assert len(rows(path)[0]) == (LAST + 1) // 25


def test_several_that_build_it_at_once_build_one(tmp_path: Path) -> None:
    alone_built = rows(built(tmp_path / "alone"))
    found: list[str] = []

    def build() -> None:
        log = create_log(events(SEED))
        with index_of(log, tmp_path / "shared") as index:
            found.append(state_hash(fold_to(log, index=index)))

    threads = [threading.Thread(target=build) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [record_live_moments(SEED)[-1].state_hash] * 6
    (path,) = (tmp_path / "shared").glob("*.sqlite")
    assert rows(path) == alone_built


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(data=st.data())
def test_two_that_build_it_by_turns_build_one(data: st.DataObject) -> None:
    """Each goes on from where it is, whoever has written the marks on the way."""
    from tailrace.services.history.state_index.writer import StateIndexWriter
    from tailrace.services.snapshots.builder import all_roles

    some = create_log(events(SEED)).tail(0).poll(0)
    with tempfile.TemporaryDirectory() as made:
        directory, log = Path(made), create_log(events(SEED))
        indexes = [StateIndex(log, "c", directory=directory / "two", interval=INTERVAL) for _ in range(2)]
        replicas = [all_roles() for _ in indexes]
        recorders = [StateIndexWriter(*each, None) for each in zip(indexes, replicas, strict=True)]
        places = [0, 0]
        while min(places) < len(some):
            turn = data.draw(st.integers(0, 1))
            size = data.draw(st.integers(20, 200))
            recorders[turn].fold(some[places[turn] : places[turn] + size])
            places[turn] += size
        for recorder, index in zip(recorders, indexes, strict=True):
            recorder.on_offset_reached(len(some))
            index.close()
        (path,) = (directory / "two").glob("*.sqlite")
        assert rows(path) == rows(built(directory / "one"))


# Beside snapshots


def test_a_snapshot_that_is_much_nearer_is_taken_and_otherwise_the_mark(tmp_path: Path) -> None:
    log = create_log(events(SEED))
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    create_snapshot(log, store, LAST - 10)
    for offset in (LAST, LAST - 20, LAST // 2, LAST):
        with index_of(log, tmp_path) as index:
            replica = fold_to(log, offset, store, index)
        assert describe_difference(replica, record_live_moments(SEED)[offset]) is None
        assert state_hash(replica) == record_live_moments(SEED)[offset].state_hash


def test_where_the_head_of_the_log_is_gone_it_begins_with_a_snapshot(tmp_path: Path) -> None:
    log = create_log(events(SEED))
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    create_snapshot(log, store, SHORT)
    log.truncate(SHORT)
    with index_of(log, tmp_path) as index:
        assert describe_difference(fold_to(log, LAST, store, index), record_live_moments(SEED)[LAST]) is None
