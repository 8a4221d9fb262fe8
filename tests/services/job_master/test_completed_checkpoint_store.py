"""CompletedCheckpointStore on real files: storage first, no loss, the newest intact checkpoint."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import pipeline, plain
from immutables import Map
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.infra.storage import local_files
from tailrace.infra.storage.errors import CorruptFile, StorageError
from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.layout import METADATA
from tailrace.pipelines.checkpoint.metadata import read_metadata, verify
from tailrace.schemas import job_master
from tailrace.schemas.types import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointOptions,
    CompletedCheckpoint,
    OperatorState,
    RestoredCheckpoint,
    SnapshotType,
    SubtaskAcknowledgement,
    SubtaskState,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.checkpoints import completed_checkpoint_store as stores
from tailrace.services.job_master.checkpoints import shell as module
from tailrace.services.job_master.checkpoints.completed_checkpoint_store import (
    CompletedCheckpointStore,
    UnusableCheckpoint,
)
from tailrace.services.job_master.checkpoints.pending_checkpoint import PendingCheckpoint
from tailrace.services.job_master.checkpoints.shell import CheckpointShell, Demand
from tailrace.services.job_master.instructions import (
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)

GRAPH = pipeline(1, 1)


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Returns the job's directory."""
    return str(tmp_path / "checkpoints" / "job")


@pytest.fixture
def store() -> CompletedCheckpointStore:
    return CompletedCheckpointStore()


def acknowledged(job: str, number: int, *shared: str, generation: int = 0) -> PendingCheckpoint:
    """Returns an acknowledged checkpoint of the job; its source had finished."""
    storage = Storage.open(job)
    files = []
    for name in shared:
        storage.delete(f"shared/{name}")
        files.append(plain(storage, f"shared/{name}", "reduce", name.encode()))
    files.append(plain(storage, f"chk-{number}/own", "reduce", b"own"))
    state = SubtaskState(operators={"reduce": OperatorState(files=tuple(files))}, size=10)
    options = CheckpointOptions(
        snapshot_type=SnapshotType.CHECKPOINT, directory=f"{job}/chk-{number}", shared=f"{job}/shared"
    )
    return PendingCheckpoint(
        checkpoint_id=number,
        options=options,
        triggered=number,
        cause=number,
        generation=generation,
        acknowledged=Map(
            {
                ("reduce", 0): SubtaskAcknowledgement(
                    execution_attempt_id="attempt", metrics=CheckpointMetrics(), subtask_state=state
                )
            }
        ),
        finished=Map({("source", 0): None}),
    )


def to_go_back_to(*completed: CompletedCheckpoint) -> tuple[RestoredCheckpoint, ...]:
    """Returns candidates for a restore, newest first."""
    return tuple(
        RestoredCheckpoint(
            checkpoint_id=checkpoint.checkpoint_id, uri=checkpoint.uri, generation=checkpoint.generation
        )
        for checkpoint in reversed(completed)
    )


def add(store: CompletedCheckpointStore, job: str, number: int, *shared: str) -> CompletedCheckpoint:
    return store.add("job", GRAPH, acknowledged(job, number, *shared))


def test_added_checkpoint_is_found_with_finished_subtasks(store: CompletedCheckpointStore, job: str) -> None:
    first, second = add(store, job, 1, "a"), add(store, job, 2, "a")
    checkpoint = CompletedCheckpointStore().recover(GRAPH, to_go_back_to(first, second))
    assert checkpoint.checkpoint == to_go_back_to(second)[0]
    assert (checkpoint.finished, checkpoint.passed_over) == ({"source": (0,)}, {})
    metadata = read_metadata(second.uri)
    assert (metadata.job_id, metadata.triggered, metadata.checkpoint) == ("job", 2, second)
    assert second.size == 10


