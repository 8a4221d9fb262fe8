"""A forked child works on the memory of the fork, whatever threads the task has; a child that hangs or dies is
reported."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.state_files import read_messages
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.stream_task.state.fork_worker import ForkedWorker
from tailrace.pipelines.runtime.stream_task.state.full_snapshot import write_full_snapshot
from tailrace.pipelines.types import PICKLED, Types
from tailrace.schemas.types import StateFile

FORKS = 40


@contextmanager
def busy(*works: Callable[[], object]) -> Iterator[None]:
    """Runs threads that repeat these functions."""
    ended = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        while not ended.is_set():
            work()

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_children_finish_while_other_threads_allocate_log_and_use_kafka(tmp_path: Path) -> None:
    state = KeyedStateBackend(Types.STRING(), 128)
    counts = state.value_table("count", Types.LONG())
    names = state.value_table("name", PICKLED)
    numbers = pa.array(range(200_000))
    # Nobody listens there: librdkafka's threads connect, log and count meanwhile.
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": "127.0.0.1:1", "reconnect.backoff.ms": 1, "log_level": 0}
    )

    def produce() -> None:
        producer.produce("t", b"x" * 1000)
        producer.poll(0)
        producer.purge()

    works = (
        lambda: pc.sum(pc.sort_indices(numbers)),
        lambda: pa.array([{"a": i} for i in range(1000)]),
        lambda: [bytes(1 << 16) for _ in range(100)],
        produce,
    )
    storage = Storage(str(tmp_path))
    with busy(*works):
        for number in range(FORKS):
            for key in range(500):
                counts.put(f"key {key}", number)
                names.put(f"key {key}", {"number": number})
            state.take_changes()

            def work(progress: Callable[[], None], number: int = number) -> bytes:
                files = write_full_snapshot(storage, f"{number}.full", {"o": state}, range(128), progress)
                return msgspec.msgpack.encode(files["o"])

            child = ForkedWorker(work, silence_s=20)
            for key in range(500):
                counts.put(f"key {key}", -1)
            files = msgspec.msgpack.decode(child.result.result(timeout=60), type=list[StateFile])
            written = KeyedStateBackend(Types.STRING(), 128)
            for file in files:
                for message in read_messages(storage, file):
                    written.restore(message)
            assert set(written.value_table("count", Types.LONG()).snapshot().values()) == {number}
    producer.purge()


def test_child_sees_memory_of_fork() -> None:
    seen = [1]
    child = ForkedWorker(lambda progress: bytes(seen))
    seen[0] = 2
    assert child.result.result(timeout=60) == b"\x01"


def test_large_result_arrives_complete() -> None:
    assert ForkedWorker(lambda progress: bytes(3 << 20)).result.result(timeout=60) == bytes(3 << 20)


def test_progress_keeps_child_alive_and_silence_kills_it() -> None:
    def slow(progress: Callable[[], None]) -> bytes:
        for _ in range(30):
            threading.Event().wait(0.05)
            progress()
        return b"done"

    assert ForkedWorker(slow, silence_s=1).result.result(timeout=60) == b"done"
    hung = ForkedWorker(lambda progress: (threading.Event().wait() and b"") or b"", silence_s=0.3)
    with pytest.raises(TaskError, match="the writer made no progress"):
        hung.result.result(timeout=60)


def test_lock_of_other_thread_hangs_child_and_not_task() -> None:
    lock, held, free = threading.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            free.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work(progress: Callable[[], None]) -> bytes:
        with lock:
            return b""

    child = ForkedWorker(work, silence_s=0.3)
    with pytest.raises(TaskError, match="the writer made no progress"):
        child.result.result(timeout=60)
    free.set()
    thread.join()
    assert ForkedWorker(work).result.result(timeout=60) == b""


def test_failure_of_child_has_reason() -> None:
    def fail(progress: Callable[[], None]) -> bytes:
        raise ValueError("no such thing")

    def die(progress: Callable[[], None]) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(TaskError, match="could not be written: ValueError: no such thing"):
        ForkedWorker(fail).result.result(timeout=60)
    with pytest.raises(TaskError, match="the writer exited with status -9"):
        ForkedWorker(die).result.result(timeout=60)


def test_killed_child_ends() -> None:
    child = ForkedWorker(lambda progress: (threading.Event().wait() and b"") or b"")
    child.kill()
    with pytest.raises(TaskError, match="the writer exited with status -9"):
        child.result.result(timeout=60)


def test_failed_fork_is_reported_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fork() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    pipe, opened = os.pipe, dict[int, int]()

    def noted() -> tuple[int, int]:
        ends = pipe()
        opened.update({end: os.fstat(end).st_ino for end in ends})
        return ends

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", fork)
        patch.setattr(os, "pipe", noted)
        refused = ForkedWorker(lambda progress: b"")
    refused.kill()
    with pytest.raises(TaskError, match="no process: Resource temporarily unavailable"):
        refused.result.result(timeout=60)
    assert len(opened) == 2
    for end, inode in opened.items():
        # Another thread of the process may have been given the number since.
        with contextlib.suppress(OSError):
            assert os.fstat(end).st_ino != inode


def test_task_continues_without_child_if_descriptors_are_exhausted() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        refused = ForkedWorker(lambda progress: b"")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(TaskError, match="no process: Too many open files"):
        refused.result.result(timeout=60)
    assert ForkedWorker(lambda progress: b"done").result.result(timeout=60) == b"done"


def test_child_keeps_no_connection_of_parent_open(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    child = ForkedWorker(lambda progress: (threading.Event().wait() and b"") or b"")
    os.close(writer)
    assert os.read(reader, 1) == b"", "the end of the pipe is seen while the child lives"
    os.close(reader)
    child.kill()


def test_sections_have_declared_content(tmp_path: Path) -> None:
    state = KeyedStateBackend(Types.STRING(), 128)
    table = state.value_table("v", PICKLED)
    for key in range(3000):
        table.put(f"key {key}", os.urandom(1000))
    state.take_changes()
    files = write_full_snapshot(Storage(str(tmp_path)), "full", {"o": state}, range(128))["o"]
    ranges = [(file.first_key_group, file.last_key_group) for file in files if file.first_key_group >= 0]
    assert len(ranges) > 4
    assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
    restored = KeyedStateBackend(Types.STRING(), 128)
    for file in files:
        for message in read_messages(Storage(str(tmp_path)), file, "o"):
            restored.restore(message)
    assert restored.value_table("v", PICKLED).snapshot() == table.snapshot()
