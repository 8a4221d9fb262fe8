"""A jobmanager deletes the blobs of ended jobs in all stores, and nothing that is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobUnavailable
from tailrace.services.blobs.garbage_collector import (
    BlobGarbageCollector,
    JobPhase,
    JobPhaseFor,
    create_server,
    create_store,
    find_orphans,
)
from tailrace.services.blobs.server import BlobServer
from tailrace.services.blobs.store import FileSystemBlobStore, VoidBlobStore
from tailrace.services.configuration import Configuration

INTERVAL = 100.0


class Jobs:
    """The jobs according to the log."""

    def __init__(self) -> None:
        self.fates: dict[str, JobPhase] | None = {}

    def __call__(self) -> JobPhaseFor | None:
        fates = self.fates
        return None if fates is None else lambda job_id: fates.get(job_id, JobPhase.UNKNOWN)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def store(tmp_path: Path) -> FileSystemBlobStore:
    return FileSystemBlobStore(str(tmp_path / "store"))


@pytest.fixture
def keeper(tmp_path: Path, store: FileSystemBlobStore, jobs: Jobs) -> Iterator[BlobGarbageCollector]:
    made = BlobGarbageCollector(BlobServer(tmp_path / "server", store), store, INTERVAL, jobs)
    yield made
    made.close()


def put(keeper: BlobGarbageCollector, *job_ids: str) -> None:
    for job_id in job_ids:
        keeper.depot.put(b"content of " + job_id.encode(), job_id)


def age(keeper: BlobGarbageCollector, seconds: float) -> None:
    for entry in keeper.depot.files.entries():
        os.utime(keeper.depot.files.path(entry.key), (time.time() - seconds,) * 2)


def test_blobs_of_ended_job_are_deleted(
    keeper: BlobGarbageCollector, store: FileSystemBlobStore, jobs: Jobs
) -> None:
    put(keeper, "over", "live", "new")
    jobs.fates = {"over": JobPhase.OVER, "live": JobPhase.LIVE}
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == store.jobs() == ["live", "new"]


def test_blobs_of_job_that_was_never_accepted_are_deleted_after_interval(
    keeper: BlobGarbageCollector, jobs: Jobs
) -> None:
    put(keeper, "never", "live")
    jobs.fates = {"live": JobPhase.LIVE}
    age(keeper, 2 * INTERVAL)
    put(keeper, "new")
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["live", "new"]


def test_uploading_blob_again_renews_it(keeper: BlobGarbageCollector) -> None:
    put(keeper, "again")
    age(keeper, 2 * INTERVAL)
    put(keeper, "again")
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["again"]


def test_nothing_is_deleted_before_log_is_read(keeper: BlobGarbageCollector, jobs: Jobs) -> None:
    put(keeper, "job")
    age(keeper, 2 * INTERVAL)
    jobs.fates = None
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["job"]


def test_blobs_of_other_jobmanager_in_store_are_deleted_too(
    keeper: BlobGarbageCollector, store: FileSystemBlobStore, jobs: Jobs, tmp_path: Path
) -> None:
    with BlobServer(tmp_path / "another", store) as another:
        another.depot.put(b"content", "over")
        another.depot.put(b"content", "live")
    jobs.fates = {"over": JobPhase.OVER, "live": JobPhase.LIVE}
    assert find_orphans(store, store.jobs(), jobs.fates.__getitem__, time.time()) == ["over"]
    keeper.clean_up()
    assert store.jobs() == ["live"]
    jobs.fates = {"live": JobPhase.OVER}
    keeper.clean_up()
    assert store.jobs() == []


def test_blobs_of_forgotten_jobs_are_deleted_here_and_in_store(
    keeper: BlobGarbageCollector, store: FileSystemBlobStore, tmp_path: Path
) -> None:
    put(keeper, "here", "there", "other")
    other = BlobGarbageCollector(BlobServer(tmp_path / "other", store), store, INTERVAL, lambda: None)
    try:
        other.delete_jobs(["there", "of-no-blobs"])
        assert store.jobs() == ["here", "other"]
        keeper.delete_jobs(["here", "there"])
    finally:
        other.close()
    assert store.jobs() == ["other"]
    assert list(keeper.depot.files.jobs()) == ["other"]


def test_blob_of_possible_submission_is_no_orphan(
    keeper: BlobGarbageCollector, store: FileSystemBlobStore, jobs: Jobs
) -> None:
    put(keeper, "unknown", "over", "live")
    jobs.fates = {"over": JobPhase.OVER, "live": JobPhase.LIVE}
    fate = jobs()
    assert fate is not None
    now = time.time()
    assert find_orphans(store, store.jobs(), fate, now - INTERVAL) == ["over"]
    assert find_orphans(store, store.jobs(), fate, now + INTERVAL) == ["over", "unknown"]


def test_collector_runs_periodically_and_at_close(keeper: BlobGarbageCollector, jobs: Jobs) -> None:
    put(keeper, "first", "second")
    keeper.start()
    jobs.fates = {"first": JobPhase.OVER, "second": JobPhase.LIVE}
    wait_until(lambda: sorted(keeper.depot.files.jobs()) == ["second"], "the ended job's blobs are gone")
    jobs.fates = {"second": JobPhase.OVER}
    keeper.close()
    assert keeper.depot.files.jobs() == {}


def test_server_follows_configuration(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "blob.size.max": "3 b", "cluster.id": "c"})
    with create_server(configuration) as server, BlobClient(server.address) as client:
        assert server.address.startswith("127.0.0.1:")
        client.put(b"abc", "job")
        assert (tmp_path / "blobs" / "c" / "server" / "job_job").is_dir()
        taken = configuration.replace({"blob.server.port": server.address.rpartition(":")[2]})
        with pytest.raises(BlobUnavailable, match=r"blob\.server\.port"):
            create_server(taken)


def test_store_exists_only_with_high_availability(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path)})
    assert isinstance(create_store(configuration), VoidBlobStore)
    available = configuration.replace({"high-availability.type": "zookeeper"})
    store = create_store(available)
    assert isinstance(store, FileSystemBlobStore)
    with create_server(available) as server:
        server.depot.put(b"abc", "job")
    assert (tmp_path / "ha" / "tailrace" / "blob" / "job_job").is_dir()


def test_each_server_takes_free_port_of_range(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "cluster.id": "c"})
    with create_server(configuration) as one, create_server(configuration) as other:
        busy, wanted = (int(server.address.rpartition(":")[2]) for server in (one, other))
        other.close()
        both = configuration.replace({"blob.server.port": f"{busy},{wanted}"})
        with create_server(both) as third:
            assert third.address == other.address
            with pytest.raises(BlobUnavailable, match=rf"127\.0\.0\.1:{busy},{wanted} .*already in use"):
                create_server(both)
