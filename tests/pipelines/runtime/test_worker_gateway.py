"""Through the gateway a worker reaches the sockets of its TaskExecutor, with the token only, and nothing else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tailrace.pipelines.runtime.spark.worker_connections import connect
from tailrace.pipelines.runtime.task_runtime.worker_gateway import WorkerGateway

SENT = b"x" * 1_000_000


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[WorkerGateway]:
    running = WorkerGateway("127.0.0.1", tmp_path)
    yield running
    running.close()


def test_bytes_and_ends_pass_gateway_both_ways(gateway: WorkerGateway, tmp_path: Path) -> None:
    received = bytearray()

    def read() -> None:
        task, _ = listener.accept()
        with task:
            while data := task.recv(1 << 16):
                received.extend(data)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "task"))
        listener.listen()
        reading = threading.Thread(target=read)
        reading.start()
        with connect(str(tmp_path / "task"), gateway.address) as worker:
            worker.sendall(SENT)
            worker.shutdown(socket.SHUT_WR)
            assert worker.recv(1) == b"", "the task has read everything, and has closed its side"
        reading.join()
    assert bytes(received) == SENT


def test_gateway_refuses_wrong_token_and_paths_that_are_not_its_own(
    gateway: WorkerGateway, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "other" / "task"))
        listener.listen()
        wrong = replace(gateway.address, token=bytes(32))
        for address, path in (
            (wrong, tmp_path / "task"),
            (gateway.address, tmp_path / "nobody"),
            (gateway.address, tmp_path / "other" / "task"),
        ):
            with pytest.raises(ConnectionError):
                connect(str(path), address)
