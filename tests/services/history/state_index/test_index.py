"""With any content or damage of the history index, the state at an offset equals the live one, with its hash."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_count import example_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.infra.storage.storage import Storage
from tailrace.services.history.log_position import LogPosition, PositionOutOfRange
from tailrace.services.history.state_index import writer as writer_module
from tailrace.services.history.state_index.index import IndexMark, Pieces, StateIndex
from tailrace.services.history.time_travel import fold_to, state_hash
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots import state_delta
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.store import SnapshotStore

from ..recorded_history import SEEDS, SHORT, create_log, describe_difference, events, record_live_moments

SEED = 3
LAST = len(record_live_moments(SEED)) - 1
INTERVAL = 25


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    """Makes small maps large, because the maps of simulated histories have few entries. Hashes depend on the pieces."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state_delta, "LARGE_MAP", 2)
        patched.setattr(state_delta, "LARGE_FIELD", 64)
        record_live_moments.cache_clear()
        yield
    record_live_moments.cache_clear()


def index_of(log: MemoryEventLog, directory: Path, interval: int = INTERVAL) -> nullcontext[StateIndex]:
    return nullcontext(StateIndex(log, "c", directory=directory, interval=interval))


def check(log: MemoryEventLog, directory: Path, offset: int, seed: int = SEED, **more: Any) -> None:
    """Checks that the state at the offset equals the live one, and continues like it."""
    with index_of(log, directory, **more) as index:
        replica = fold_to(log, offset, index=index)
    assert describe_difference(replica, record_live_moments(seed)[offset]) is None
    assert state_hash(replica) == record_live_moments(seed)[offset].state_hash


def built(directory: Path, seed: int = SEED) -> Path:
    """Returns the directory of an index of a whole history."""
    log = create_log(events(seed))
    with index_of(log, directory) as index:
        fold_to(log, index=index)
        assert index.path is not None
        return index.path


def rows(path: Path) -> dict[str, bytes]:
    """Returns all rows of an index."""
    return {item.name: item.read_bytes() for item in sorted(path.iterdir())}


