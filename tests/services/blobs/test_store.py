"""The store behind the servers: local path and fsspec file system follow the same laws."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from services.blobs.conftest import StartServer

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobUnavailable
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.local_blob_files import BlobFiles
from tailrace.services.blobs.store import FileSystemBlobStore


@pytest.fixture(params=["local", "memory"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield f"file://{tmp_path / 'store'}"
        return
    import fsspec

    place = f"memory://{uuid.uuid4().hex}"
    yield f"{place}/store"
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(place.removeprefix("memory:/"), recursive=True)


@pytest.mark.parametrize("size", [0, 1, 5 << 20, 8 << 20])
def test_stored_blob_is_read(uri: str, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    key = BlobKey(compute_digest(content), "job")
    (tmp_path / "file").write_bytes(content)
    FileSystemBlobStore(uri).put(key, tmp_path / "file")
    FileSystemBlobStore(uri).put(key, tmp_path / "file")
    with BlobFiles(tmp_path / "files", durable=False).incoming() as incoming:
        assert FileSystemBlobStore(uri).get(key, incoming)
        assert incoming.publish(key, size).read_bytes() == content


def test_missing_blob_is_not_found(uri: str, tmp_path: Path) -> None:
    with BlobFiles(tmp_path / "files", durable=False).incoming() as incoming:
        assert not FileSystemBlobStore(uri).get(BlobKey("a" * 64, "job"), incoming)


def test_blobs_of_job_are_listed_and_deleted_with_it(uri: str, tmp_path: Path) -> None:
    store = FileSystemBlobStore(uri)
    assert store.jobs() == []
    (tmp_path / "file").write_bytes(b"content")
    for job_id in ("b", "a"):
        store.put(BlobKey(compute_digest(b"content"), job_id), tmp_path / "file")
    assert store.jobs() == ["a", "b"]
    assert abs((store.last_written("a") or 0.0) - time.time()) < 60
    assert store.last_written("never was") is None
    store.delete_job("a")
    store.delete_job("never was")
    assert store.jobs() == ["b"]


def test_other_server_reads_blob_from_store(start: StartServer, uri: str, tmp_path: Path) -> None:
    first = start(tmp_path / "first", FileSystemBlobStore(uri))
    with BlobClient(first.address) as client:
        key = client.put(b"content", "job")
    first.close()
    second = start(tmp_path / "second", FileSystemBlobStore(uri))
    with BlobClient(second.address) as client:
        assert client.get_bytes(key) == b"content"
    second.depot.delete_job("job")
    assert FileSystemBlobStore(uri).jobs() == []


def test_corrupt_blob_on_disk_of_server_is_replaced_from_store(start: StartServer, uri: str) -> None:
    server = start(store=FileSystemBlobStore(uri))
    with BlobClient(server.address) as client:
        key = client.put(b"content", "job")
        server.depot.file(key).write_bytes(b"damaged")
        assert client.get_bytes(key) == b"content"


def test_upload_that_cannot_be_stored_is_not_acknowledged(start: StartServer, tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"a file where a directory would have to be")
    server = start(store=FileSystemBlobStore(str(tmp_path / "store")))
    with BlobClient(server.address) as client, pytest.raises(BlobUnavailable, match="can't be stored"):
        client.put(b"content", "job")
