"""Storage behaves the same on every file system, fails in one line, and never has a partial file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import MissingFile, StorageError
from tailrace.infra.storage.storage import Storage, canonical
from tailrace.pipelines.checkpoint import layout

NAMES = st.sampled_from(["a", "b", "chk-1/a", "chk-1/b", "shared/x"])


@settings(max_examples=example_count(20))
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), NAMES, st.binary(max_size=40)),
            st.tuples(st.just("delete"), NAMES, st.just(b"")),
            st.tuples(st.just("delete tree"), st.sampled_from(["chk-1", "shared", "nothing"]), st.just(b"")),
        ),
        max_size=12,
    ),
    offset=st.integers(0, 45),
    length=st.none() | st.integers(0, 45),
)
def test_file_has_last_written_content(
    fresh: Callable[[], Storage], steps: list[Any], offset: int, length: int | None
) -> None:
    storage, model = fresh(), dict[str, bytes]()
    for act, path, data in steps:
        match act:
            case "write":
                storage.write_atomically(path, data)
                model[path] = data
            case "delete":
                storage.delete(path)
                model.pop(path, None)
            case _:
                storage.delete_tree(path)
                model = {name: value for name, value in model.items() if not name.startswith(f"{path}/")}
    for path in ("a", "b", "chk-1/a", "chk-1/b", "shared/x"):
        data = model.get(path)
        assert storage.size(path) == (None if data is None else len(data))
        if data is None:
            with pytest.raises(MissingFile):
                storage.read(path)
        else:
            assert storage.read(path) == data
            assert (
                storage.read(path, offset, length) == data[offset:][: len(data) if length is None else length]
            )
    for directory in ("", "chk-1", "shared", "nothing"):
        prefix = f"{directory}/" if directory else ""
        there = {name.removeprefix(prefix): item for name, item in model.items() if name.startswith(prefix)}
        assert storage.sizes(directory) == {
            name: len(element) for name, element in there.items() if "/" not in name
        }


def test_growing_file_is_visible_up_to_last_write(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path / "new"))
    assert storage.can_append
    with storage.create("shared/a") as file:
        for written in range(5):
            assert storage.size("shared/a") == written == file.length
            file.write(b"x")
    with pytest.raises(StorageError, match="exists"):
        storage.create("shared/a")


def test_file_appears_when_complete_without_append(fresh: Callable[[], Storage]) -> None:
    storage = fresh()
    with storage.create("shared/a") as file:
        file.write(b"abc")
        file.write(b"def")
    assert storage.read("shared/a") == b"abcdef"
    assert storage.can_append == storage.uri.startswith("/")


def test_unfinished_object_never_appears() -> None:
    storage = Storage.open("memory://unfinished")
    with suppress(ZeroDivisionError), storage.create("a") as file:
        file.write(b"abc")
        raise ZeroDivisionError
    assert storage.size("a") is None


def test_readers_see_old_or_new_content(tmp_path: Path) -> None:
    storage, done = Storage.open(str(tmp_path)), threading.Event()
    versions = [bytes([item]) * 50_000 for item in (1, 2)]
    storage.write_atomically("f", versions[0])

    def write() -> None:
        for turn in range(200):
            storage.write_atomically("f", versions[turn % 2])
        done.set()

    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(write)
        while not done.is_set():
            assert storage.read("f") in versions
        writer.result()
    assert storage.sizes() == {"f": 50_000}


def test_failed_write_keeps_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.infra.storage import local_files

    storage = Storage.open(str(tmp_path))
    storage.write_atomically("f", b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_files, "write_all", full)
    with pytest.raises(StorageError, match=rf"{tmp_path}/f could not be written: OSError: .*No space left"):
        storage.write_atomically("f", b"after")
    assert storage.read("f") == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("nosuchscheme://bucket/dir", "nosuchscheme://bucket cannot be reached"),
        ("/proc/version/dir", "/proc/version/dir/f could not be"),
    ],
)
def test_unreachable_storage_is_named_in_one_line(uri: str, says: str) -> None:
    with pytest.raises((StorageError, MissingFile)) as raised:
        Storage.open(uri).write_atomically("f", b"")
    text = str(raised.value)
    assert "\n" not in text
    if isinstance(raised.value, StorageError):
        assert says in text
    with pytest.raises((StorageError, MissingFile)):
        Storage.open(uri).read("f")


@pytest.mark.parametrize(
    ("uri", "same"),
    [
        ("/data/x/", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("file:/data//x/../y", "/data/y"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3://bucket/", "s3://bucket"),
        ("hdfs://host:9000/a/./b", "hdfs://host:9000/a/b"),
    ],
)
def test_location_has_one_name(uri: str, same: str) -> None:
    assert canonical(uri) == same
    assert canonical(same) == same


def test_paths_below_base_are_relative() -> None:
    storage = Storage.open("s3://bucket/jobs/j")
    assert storage.absolute("shared/a") == "s3://bucket/jobs/j/shared/a"
    for path in ("shared/a", "s3://bucket/jobs/jj/a", "/data/a"):
        assert storage.relative(storage.absolute(path)) == path
    assert storage.relative("s3://bucket/jobs/j/chk-1/f") == "chk-1/f"


def test_checkpoint_and_savepoint_directories_are_distinguished() -> None:
    job = layout.job_directory("s3://b/checkpoints/", "0123abcd")
    chk = layout.checkpoint_directory(job, 12)
    assert (job, chk) == ("s3://b/checkpoints/0123abcd", "s3://b/checkpoints/0123abcd/chk-12")
    assert layout.checkpoint_id_of(chk) == 12
    assert layout.base_of(f"{chk}/") == job
    savepoint = layout.savepoint_directory("/savepoints", "0123abcd", "fedc")
    assert savepoint == "/savepoints/savepoint-0123ab-fedc"
    assert layout.checkpoint_id_of(savepoint) is None
    assert layout.base_of(savepoint) == savepoint
