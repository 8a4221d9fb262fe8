"""Blobs: PUT to and GET from a BlobServer over loopback, compared with a plain copy of the same file; 200 concurrent
connections.

The server runs in a process of its own. A PUT is synced to disk (fsync) before it is acknowledged, and so is the copy
that it is compared with; both sides of a transfer compute SHA-256, which the copy does not, hence `sha256_mib_per_s`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from _report import conditions, median, report
from _scale import scaled

from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.keys import BlobKey, compute_file_digest

MIB = 1 << 20
ROUNDS = scaled(5)
CONNECTIONS = scaled(200)
SMALL = 256 << 10

_SERVER = """
import sys, threading
from pathlib import Path
from tailrace.services.blobs.server import BlobServer
print(BlobServer(Path(sys.argv[1])).address, flush=True)
threading.Event().wait()
"""


@contextmanager
def _server(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-c", _SERVER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def _copy(source: Path, target: Path) -> None:
    """Copies through user space in pieces of a MiB, and syncs to disk: the minimum that a server has to do."""
    buffer = memoryview(bytearray(MIB))
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as written:
        while count := read.readinto(buffer):
            written.write(buffer[:count])
        os.fsync(written.fileno())


def _round(source: Path, directory: Path, address: str, job_id: str) -> dict[str, float]:
    """Returns the seconds of each step, for a file that the server does not have: present files are not sent again."""
    cache = BlobCache(directory / job_id, lambda: address)
    key = BlobKey(compute_file_digest(str(source))[0], job_id)
    with BlobClient(address) as client:
        put = _seconds(lambda: client.put_file(source, job_id))
    return {
        "put": put,
        "get": _seconds(lambda: cache.file(key)),
        "copy": _seconds(lambda: _copy(source, directory / "target")),
        "sha256": _seconds(lambda: compute_file_digest(str(source))),
    }


def _transfers(size_mib: int, directory: Path) -> dict[str, float]:
    source = directory / "source"
    rounds = []
    with _server(directory / "server") as address:
        for number in range(ROUNDS):
            source.write_bytes(os.urandom(size_mib * MIB))
            rounds.append(_round(source, directory, address, f"job-{number}"))
    return {f"{name}_mib_per_s": size_mib / median([row[name] for row in rounds]) for name in rounds[0]}


def _crowd(directory: Path) -> dict[str, float]:
    """All clients connect at the same time, put something, and get it back."""
    contents = [os.urandom(SMALL) for _ in range(CONNECTIONS)]
    errors = 0
    together = threading.Barrier(CONNECTIONS + 1)

    def one(number: int) -> bool:
        together.wait()
        with BlobClient(address, connect_timeout_s=60.0) as client:
            return client.get_bytes(client.put(contents[number], "job")) == contents[number]

    with _server(directory / "crowd") as address, ThreadPoolExecutor(CONNECTIONS) as pool:
        running = [pool.submit(one, number) for number in range(CONNECTIONS)]
        together.wait()
        start = time.perf_counter()
        for future in running:
            errors += future.exception() is not None or not future.result()
        took = time.perf_counter() - start
    return {
        "connections": CONNECTIONS,
        "connection_errors": errors,
        "connections_s": took,
        "connections_mib_per_s": 2 * CONNECTIONS * SMALL / MIB / took,
    }


def main() -> None:
    size_mib = int(sys.argv[1]) if len(sys.argv) > 1 else scaled(64)
    with tempfile.TemporaryDirectory(prefix="tailrace-blob-") as directory:
        figures = _transfers(size_mib, Path(directory)) | _crowd(Path(directory))
    report(
        "blob",
        figures,
        conditions(size_mib=size_mib, rounds=ROUNDS, small_kib=SMALL >> 10),
        {
            "put_mib_per_s": "file -> server's disk, checked on both sides, fsync",
            "get_mib_per_s": "server -> cache's disk, checked",
            "copy_mib_per_s": "plain copy of the same file, fsync: the raw limit",
            "sha256_mib_per_s": "reading it for its digest only",
            "connection_errors": "of connections that put and get 256 KiB at once: 0",
        },
    )


if __name__ == "__main__":
    main()
