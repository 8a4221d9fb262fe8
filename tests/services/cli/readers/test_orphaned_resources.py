"""What is kept of a cluster although its log has no use for it is found, with the reason, and can be removed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tailrace.schemas.types import JobStatus
from tailrace.services.cli.readers.orphaned_resources import (
    ClusterResources,
    Jobs,
    OrphanedResource,
    OrphanNotRemoved,
    find_orphaned_resources,
    list_resources,
    remove_orphan,
)
from tailrace.services.configuration import Configuration
from tailrace.services.election.zookeeper_nodes import RoleNodes

JOBS: Jobs = {"runs": JobStatus.RUNNING, "waits": JobStatus.SUSPENDED, "over": JobStatus.CANCELED}
END = 10
SOON_S = 0.3
LONG_AGO = time.time() - 2 * 3600


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """A ZooKeeper at which nobody listens."""
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


def test_all_that_is_there_is_looked_at_also_without_zookeeper(
    configuration: Configuration, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list_resources(configuration, timeout_s=SOON_S) == KEPT
    assert (
        "what is in ZooKeeper, and who stands by, is not known: ZooKeeper at 127.0.0.1:1"
        in capsys.readouterr().err
    )


def test_where_nothing_is_nothing_is_found(tmp_path: Path) -> None:
    configuration = Configuration({"home": str(tmp_path)})
    assert list_resources(configuration, timeout_s=SOON_S) == ClusterResources()
    assert find_orphaned_resources(configuration, ClusterResources(), JOBS, END) == []


def test_what_no_job_of_the_log_needs_is_an_orphan_but_what_is_being_submitted(
    configuration: Configuration, base: Path
) -> None:
    found = find_orphaned_resources(configuration, KEPT, JOBS, END)
    assert [(each.kind, each.reason, each.job_id, each.offset) for each in found] == [
        ("blobs", "job over has ended", "over", None),
        ("blobs", "the log knows no job rejected", "rejected", None),
        ("snapshot", "it reaches offset 11, and the log ends at 10", None, 11),
    ]
    assert [Path(each.path.removeprefix("file://")).exists() for each in found] == [True] * 3


def test_nodes_are_named_with_the_rest(configuration: Configuration) -> None:
    nodes = (
        RoleNodes("job_master/over", (), None, ("/tailrace/c/leaderlatch/over",)),
        RoleNodes("job_master/runs", (), None, ("/tailrace/c/leaderlatch/runs",)),
        RoleNodes("dispatcher", (), None),
    )
    assert find_orphaned_resources(configuration, ClusterResources(nodes), JOBS, END) == [
        OrphanedResource("node", "/tailrace/c/leaderlatch/over", "job over has ended")
    ]


def test_what_was_removed_is_gone_and_nothing_else_is(configuration: Configuration, base: Path) -> None:
    found = find_orphaned_resources(configuration, KEPT, JOBS, END)
    for _ in range(2):
        remove_orphan(configuration, found)
        assert (
            find_orphaned_resources(configuration, list_resources(configuration, timeout_s=SOON_S), JOBS, END)
            == []
        )
        assert sorted(each.name for each in (base / "blob").glob("job_*")) == [
            "job_runs",
            "job_submitted",
            "job_waits",
        ]
        assert len(list((base / "snapshots").iterdir())) == 2


def test_what_can_be_removed_goes_where_zookeeper_does_not_answer(
    configuration: Configuration, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_orphaned_resources(configuration, KEPT, JOBS, END)
    node = OrphanedResource("node", "/tailrace/c/leaderlatch/over", "job over has ended")
    with pytest.raises(OrphanNotRemoved, match=r"ZooKeeper at 127\.0\.0\.1:1 did not remove orphans"):
        remove_orphan(configuration, [node, *found], timeout_s=SOON_S)
    assert find_orphaned_resources(configuration, KEPT, JOBS, END)[-1].kind == "snapshot"
    assert list_resources(configuration, timeout_s=SOON_S).snapshots == (10, 9)