def test_accumulators_of_finished_subtasks_are_found_and_nothing_else(
    store: CompletedCheckpointStore, job: str
) -> None:
    pending = acknowledged(job, 1)
    (vertex,) = pending.acknowledged
    part = pending.acknowledged[vertex]
    stops = replace(part, subtask_state=replace(part.subtask_state, stops=True, accumulators={"n": 100.0}))
    pending = replace(
        pending,
        acknowledged=pending.acknowledged.set(vertex, stops),
        finished=Map({("source", 0): None, ("source", 1): None, ("source", 2): None}),
    )
    added = store.add(
        "job",
        pipeline(3, 1),
        pending,
        {("source", 0): {"n": 1.0, "m": 2.0}, ("source", 2): {"n": 5.0}},
    )
    for graph in (pipeline(3, 1), pipeline(7, 2)):
        checkpoint = CompletedCheckpointStore().recover(graph, to_go_back_to(added))
        assert checkpoint.accumulators == {"m": 2.0, "n": 6.0}


def test_second_add_does_nothing(store: CompletedCheckpointStore, job: str) -> None:
    pending = acknowledged(job, 1)
    assert store.add("job", GRAPH, pending) == CompletedCheckpointStore().add("job", GRAPH, pending)


def test_failed_add_loses_nothing(
    store: CompletedCheckpointStore, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = add(store, job, 1, "a")
    pending = acknowledged(job, 2, "b")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_files, "write_all", full)
    with pytest.raises(StorageError, match="No space left"):
        store.add("job", GRAPH, pending)
    monkeypatch.undo()
    assert store.recover(GRAPH, to_go_back_to(first)).checkpoint.checkpoint_id == 1
    assert store.add("job", GRAPH, pending).checkpoint_id == 2


def test_checkpoint_with_missing_files_is_not_complete(store: CompletedCheckpointStore, job: str) -> None:
    pending = acknowledged(job, 1, "a", "b")
    Storage.open(job).delete("shared/a")
    with pytest.raises(CorruptFile, match="shared/a does not exist"):
        store.add("job", GRAPH, pending)
    assert Storage.open(job).size(f"chk-1/{METADATA}") is None


def test_missing_or_corrupt_checkpoint_is_skipped_and_reported(
    store: CompletedCheckpointStore, job: str
) -> None:
    storage = Storage.open(job)
    completed = [add(store, job, number, f"only-{number}") for number in range(1, 7)]
    own = storage.read("chk-6/own")
    storage.write_atomically("chk-6/own", own[:-1] + b"?")
    storage.delete("shared/only-2")
    storage.write_atomically("shared/only-3", storage.read("shared/only-3")[:-1])
    metadata = storage.read(f"chk-4/{METADATA}")
    storage.write_atomically(f"chk-4/{METADATA}", metadata[:-1])
    storage.delete_tree("chk-5")
    checkpoint = store.recover(GRAPH, to_go_back_to(*completed))
    assert checkpoint.checkpoint.checkpoint_id == 1
    assert list(checkpoint.passed_over) == [f"{job}/chk-{number}" for number in (6, 5, 4, 3, 2)]
    for says, why in zip(
        ["checksum differs", "does not exist", "is truncated", "is truncated", "does not exist"],
        checkpoint.passed_over.values(),
        strict=True,
    ):
        assert says in why
    storage.delete_tree("")
    with pytest.raises(UnusableCheckpoint, match=r"no checkpoint can be restored: .*chk-6.*chk-1"):
        store.recover(GRAPH, to_go_back_to(*completed))
    with pytest.raises(UnusableCheckpoint, match="there is no completed checkpoint to go back to"):
        store.recover(GRAPH, ())


