"""What a jobmanager deletes by itself: the blobs of jobs that have ended, wherever they are; nothing that is needed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import eventually

from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.errors import BlobUnavailable
from tailrace.services.blobs.garbage_collector import BlobKeeper, Fate, FateOf, orphans, server_of, store_of
from tailrace.services.blobs.server import BlobServer
from tailrace.services.blobs.store import FileSystemBlobStore, VoidBlobStore
from tailrace.services.configuration import Configuration

INTERVAL = 100.0


class Jobs:
    """What the log says."""

    def __init__(self) -> None:
        self.fates: dict[str, Fate] | None = {}

    def __call__(self) -> FateOf | None:
        fates = self.fates
        return None if fates is None else lambda job_id: fates.get(job_id, Fate.UNKNOWN)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def store(tmp_path: Path) -> FileSystemBlobStore:
    return FileSystemBlobStore(str(tmp_path / "store"))


@pytest.fixture
def keeper(tmp_path: Path, store: FileSystemBlobStore, jobs: Jobs) -> Iterator[BlobKeeper]:
    made = BlobKeeper(BlobServer(tmp_path / "server", store), store, INTERVAL, jobs)
    yield made
    made.close()


def put(keeper: BlobKeeper, *job_ids: str) -> None:
    for job_id in job_ids:
        keeper.depot.put(b"content of " + job_id.encode(), job_id)


def age(keeper: BlobKeeper, seconds: float) -> None:
    for each in keeper.depot.files.entries():
        os.utime(keeper.depot.files.path(each.key), (time.time() - seconds,) * 2)


def test_a_jobs_blobs_go_when_it_has_ended(
    keeper: BlobKeeper, store: FileSystemBlobStore, jobs: Jobs
) -> None:
    put(keeper, "over", "live", "new")
    jobs.fates = {"over": Fate.OVER, "live": Fate.LIVE}
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == store.jobs() == ["live", "new"]


def test_blobs_of_a_job_that_was_never_accepted_go_after_the_interval(keeper: BlobKeeper, jobs: Jobs) -> None:
    put(keeper, "never", "live")
    jobs.fates = {"live": Fate.LIVE}
    age(keeper, 2 * INTERVAL)
    put(keeper, "new")
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["live", "new"]


def test_a_blob_that_is_put_again_is_new(keeper: BlobKeeper) -> None:
    put(keeper, "again")
    age(keeper, 2 * INTERVAL)
    put(keeper, "again")
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["again"]


def test_nothing_is_deleted_before_the_log_was_read(keeper: BlobKeeper, jobs: Jobs) -> None:
    put(keeper, "job")
    age(keeper, 2 * INTERVAL)
    jobs.fates = None
    keeper.clean_up()
    assert sorted(keeper.depot.files.jobs()) == ["job"]


def test_what_another_jobmanager_has_put_into_the_store_goes_too(
    keeper: BlobKeeper, store: FileSystemBlobStore, jobs: Jobs, tmp_path: Path
) -> None:
    with BlobServer(tmp_path / "another", store) as another:
        another.depot.put(b"content", "over")
        another.depot.put(b"content", "live")
    jobs.fates = {"over": Fate.OVER, "live": Fate.LIVE}
    assert orphans(store, store.jobs(), jobs.fates.__getitem__, time.time()) == ["over"]
    keeper.clean_up()
    assert store.jobs() == ["live"]
    jobs.fates = {"live": Fate.OVER}
    keeper.clean_up()
    assert store.jobs() == []


def test_what_may_be_of_a_job_that_is_being_submitted_is_no_orphan(
    keeper: BlobKeeper, store: FileSystemBlobStore, jobs: Jobs
) -> None:
    put(keeper, "unknown", "over", "live")
    jobs.fates = {"over": Fate.OVER, "live": Fate.LIVE}
    fate = jobs()
    assert fate is not None
    now = time.time()
    assert orphans(store, store.jobs(), fate, now - INTERVAL) == ["over"]
    assert orphans(store, store.jobs(), fate, now + INTERVAL) == ["over", "unknown"]


def test_transient_blobs_go_after_the_interval(keeper: BlobKeeper, jobs: Jobs) -> None:
    jobs.fates = {"job": Fate.LIVE}
    keeper.depot.put(b"transient", "job", transient=True)
    keeper.depot.put(b"permanent", "job")
    age(keeper, 2 * INTERVAL)
    keeper.clean_up()
    assert [each.key.transient for each in keeper.depot.files.entries()] == [False]


def test_it_is_done_while_it_runs_and_at_its_end(keeper: BlobKeeper, jobs: Jobs) -> None:
    put(keeper, "first", "second")
    keeper.start()
    jobs.fates = {"first": Fate.OVER, "second": Fate.LIVE}
    eventually(lambda: sorted(keeper.depot.files.jobs()) == ["second"], "the ended job's blobs are gone")
    jobs.fates = {"second": Fate.OVER}
    keeper.close()
    assert keeper.depot.files.jobs() == {}


def test_a_server_is_as_configured(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "blob.size.max": "3 b", "cluster.id": "c"})
    with server_of(configuration) as server, BlobClient(server.address) as client:
        assert server.address.startswith("127.0.0.1:")
        client.put(b"abc", "job")
        assert (tmp_path / "blobs" / "c" / "server" / "job_job").is_dir()
        taken = configuration.replace({"blob.server.port": server.address.rpartition(":")[2]})
        with pytest.raises(BlobUnavailable, match=r"blob\.server\.port"):
            server_of(taken)


def test_there_is_a_store_with_high_availability_only(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path)})
    assert isinstance(store_of(configuration), VoidBlobStore)
    available = configuration.replace({"high-availability.type": "zookeeper"})
    store = store_of(available)
    assert isinstance(store, FileSystemBlobStore)
    (tmp_path / "file").write_bytes(b"abc")
    with server_of(available) as server:
        server.depot.put_file(tmp_path / "file", "job")
    assert (tmp_path / "ha" / "tailrace" / "blob" / "job_job").is_dir()


def test_of_several_ports_each_server_takes_one_that_is_free(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path), "cluster.id": "c"})
    with server_of(configuration) as one, server_of(configuration) as other:
        busy, wanted = (int(each.address.rpartition(":")[2]) for each in (one, other))
        other.close()
        both = configuration.replace({"blob.server.port": f"{busy},{wanted}"})
        with server_of(both) as third:
            assert third.address == other.address
            with pytest.raises(BlobUnavailable, match=rf"127\.0\.0\.1:{busy},{wanted} .*already in use"):
                server_of(both)
