"""BlobCache looks for a blob in its directory, then in the store, then on the server, and survives failures of each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services.blobs.conftest import StartServer
from services.blobs.raw_protocol import files_below

from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobNotFound, BlobUnavailable
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.local_blob_files import Incoming
from tailrace.services.blobs.server import BlobServer
from tailrace.services.blobs.store import FileSystemBlobStore, VoidBlobStore


def _put(server: BlobServer, content: bytes, job_id: str | None = "job") -> BlobKey:
    with BlobClient(server.address) as client:
        return client.put(content, job_id)


class _Counting(VoidBlobStore):
    """A store with one blob that counts requests, and blocks them until the test releases them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked = 0
        self.go_on = threading.Event()

    def get(self, key: BlobKey, into: Incoming) -> bool:
        self.asked += 1
        assert self.go_on.wait(60)
        into.write(self.content)
        return True


class _Down(VoidBlobStore):
    """A store that is unreachable."""

    def get(self, key: BlobKey, into: Incoming) -> bool:
        into.write(b"half of ")
        raise BlobUnavailable("the store is down")


@pytest.fixture
def cache_of(tmp_path: Path) -> Callable[..., BlobCache]:
    def make(server: Callable[[], str | None] = lambda: None, **options: object) -> BlobCache:
        return BlobCache(tmp_path / "cache", server, first_pause_s=0.01, **options)  # type: ignore[arg-type]

    return make


CacheOf = Callable[..., BlobCache]


def test_blob_is_fetched_from_server_once(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    key = _put(server, b"content")
    cache = cache_of(lambda: server.address)
    assert cache.file(key).read_bytes() == b"content"
    server.close()
    assert cache.file(key).read_bytes() == b"content"
    assert cache_of(lambda: None).file(key).read_bytes() == b"content", "also for the next process"


def test_corrupt_file_is_fetched_again(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    key = _put(server, b"content")
    cache = cache_of(lambda: server.address)
    for damaged in (b"", b"conteNt", b"longer than that"):
        cache.file(key).write_bytes(damaged)
        assert cache.file(key).read_bytes() == b"content"


def test_store_serves_blob_if_server_is_gone(start: StartServer, cache_of: CacheOf, tmp_path: Path) -> None:
    store = FileSystemBlobStore(str(tmp_path / "store"))
    server = start(store=store)
    key = _put(server, b"content")
    server.close()
    assert cache_of(lambda: server.address, store=store).file(key).read_bytes() == b"content"


def test_server_serves_blob_if_store_is_unreachable(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    key = _put(server, b"content")
    cache = cache_of(lambda: server.address, store=_Down())
    assert cache.file(key).read_bytes() == b"content"
    assert not [file for file in files_below(cache._files.directory) if file.startswith("incoming")]


def test_server_serves_blob_if_store_has_wrong_content(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    key = _put(server, b"content")
    store = _Counting(b"torn")
    store.go_on.set()
    assert cache_of(lambda: server.address, store=store).file(key).read_bytes() == b"content"


def test_cache_finds_server_at_new_address(start: StartServer, cache_of: CacheOf) -> None:
    """The leader has died; after a few retries another one serves the same directory."""
    first = start()
    key = _put(first, b"content")
    first.close()
    second = start()
    addresses = iter([None, first.address, first.address, second.address])
    assert cache_of(lambda: next(addresses)).file(key).read_bytes() == b"content"


def test_cache_gives_up_in_one_line_with_reason(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    server.close()
    with pytest.raises(BlobUnavailable, match=rf"after 3 tries: .*{server.address}.* can't be reached"):
        cache_of(lambda: server.address, retries=2).file(BlobKey("a" * 64, "job"))
    with pytest.raises(BlobUnavailable, match="no jobmanager"):
        cache_of(retries=0).file(BlobKey("a" * 64, "job"))


def test_blob_missing_everywhere_is_not_requested_again(start: StartServer, cache_of: CacheOf) -> None:
    asked = []
    server = start()

    def address() -> str:
        asked.append(1)
        return server.address

    with pytest.raises(BlobNotFound):
        cache_of(address).file(BlobKey("a" * 64, "job"))
    assert len(asked) == 1


def test_concurrent_threads_fetch_blob_once(cache_of: CacheOf) -> None:
    store = _Counting(b"content")
    cache = cache_of(store=store)
    key = BlobKey(compute_digest(b"content"), "job")
    with ThreadPoolExecutor(16) as pool:
        files = [pool.submit(cache.file, key) for _ in range(16)]
        store.go_on.set()
        assert {file.result().read_bytes() for file in files} == {b"content"}
    assert store.asked == 1


def test_oldest_blob_is_evicted_above_size_limit_unless_pinned(start: StartServer, cache_of: CacheOf) -> None:
    server = start()
    keys = [_put(server, bytes([number]) * 1000) for number in range(4)]
    cache = cache_of(lambda: server.address, size_limit=2500)
    cache.pin(keys[:1])
    for key in keys[:3]:
        cache.file(key)
    there = [cache._files.find(key) is not None for key in keys]
    assert there == [True, False, True, False]
    cache.unpin(keys[:1])
    cache.file(keys[3])
    there = [cache._files.find(key) is not None for key in keys]
    assert there == [False, False, True, True]