@pytest.mark.parametrize("local", [True, False])
def test_large_checkpoint_with_wrong_bytes_is_skipped_if_storage_is_local(
    store: CompletedCheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    job = str(tmp_path / "job") if local else f"memory://checkpoints/{tmp_path.name}/job"
    completed = [add(store, job, number) for number in (1, 2)]
    storage = Storage.open(job)
    own = storage.read("chk-2/own")
    storage.write_atomically("chk-2/own", own[:-1] + b"?")
    monkeypatch.setattr(stores, "_READ_WHOLE", 0)
    checkpoint = store.recover(GRAPH, to_go_back_to(*completed))
    assert checkpoint.checkpoint.checkpoint_id == (1 if local else 2)


def test_unreachable_storage_skips_no_checkpoint(
    store: CompletedCheckpointStore, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = [add(store, job, number) for number in (1, 2)]

    def unreachable(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_files.LocalFiles, "read", unreachable)
    with pytest.raises(StorageError, match="Input/output error"):
        store.recover(GRAPH, to_go_back_to(*completed))


def test_checkpoint_named_by_user_must_be_compatible(store: CompletedCheckpointStore, job: str) -> None:
    completed = add(store, job, 3)
    checkpoint = RestoredCheckpoint(checkpoint_id=0, uri=f"{completed.uri}/{METADATA}", generation=-1)
    result = store.recover(pipeline(4, 2), [checkpoint])
    assert result.checkpoint == RestoredCheckpoint(checkpoint_id=3, uri=completed.uri, generation=-1)
    assert result.finished == {"source": (0, 1, 2, 3)}
    with pytest.raises(UnusableCheckpoint, match="128 key groups"):
        store.recover(pipeline(1, 1, max_parallelism=64), [checkpoint])


@pytest.mark.parametrize("tenant", ["", "pay"])
@pytest.mark.parametrize("owner", ["", "pay", "search"])
def test_job_of_tenant_starts_from_no_checkpoint_of_other_tenant(
    store: CompletedCheckpointStore, job: str, owner: str, tenant: str
) -> None:
    completed = store.add("job", GRAPH, acknowledged(job, 3), tenant=owner)
    given = RestoredCheckpoint(checkpoint_id=0, uri=completed.uri, generation=-1)
    if (owner, tenant) == ("search", "pay"):
        with pytest.raises(
            UnusableCheckpoint, match="belongs to another tenant, so no job of tenant pay may"
        ):
            CompletedCheckpointStore().recover(GRAPH, [given], tenant=tenant)
    else:
        found = CompletedCheckpointStore().recover(GRAPH, [given], tenant=tenant)
        assert found.checkpoint.uri == completed.uri


def test_subsumed_checkpoint_is_deleted_without_shared_files(
    store: CompletedCheckpointStore, job: str
) -> None:
    first, second = add(store, job, 1, "a", "b"), add(store, job, 2, "b", "c")
    for completed_checkpoint_store in (store, CompletedCheckpointStore()):
        completed_checkpoint_store.discard(first.uri, [second.uri], completed=True)
        assert verify(read_metadata(second.uri), checksums=True) == []
        assert Storage.open(job).sizes("shared").keys() == {"b", "c"}
    store.remove(job, [])
    assert not Path(job).exists()


def test_checkpoint_added_during_deletion_of_older_one_is_intact_or_rejected(
    store: CompletedCheckpointStore, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may have restored a checkpoint that was subsumed meanwhile: its next part refers to files of that."""
    first, second = add(store, job, 1, "a"), add(store, job, 2, "b")
    third = acknowledged(job, 3, "a")
    deleted = local_files.LocalFiles.delete
    outcomes = []

    def meanwhile(files: local_files.LocalFiles, path: str) -> None:
        try:
            outcomes.append(store.add("job", GRAPH, third))
        except CorruptFile as error:
            outcomes.append(error)
        deleted(files, path)

    monkeypatch.setattr(local_files.LocalFiles, "delete", meanwhile)
    store.discard(first.uri, [second.uri], completed=True)
    monkeypatch.undo()
    (error,) = outcomes
    assert "shared/a belongs to a checkpoint that is being deleted" in str(error)
    assert [path.name for path in Path(job, "shared").iterdir()] == ["b"]


def test_files_of_checkpoint_added_after_discard_demand_are_kept(
    store: CompletedCheckpointStore, job: str
) -> None:
    first, second, third = (add(store, job, number, name) for number, name in ((1, "a"), (2, "b"), (3, "a")))
    for completed_checkpoint_store in (store, CompletedCheckpointStore()):
        completed_checkpoint_store.discard(first.uri, [second.uri], completed=True)
        assert verify(read_metadata(third.uri), checksums=True) == []
    store.discard(third.uri, [second.uri], completed=True)
    assert Storage.open(job).sizes("shared").keys() == {"b"}


# The shell.


@pytest.fixture
def sent() -> queue.Queue[OutgoingEvent]:
    return queue.Queue()


@pytest.fixture
def shell(sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointShell]:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.001)
    shell = CheckpointShell(lambda _, owed: sent.put(owed))
    yield shell
    shell.close()


def answer(shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], demand: Demand) -> Any:
    shell.perform("job_master/job", demand)
    owed = sent.get(timeout=TIMEOUT_S)
    assert (owed.recipient, owed.cause) == ("job_master/job", 7)
    return owed.body


def test_every_demand_is_answered(shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], job: str) -> None:
    done = [
        answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, number, "a"), 7))
        for number in (1, 2)
    ]
    assert [item.checkpoint.uri for item in done] == [f"{job}/chk-1", f"{job}/chk-2"]
    candidates = to_go_back_to(*(element.checkpoint for element in done))
    result = answer(shell, sent, FindCheckpoint("job", GRAPH, candidates, False, 7))
    assert result == job_master.CheckpointRestored(
        job_id="job", checkpoint=candidates[0], finished={"source": (0,)}
    )
    discard = DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (f"{job}/chk-2",), 7)
    for _ in range(2):
        assert answer(shell, sent, discard) == job_master.CheckpointDiscarded(job_id="job", checkpoint_id=1)
    assert not Path(job, "chk-1").exists()
    remove = RemoveCheckpoints("job", job, (done[1].checkpoint,), 7)
    assert answer(shell, sent, remove) == job_master.CheckpointsRemoved(job_id="job")
    assert verify(read_metadata(f"{job}/chk-2")) == []
    assert answer(shell, sent, RemoveCheckpoints("job", job, (), 7)) == job_master.CheckpointsRemoved(
        job_id="job"
    )
    assert not Path(job).exists()
    failed = answer(shell, sent, FindCheckpoint("job", GRAPH, candidates, False, 7))
    assert isinstance(failed, job_master.RestoreFailed)
    assert "chk-2 is not a checkpoint or savepoint: it does not exist" in failed.reason


def test_deposed_leader_deletes_nothing_more_and_reports_nothing(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present leader may have completed a checkpoint that refers to the files."""
    for number, names in ((1, "abc"), (2, "d")):
        answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, number, *names), 7))
    gone, deleted = threading.Event(), local_files.LocalFiles.delete

    def in_the_middle(files: local_files.LocalFiles, path: str) -> None:
        deleted(files, path)
        gone.set()

    monkeypatch.setattr(local_files.LocalFiles, "delete", in_the_middle)
    shell.perform(
        "job_master/job", DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (f"{job}/chk-2",), 7), gone
    )
    assert gone.wait(TIMEOUT_S)
    shell.close()
    assert sent.empty()
    assert Storage.open(job).sizes("shared").keys() == {"b", "c", "d"}
    assert Path(job, "chk-1").exists()


