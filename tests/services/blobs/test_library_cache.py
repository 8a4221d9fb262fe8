"""Reference counts of jobs and tasks: blobs in use are kept, unused ones are deleted after a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.errors import BlobUnavailable
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.library_cache import BlobLibraryCacheManager
from tailrace.services.blobs.local_blob_files import Incoming
from tailrace.services.blobs.store import VoidBlobStore

INTERVAL = 10.0


class _Everything(VoidBlobStore):
    """A cache that has any requested blob with one of these contents."""

    contents = {compute_digest(content): content for content in (b"one", b"two", b"three")}

    def get(self, key: BlobKey, into: Incoming) -> bool:
        if key.digest in self.contents:
            into.write(self.contents[key.digest])
        return key.digest in self.contents


def _keys(job_id: str) -> list[BlobKey]:
    return [BlobKey(digest, job_id) for digest in _Everything.contents]


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _manager(directory: Path, clock: _Clock) -> BlobLibraryCacheManager:
    return BlobLibraryCacheManager(
        BlobCache(directory, lambda: None, _Everything(), retries=0), INTERVAL, clock
    )


def test_blobs_of_job_are_kept_until_interval_after_its_last_task(tmp_path: Path) -> None:
    clock = _Clock()
    manager = _manager(tmp_path, clock)
    first = manager.register_task("job", "a", _keys("job"))
    assert manager.register_task("job", "b", _keys("job")[:1]) == {_keys("job")[0]: first[_keys("job")[0]]}
    manager.unregister_task("job", "a")
    clock.now += 2 * INTERVAL
    manager.clean_up()
    assert all(path.exists() for path in first.values())
    manager.unregister_task("job", "b")
    manager.unregister_task("job", "b")
    clock.now += INTERVAL / 2
    manager.clean_up()
    assert all(path.exists() for path in first.values())
    clock.now += INTERVAL
    manager.clean_up()
    assert not any(path.exists() for path in first.values())


def test_task_with_unavailable_blobs_is_not_registered(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, lambda: None, _Everything(), retries=0)
    manager = BlobLibraryCacheManager(cache, INTERVAL)
    with pytest.raises(BlobUnavailable, match="can't be fetched"):
        manager.register_task("job", "a", [*_keys("job"), BlobKey("a" * 64, "job")])
    assert manager.references("job") == 0


def test_files_of_earlier_process_are_deleted_after_interval(tmp_path: Path) -> None:
    clock = _Clock()
    rest = _manager(tmp_path, clock).register_task("job", "a", _keys("job"))
    manager = _manager(tmp_path, clock)
    manager.clean_up()
    assert all(path.exists() for path in rest.values())
    clock.now += INTERVAL
    manager.clean_up()
    assert not any(path.exists() for path in rest.values())


class ReferenceCounts(RuleBasedStateMachine):
    """Tasks of three jobs come and go in any order, also twice; compared with a simple count."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        self.clock = _Clock()
        self.manager = _manager(Path(self.directory.name), self.clock)
        self.tasks: set[tuple[str, str]] = set()
        self.free_since: dict[str, float] = {}

    @rule(job=st.sampled_from("xyz"), task=st.sampled_from("abc"), count=st.integers(1, 3))
    def comes(self, job: str, task: str, count: int) -> None:
        paths = self.manager.register_task(job, task, _keys(job)[:count])
        assert all(path.exists() for path in paths.values())
        self.tasks.add((job, task))
        self.free_since.pop(job, None)

    @rule(job=st.sampled_from("xyz"), task=st.sampled_from("abc"))
    def goes(self, job: str, task: str) -> None:
        self.manager.unregister_task(job, task)
        if (job, task) in self.tasks:
            self.tasks.remove((job, task))
            if not any(item == job for item, _ in self.tasks):
                self.free_since[job] = self.clock.now

    @rule(seconds=st.sampled_from([1.0, INTERVAL / 2, INTERVAL]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.manager.clean_up()
        over = [job for job, since in self.free_since.items() if since + INTERVAL <= self.clock.now]
        for job in over:
            del self.free_since[job]
            assert not (Path(self.directory.name) / f"job_{job}").exists()

    @invariant()
    def registered_tasks_are_counted(self) -> None:
        for job in "xyz":
            assert self.manager.references(job) == sum(item == job for item, _ in self.tasks)
        for job in {element for element, _ in self.tasks} | set(self.free_since):
            assert (Path(self.directory.name) / f"job_{job}").exists()

    def teardown(self) -> None:
        self.directory.cleanup()


TestReferenceCounts = ReferenceCounts.TestCase
TestReferenceCounts.settings = settings(max_examples=40, stateful_step_count=25)
