"""`cluster verify` names missing and damaged blobs and checkpoints, and the job that needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import write_checkpoint
from immutables import Map

from tailrace.pipelines.checkpoint.metadata import files_of
from tailrace.schemas.types import EntryPoint, PythonFile, SnapshotType
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.cli.verification.job_checks import check_blobs, check_checkpoints
from tailrace.services.cli.verification.report import Findings, ResourceKind
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.history import HistoryProjection
from tailrace.services.history.checkpoint_history import (
    CheckpointHistory,
    CheckpointStatus,
    CheckpointsView,
    CheckpointView,
)

CONTENT = b"a large file"
KEY = BlobKey(compute_digest(CONTENT), "job-1")


def create_configuration(directory: Path) -> Configuration:
    return Configuration(
        {
            "cluster.id": "c",
            "home": str(directory),
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": str(directory / "ha"),
        }
    )


def fold_with_blob() -> HistoryProjection:
    """Returns the state of a cluster in which a program waits to be built whose file is a blob."""
    file = PythonFile(path="f.py", content=b"", blob=str(KEY))
    job = Job(
        "job-1",
        "client/me",
        Phase.BUILDING,
        0,
        entry_point=EntryPoint(target="f:main", arguments=(), python_files=(file,)),
    )
    fold = HistoryProjection()
    state = DispatcherState(jobs=Map({"job-1": job}))
    fold.replica.restore({DISPATCHER: state}, fold.replica.leadership, 0)
    return fold


def missing(path: Path) -> None:
    path.unlink()


def changed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def unchanged(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("harm", "quick", "problems"),
    [
        (unchanged, False, []),
        (missing, True, ["it does not exist"]),
        (changed, False, ["its SHA-256 is another"]),
        (changed, True, []),
    ],
)
def test_blobs_of_jobs_are_checked(
    tmp_path: Path, harm: Callable[[Path], None], quick: bool, problems: list[str]
) -> None:
    blob = tmp_path / "ha" / "c" / "blob" / "job_job-1" / f"blob_p-{KEY.digest}"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)
    harm(blob)
    found = Findings()
    check_blobs(create_configuration(tmp_path), fold_with_blob(), found, lambda: None, quick=quick)
    assert found.checked[ResourceKind.BLOB] == 1
    assert [(fault.name, fault.problem, fault.job_id) for fault in found.faults] == [
        (str(blob), problem, "job-1") for problem in problems
    ]


def view(uri: str, number: int, *, discarded: bool = False) -> CheckpointView:
    return CheckpointView(
        number, SnapshotType.CHECKPOINT, CheckpointStatus.COMPLETED, uri, 0, ended=1, discarded=discarded
    )


@pytest.mark.parametrize("harm", [unchanged, missing, changed])
def test_files_of_checkpoints_are_checked(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    job = str(tmp_path / "checkpoints" / "job-1")
    metadata = write_checkpoint(job, 2, own=["a"])
    fold = HistoryProjection()
    gone = f"{job}/chk-1"
    fold.checkpoints = CheckpointHistory.from_views(
        {
            "job-1": CheckpointsView(
                completed=2,
                checkpoints=(view(gone, 1, discarded=True), view(metadata.checkpoint.uri, 2)),
            )
        }
    )
    (file,) = {file.path for file in files_of(metadata)}
    harm(next(Path(job).rglob(Path(file).name)))
    found = Findings()
    check_checkpoints(fold, found, lambda: None, quick=False)
    assert found.checked[ResourceKind.CHECKPOINT] == 1
    assert [(fault.name, fault.job_id) for fault in found.faults] == (
        [] if harm is unchanged else [(metadata.checkpoint.uri, "job-1")]
    )


def test_checkpoint_without_metadata_is_named(tmp_path: Path) -> None:
    fold = HistoryProjection()
    uri = str(tmp_path / "chk-7")
    fold.checkpoints = CheckpointHistory.from_views(
        {"job-1": CheckpointsView(completed=1, checkpoints=(view(uri, 7),))}
    )
    found = Findings()
    check_checkpoints(fold, found, lambda: None, quick=True)
    (fault,) = found.faults
    assert "does not exist" in fault.problem
    assert "way back of job job-1 to checkpoint 7" in fault.lost