@pytest.mark.parametrize("is_deposed", [True, False])
def test_resumed_process_deletes_nothing_before_it_knows_that_it_leads(
    sent: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch, is_deposed: bool
) -> None:
    gone, asked, current = threading.Event(), threading.Event(), [True]
    deleted = local_files.LocalFiles.delete

    def stopped_behind_the_first(files: local_files.LocalFiles, path: str) -> None:
        deleted(files, path)
        current[0] = False
        monkeypatch.setattr(local_files.LocalFiles, "delete", deleted)

    def is_current() -> bool:
        if not current[0]:
            asked.set()
        return current[0]

    shell = CheckpointShell(lambda _, owed: sent.put(owed), is_current)
    try:
        for number, names in ((1, "abc"), (2, "d")):
            answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, number, *names), 7))
        monkeypatch.setattr(local_files.LocalFiles, "delete", stopped_behind_the_first)
        shell.perform(
            "job_master/job", DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (f"{job}/chk-2",), 7), gone
        )
        assert asked.wait(TIMEOUT_S)
        assert Storage.open(job).sizes("shared").keys() == {"b", "c", "d"}
        if is_deposed:
            gone.set()
        current[0] = True
        if not is_deposed:
            assert isinstance(sent.get(timeout=TIMEOUT_S).body, job_master.CheckpointDiscarded)
    finally:
        shell.close()
    assert sent.empty()
    rest = {"b", "c", "d"} if is_deposed else {"d"}
    assert Storage.open(job).sizes("shared").keys() == rest