def marks(path: Path) -> list[Path]:
    return sorted(path.glob("*.mark"))


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_state_at_offset_equals_live_state_after_any_queries(seed: int, data: st.DataObject) -> None:
    """From the start, from a mark, and after the last one."""
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
def test_index_grown_with_log_equals_index_built_at_once(seed: int, data: st.DataObject) -> None:
    some = events(seed)
    with tempfile.TemporaryDirectory() as directory:
        log, position = create_log([]), 0
        while position < len(some):
            size = data.draw(st.integers(len(some) // 10, len(some)))
            log.append(some[position : position + size])
            position = min(position + size, len(some))
            check(log, Path(directory, "grown"), position - 1, seed)
        (grown,) = Path(directory, "grown").iterdir()
        assert rows(grown) == rows(built(Path(directory, "at-once"), seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_replica_from_mark_continues_like_live_one(seed: int, tmp_path: Path) -> None:
    built(tmp_path, seed)
    log = create_log(events(seed))
    with index_of(log, tmp_path) as index:
        replica = fold_to(log, len(record_live_moments(seed)) // 2, index=index)
    for batch in [log.tail(replica.offset + 1).poll(0)]:
        for record in batch:
            replica.apply(record)
            assert replica.offset == record_live_moments(seed)[record.offset].offset
    assert describe_difference(replica, record_live_moments(seed)[-1]) is None


@settings(max_examples=example_count(15), deadline=None)
@given(data=st.data())
def test_mark_is_found_by_time(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        built(Path(directory))
        some = record_live_moments(SEED)
        time = data.draw(st.sampled_from([moment.time for moment in some])) + data.draw(
            st.sampled_from((-1, 0, 1))
        )
        with index_of(create_log(events(SEED)), Path(directory)) as index:
            mark = index.not_after(time)
        marks = [
            moment for moment in some if moment.offset % INTERVAL == INTERVAL - 1 and moment.time <= time
        ]
        assert (None if mark is None else (mark.offset, mark.time)) == (
            (marks[-1].offset, marks[-1].time) if marks else None
        )


@settings(max_examples=example_count(15), deadline=None)
@given(data=st.data())
def test_time_is_same_position_with_and_without_marks(data: st.DataObject) -> None:
    """The longest prefix whose events have at most that time."""
    some = record_live_moments(SEED)
    time = data.draw(st.sampled_from([moment.time for moment in some])) + data.draw(
        st.sampled_from((-1, 0, 1))
    )
    expected = [moment.offset for moment in some if moment.time <= time]
    with tempfile.TemporaryDirectory() as directory:
        if data.draw(st.booleans()):
            built(Path(directory))
        log = create_log(events(SEED))
        with index_of(log, Path(directory)) as index:
            try:
                assert LogPosition("t", time=time).at(log, index) == expected[-1]
            except PositionOutOfRange:
                assert expected == []


def test_log_shorter_than_first_mark_leaves_no_file(tmp_path: Path) -> None:
    log = create_log(events(SEED)[: INTERVAL - 1])
    with index_of(log, tmp_path) as index:
        fold_to(log, index=index)
        assert index.not_after(1 << 60) is None
        assert list(tmp_path.iterdir()) == []
        log.append(events(SEED)[INTERVAL - 1 :])
        fold_to(log, index=index)
        assert index.not_after(1 << 60) is not None


def test_changes_take_at_most_the_bytes_of_all_pieces(tmp_path: Path) -> None:
    results = [decode_mark(mark) for mark in marks(built(tmp_path))]
    assert len(results) == (LAST + 1) // INTERVAL
    assert results[0].before is None
    assert any(mark.before is not None for mark in results)
    pieces: Pieces = {}
    changes = 0
    for before, mark in zip([None, *results], results, strict=False):
        if mark.before is not None:
            assert before is not None
            assert mark.before == before.offset
            assert all(pieces.get(a, {}).get((f, k)) != data for a, f, k, data in mark.changed)
            changes += mark.size
        else:
            pieces, changes = {}, 0
        mark.apply(pieces)
        assert changes <= sum(len(data) for state in pieces.values() for data in state.values())


def decode_mark(path: Path) -> IndexMark:
    return msgspec.msgpack.decode(zlib.decompress(path.read_bytes()[16:]), type=IndexMark)


# What may be wrong with it


@contextmanager
def one_warning(about: str) -> Iterator[None]:
    with capture_logs() as output:
        yield
    reports = [f"{row['event']}: {row['reason']}" for row in output]
    assert len(reports) == 1, reports
    assert about in reports[0]
    assert "\n" not in reports[0]


@settings(max_examples=example_count(20), deadline=None)
@given(data=st.data())
def test_damage_is_detected_or_harmless(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = data.draw(st.sampled_from(marks(built(Path(directory)))))
        whole = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 20))):
            place = data.draw(st.integers(0, len(whole) - 1))
            whole[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole[: data.draw(st.sampled_from((len(whole), len(whole), len(whole) // 2)))])
        log = create_log(events(SEED))
        with capture_logs() as output:
            for offset in (LAST, LAST // 2):
                check(log, Path(directory), offset)
        assert len(output) <= 2


def garbage(path: Path) -> None:
    marks(path)[-1].write_bytes(b"\x89PNG\r\n" * 1000)


def torn(path: Path) -> None:
    last = marks(path)[-1]
    last.write_bytes(last.read_bytes()[:-1])


def empty(path: Path) -> None:
    marks(path)[-1].write_bytes(b"")


def delete_required_mark(path: Path) -> None:
    """Deletes a mark that the last mark needs; without the marks after it."""
    before = {mark: decode_mark(mark).before for mark in marks(path)}
    while before[max(before)] is None:
        last = max(before)
        last.unlink()
        del before[last]
    next(path for path in before if int(path.name.partition(".")[0]) == before[max(before)]).unlink()


def insert_other_mark(path: Path) -> None:
    first, *_, last = marks(path)
    last.write_bytes(first.read_bytes())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (garbage, "is wrong"),
        (torn, "is wrong"),
        (empty, "is wrong"),
        (delete_required_mark, "has no mark at offset"),
        (insert_other_mark, "has another content than name"),
    ],
)
def test_foreign_or_damaged_index_is_rebuilt_with_warning(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    path = built(tmp_path)
    whole = rows(path)
    damage(path)
    with one_warning(reason):
        check(create_log(events(SEED)), tmp_path, LAST)
    assert rows(path) == whole
    with capture_logs() as output:
        check(create_log(events(SEED)), tmp_path, LAST)
    assert output == []


def test_index_of_other_release_is_rebuilt_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "code_fingerprint", lambda: "another")
        path = built(tmp_path)
    with capture_logs() as output:
        check(create_log(events(SEED)), tmp_path, LAST)
    assert rows(path) == rows(built(tmp_path / "anew"))
    assert [row["log_level"] for row in output] == ["debug"]


def test_other_log_with_same_prefix_is_detected(tmp_path: Path) -> None:
    other = events(SEED)
    half = len(other) // 2
    log = create_log([*other[:half], *other[half + 1 :]])
    with index_of(log, tmp_path) as index:
        fold_to(log, index=index)
    with one_warning("has another event at offset"):
        check(create_log(other), tmp_path, LAST)


def test_logs_with_different_prefixes_do_not_share_index(tmp_path: Path) -> None:
    assert len({built(tmp_path, seed) for seed in SEEDS}) > 1


def test_empty_log_has_no_index(tmp_path: Path) -> None:
    log = create_log([])
    with index_of(log, tmp_path) as index:
        assert fold_to(log, index=index).offset == -1
        assert (index.path, index.not_after(1 << 60)) == (None, None)


def test_queries_work_where_no_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with one_warning("Not a directory"):
        check(create_log(events(SEED)), tmp_path / "file" / "below", LAST)


ALONE = """
import os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.services.snapshots.simulated_logs import create_log
from tailrace.services.history.state_index.index import StateIndex
from tailrace.services.history.log_position import LogPosition, PositionOutOfRange
from tailrace.services.history.time_travel import fold_to, state_hash
from tailrace.services.snapshots import state_delta
state_delta.LARGE_MAP, state_delta.LARGE_FIELD = 2, 64
log = create_log(int(sys.argv[2]))
exec(sys.argv[4])
print(state_hash(fold_to(log, index=StateIndex(log, "c", directory=Path(sys.argv[3]), interval=25))))
"""


def alone(directory: Path, before: str) -> tuple[str, list[str]]:
    """Runs a process that executes code before its query; returns the hash of the whole log's state, and its stderr."""
    checkout = Path(__file__).parents[4]
    result = subprocess.run(
        [sys.executable, "-c", ALONE, str(checkout), str(SEED), str(directory), before],
        capture_output=True,
        text=True,
        check=True,
    )
    reports = [line for line in (result.stdout + result.stderr).splitlines() if "index" in line]
    return result.stdout.split()[-1], reports


def test_full_disk_does_no_harm(tmp_path: Path) -> None:
    """No file may grow beyond 100 bytes."""
    result, reports = alone(tmp_path, "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))")
    assert result == record_live_moments(SEED)[-1].state_hash
    assert len(reports) == 1, reports
    assert "continues without a history index" in reports[0]
    check(create_log(events(SEED)), tmp_path, LAST)


LOCKED = """
directory = Path(sys.argv[3])
index = StateIndex(log, "c", directory=directory, interval=25)
fold_to(log, index=index)
index.path.chmod(0o555)
directory.chmod(0o555)
os.getuid() or os.setuid(65534)
"""


def test_read_only_index_is_read() -> None:
    with tempfile.TemporaryDirectory() as directory:
        result, reports = alone(Path(directory), LOCKED)
        Path(directory).chmod(0o755)
        assert (result, reports) == (record_live_moments(SEED)[-1].state_hash, [])
        (path,) = Path(directory).iterdir()
        path.chmod(0o755)
        assert len(marks(path)) == (LAST + 1) // 25


def test_concurrent_builders_build_one_index(tmp_path: Path) -> None:
    alone_built = rows(built(tmp_path / "alone"))
    results: list[str] = []

    def build() -> None:
        log = create_log(events(SEED))
        with index_of(log, tmp_path / "shared") as index:
            results.append(state_hash(fold_to(log, index=index)))

    threads = [threading.Thread(target=build) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [record_live_moments(SEED)[-1].state_hash] * 6
    (path,) = (tmp_path / "shared").iterdir()
    assert rows(path) == alone_built


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(data=st.data())
def test_alternating_builders_build_one_index(data: st.DataObject) -> None:
    """Each continues from its own position, whoever wrote the marks in between."""
    from tailrace.services.history.state_index.writer import StateIndexWriter
    from tailrace.services.snapshots.builder import all_roles

    some = create_log(events(SEED)).tail(0).poll(0)
    with tempfile.TemporaryDirectory() as made:
        directory, log = Path(made), create_log(events(SEED))
        indexes = [StateIndex(log, "c", directory=directory / "two", interval=INTERVAL) for _ in range(2)]
        replicas = [all_roles() for _ in indexes]
        recorders = [StateIndexWriter(*pair, None) for pair in zip(indexes, replicas, strict=True)]
        places = [0, 0]
        while min(places) < len(some):
            turn = data.draw(st.integers(0, 1))
            size = data.draw(st.integers(20, 200))
            recorders[turn].fold(some[places[turn] : places[turn] + size])
            places[turn] += size
        for recorder in recorders:
            recorder.on_offset_reached(len(some))
        (path,) = (directory / "two").iterdir()
        assert rows(path) == rows(built(directory / "one"))


# Beside snapshots


def test_nearer_of_snapshot_and_mark_is_used(tmp_path: Path) -> None:
    log = create_log(events(SEED))
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    create_snapshot(log, store, LAST - 10)
    for offset in (LAST, LAST - 20, LAST // 2, LAST):
        with index_of(log, tmp_path) as index:
            replica = fold_to(log, offset, store, index)
        assert describe_difference(replica, record_live_moments(SEED)[offset]) is None
        assert state_hash(replica) == record_live_moments(SEED)[offset].state_hash


def test_index_of_log_with_deleted_head_starts_from_snapshot(tmp_path: Path) -> None:
    log = create_log(events(SEED))
    store = SnapshotStore(Storage.open(str(tmp_path / "snapshots")), "c")
    create_snapshot(log, store, SHORT)
    log.truncate(SHORT)
    with index_of(log, tmp_path) as index:
        assert describe_difference(fold_to(log, LAST, store, index), record_live_moments(SEED)[LAST]) is None
