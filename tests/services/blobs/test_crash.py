"""A BlobServer that is killed during an upload, and one that starts over the same directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polling import wait_until
from services.blobs.raw_protocol import RawConnection, files_below

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.protocol import CHUNK, Status


@contextmanager
def _server(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, str(Path(__file__).with_name("serving.py")), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_kill_during_upload_leaves_nothing_for_next_server(tmp_path: Path) -> None:
    directory = tmp_path / "blobs"
    content = bytes(2 * CHUNK)
    with _server(directory) as (process, address):
        with BlobClient(address) as client:
            whole = client.put(b"whole", "job")
        with RawConnection(address) as wire:
            wire.put(content)
            assert wire.answer().status is Status.SEND
            wire.frame(content[:CHUNK])
            wait_until(lambda: _size(directory) > CHUNK, "the upload is on disk, in part")
            process.kill()
            process.wait()
    assert len(files_below(directory / "incoming")) == 1
    with _server(directory) as (_, address), BlobClient(address) as client:
        assert files_below(directory) == [f"job_job/blob_p-{whole.digest}"]
        assert client.get_bytes(whole) == b"whole"
        assert client.put(content, "job") == BlobKey(compute_digest(content), "job")
        assert client.get_bytes(BlobKey(compute_digest(content), "job")) == content


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
