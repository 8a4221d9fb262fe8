"""Resources of a cluster that its log does not need are found, with the reason, and can be removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tailrace.schemas.types import JobStatus
from tailrace.services.cli.readers.orphaned_resources import (
    ClusterResources,
    Jobs,
    find_orphaned_resources,
    list_resources,
    remove_orphan,
)
from tailrace.services.configuration import Configuration

JOBS: Jobs = {"runs": JobStatus.RUNNING, "waits": JobStatus.SUSPENDED, "over": JobStatus.CANCELED}
END = 10
SOON_S = 0.3
LONG_AGO = time.time() - 2 * 3600


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Returns a configuration with a ZooKeeper address where nobody listens."""
    return Configuration(
        {
            "home": str(tmp_path),
            "cluster.id": "c",
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": "127.0.0.1:1",
        }
    )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "ha" / "c"
    for job in (*JOBS, "rejected", "submitted"):
        blob = base / "blob" / f"job_{job}" / f"blob_p-{'0' * 64}"
        blob.parent.mkdir(parents=True)
        blob.write_bytes(b"any")
        if job != "submitted":
            os.utime(blob, (LONG_AGO, LONG_AGO))
    (base / "snapshots").mkdir()
    for offset in (9, 10, 11):
        (base / "snapshots" / f"{offset:020}.snapshot").write_bytes(b"any")
    return base


KEPT = ClusterResources(blobs=("over", "rejected", "runs", "submitted", "waits"), snapshots=(11, 10, 9))


def test_all_resources_are_searched_also_without_zookeeper(
    configuration: Configuration, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list_resources(configuration, timeout_s=SOON_S) == KEPT
    assert "which masters stand by is not known: ZooKeeper at 127.0.0.1:1" in capsys.readouterr().err


def test_nothing_is_found_where_nothing_exists(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path)})
    assert list_resources(configuration, timeout_s=SOON_S) == ClusterResources()
    assert find_orphaned_resources(configuration, ClusterResources(), JOBS, END) == []


def test_resource_that_no_job_needs_is_orphan_except_submission_in_progress(
    configuration: Configuration, base: Path
) -> None:
    orphans = find_orphaned_resources(configuration, KEPT, JOBS, END)
    assert [(orphan.kind, orphan.reason, orphan.job_id, orphan.offset) for orphan in orphans] == [
        ("blobs", "job over has ended", "over", None),
        ("blobs", "job rejected is forgotten, or was never accepted", "rejected", None),
        ("snapshot", "it reaches offset 11, and the log ends at 10", None, 11),
    ]
    assert [Path(orphan.path.removeprefix("file://")).exists() for orphan in orphans] == [True] * 3


def test_removal_removes_exactly_the_orphans(configuration: Configuration, base: Path) -> None:
    orphans = find_orphaned_resources(configuration, KEPT, JOBS, END)
    for _ in range(2):
        remove_orphan(configuration, orphans)
        assert (
            find_orphaned_resources(configuration, list_resources(configuration, timeout_s=SOON_S), JOBS, END)
            == []
        )
        assert sorted(path.name for path in (base / "blob").glob("job_*")) == [
            "job_runs",
            "job_submitted",
            "job_waits",
        ]
        assert len(list((base / "snapshots").iterdir())) == 2