def test_failed_write_aborts_checkpoint(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], job: str
) -> None:
    pending = acknowledged(job, 1, "a")
    Storage.open(job).delete("shared/a")
    body = answer(shell, sent, WriteMetadata("job", GRAPH, pending, 7))
    assert (body.checkpoint_id, body.failure) == (1, CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE)
    assert body.reason == f"{job}/shared/a does not exist"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("unheard of")])
def test_unexpected_error_is_reported(
    shell: CheckpointShell,
    sent: queue.Queue[OutgoingEvent],
    job: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completed = answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, 1), 7)).checkpoint

    def broken(*_: object, **__: object) -> Any:
        raise error

    for name in ("add", "recover", "discard", "remove"):
        monkeypatch.setattr(CompletedCheckpointStore, name, broken)
    body = answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, 2), 7))
    assert isinstance(body, job_master.CheckpointAborted)
    body = answer(shell, sent, FindCheckpoint("job", GRAPH, to_go_back_to(completed), False, 7))
    assert isinstance(body, job_master.RestoreFailed)
    body = answer(shell, sent, DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (), 7))
    assert isinstance(body, job_master.CheckpointDiscarded)
    body = answer(shell, sent, RemoveCheckpoints("job", job, (), 7))
    assert isinstance(body, job_master.CheckpointsRemoved)


def test_restore_waits_until_storage_is_reachable(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = answer(shell, sent, WriteMetadata("job", GRAPH, acknowledged(job, 1), 7)).checkpoint
    failures = [StorageError("it can't be reached")] * 20
    recover = CompletedCheckpointStore.recover

    def at_first_not(store: CompletedCheckpointStore, *args: Any, **settings: Any) -> Any:
        if failures:
            raise failures.pop()
        return recover(store, *args, **settings)

    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(CompletedCheckpointStore, "recover", at_first_not)
    body = answer(shell, sent, FindCheckpoint("job", GRAPH, to_go_back_to(completed), False, 7))
    assert isinstance(body, job_master.CheckpointRestored)
    assert not failures


def unreachable(*_: object, **__: object) -> Any:
    raise StorageError("it can't be reached")


@pytest.mark.parametrize("how", ["not demanded any more", "another is", "closed"])
def test_search_ends_silently_when_demand_is_withdrawn(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked = threading.Event()

    def recover(*_: object, **__: object) -> Any:
        asked.set()
        unreachable()

    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 3600.0)
    monkeypatch.setattr(CompletedCheckpointStore, "recover", recover)
    candidate = RestoredCheckpoint(checkpoint_id=1, uri="file:///c/j/chk-1", generation=0)
    first, second = (FindCheckpoint("job", GRAPH, (candidate,), False, cause) for cause in (7, 8))
    shell.still_demanded("job_master/job", [first])
    shell.perform("job_master/job", first)
    assert asked.wait(TIMEOUT_S)
    shell.still_demanded("job_master/job", [first])
    shell.still_demanded("job_master/other", [])
    (_, over) = shell._searches["job_master/job"]
    assert not over.is_set()
    match how:
        case "not demanded any more":
            shell.still_demanded("job_master/job", [])
        case "another is":
            shell.still_demanded("job_master/job", [second])
            shell.perform("job_master/job", second)
    shell.close()
    assert over.is_set()
    assert sent.empty()


def test_new_job_is_notified_that_its_savepoint_is_unreachable(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompletedCheckpointStore, "recover", unreachable)
    checkpoint = RestoredCheckpoint(checkpoint_id=0, uri="s3://nowhere/savepoint", generation=-1)
    body = answer(shell, sent, FindCheckpoint("job", GRAPH, (checkpoint,), False, 7))
    assert body == job_master.RestoreFailed(job_id="job", reason="it can't be reached")


def test_closed_shell_leaves_rest_to_successor(
    shell: CheckpointShell, sent: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", TIMEOUT_S)
    monkeypatch.setattr(CompletedCheckpointStore, "discard", unreachable)
    shell.perform("job_master/job", DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (), 7))
    shell.close()
    assert sent.empty()
