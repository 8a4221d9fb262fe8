"""Deletion of a savepoint removes all of it, and nothing else."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest

from tailrace.schemas import dispatcher
from tailrace.schemas.types import SnapshotType
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher.checkpoints import DisposeSavepoint
from tailrace.services.dispatcher.savepoints import DisposalResult, dispose_savepoint
from tailrace.services.dispatcher.shell import DispatcherShell
from tailrace.services.dispatcher.state import DispatcherState

from ..savepoint_files import save
from .test_shell import Submissions


@pytest.mark.parametrize("as_uri", [True, False])
def test_savepoint_is_deleted_with_its_directory(tmp_path: Path, as_uri: bool) -> None:
    directory = tmp_path / "savepoint-clicks-1"
    save(str(directory))
    assert dispose_savepoint(f"file://{directory}" if as_uri else str(directory)) == DisposalResult()
    assert not directory.exists()
    assert tmp_path.exists()


def test_other_files_in_directory_stay_and_are_named(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    save(str(directory))
    (directory / "thesis.txt").write_text("years")
    (directory / "photos").mkdir()
    for number in range(20):
        (directory / "photos" / f"{number}.jpg").touch()
    assert dispose_savepoint(str(directory)) == DisposalResult(left=("thesis.txt", "photos/"))
    assert sorted(path.name for path in directory.iterdir()) == ["photos", "thesis.txt"]
    assert len(list((directory / "photos").iterdir())) == 20
    failure = dispose_savepoint(str(directory)).failure
    assert failure is not None
    assert "it has no _metadata" in failure
    for number in range(20):
        (directory / f"{number}").touch()
    save(str(directory))
    assert len(dispose_savepoint(str(directory)).left) == 10


def test_directory_without_savepoint_stays(tmp_path: Path) -> None:
    stranger = tmp_path / "precious"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("years")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "_metadata").write_bytes(b"\x00\x01 of somebody else")
    save(str(tmp_path / "torn"))
    whole = (tmp_path / "torn" / "_metadata").read_bytes()
    (tmp_path / "torn" / "_metadata").write_bytes(whole[:-1])
    save(str(tmp_path / "job" / "chk-3"), SnapshotType.CHECKPOINT)
    before = sorted(tmp_path.rglob("*"))
    for name, why in {
        "precious": "it has no _metadata",
        "nowhere": "it does not exist",
        "other": "was not written by tailrace",
        "torn": "is truncated",
        "job/chk-3": "is a checkpoint of job clicks-1a2b3c, not a savepoint",
    }.items():
        failure = dispose_savepoint(str(tmp_path / name)).failure
        assert failure is not None
        assert why in failure
        assert str(tmp_path / name) in failure
        assert "\n" not in failure
    assert sorted(tmp_path.rglob("*")) == before


def test_interrupted_deletion_can_be_repeated(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    save(str(directory))
    (directory / "count-0").unlink()
    assert dispose_savepoint(str(directory)) == DisposalResult()
    assert not directory.exists()


def test_shell_reports_result_of_each_request_once(tmp_path: Path) -> None:
    save(str(tmp_path / "s"))
    (tmp_path / "s" / "note").touch()
    sent: queue.Queue[tuple[str, OutgoingEvent]] = queue.Queue()
    submissions: Any = Submissions()
    shell = DispatcherShell(lambda who, owed: sent.put((who, owed)), submissions)
    demands = [DisposeSavepoint(f"file://{tmp_path}/s", 7), DisposeSavepoint(f"file://{tmp_path}/x", 8)]
    try:
        for _ in range(2):
            shell.perform("dispatcher", demands, DispatcherState())
        events = [sent.get(timeout=90) for _ in demands]
    finally:
        shell.close()
    assert sent.empty()
    assert [who for who, _ in events] == ["dispatcher"] * 2
    bodies = [owed.body for _, owed in events]
    assert bodies[0] == dispatcher.SavepointDisposed(path=f"file://{tmp_path}/s", request=7, left=("note",))
    assert isinstance(bodies[1], dispatcher.SavepointDisposed)
    assert bodies[1].failure == f"{tmp_path}/x is not a checkpoint or savepoint: it does not exist"
    assert [(owed.recipient, owed.cause) for _, owed in events] == [("dispatcher", 7), ("dispatcher", 8)]


@pytest.mark.parametrize("elected", [6, 8])
def test_savepoint_deleted_by_earlier_leader_counts_as_deleted(tmp_path: Path, elected: int) -> None:
    """The leader died between the deletion and its report; in a request of this term the savepoint never existed."""
    events: queue.Queue[OutgoingEvent] = queue.Queue()
    submissions: Any = Submissions()
    shell = DispatcherShell(lambda _, owed: events.put(owed), submissions, elected=elected)
    try:
        shell.perform(
            "dispatcher", [DisposeSavepoint(f"file://{tmp_path}/s/_metadata", 7)], DispatcherState()
        )
        body = events.get(timeout=90).body
    finally:
        shell.close()
    assert isinstance(body, dispatcher.SavepointDisposed)
    assert (body.failure is None) == (elected > 7)


@pytest.mark.parametrize("owner", ["", "pay", "search"])
@pytest.mark.parametrize("tenant", ["", "pay"])
def test_tenant_deletes_savepoints_of_its_own_jobs_only(tmp_path: Path, owner: str, tenant: str) -> None:
    directory = tmp_path / "s"
    save(str(directory), tenant=owner)
    failure = dispose_savepoint(str(directory), tenant=tenant).failure
    if tenant and owner != tenant:
        assert failure == f"{directory} is no savepoint of tenant pay: ask the operator to delete it"
    else:
        assert failure is None
    assert directory.exists() == (failure is not None)


def test_location_that_is_no_savepoint_is_rejected_even_if_it_may_be_gone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    assert "it has no _metadata" in (dispose_savepoint(str(tmp_path), may_be_gone=True).failure or "")
