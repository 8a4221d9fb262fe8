"""The CompletedCheckpointStore on real files: storage first, nothing lost, the newest that is whole."""

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
    SubtaskState,
)
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.checkpoints import completed_checkpoint_store as stores
from tailrace.services.job_master.checkpoints import shell as module
from tailrace.services.job_master.checkpoints.completed_checkpoint_store import (
    CompletedCheckpointStore,
    UnusableCheckpoint,
)
from tailrace.services.job_master.checkpoints.pending_checkpoint import Acknowledgement, PendingCheckpoint
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
    """The job's directory."""
    return str(tmp_path / "checkpoints" / "job")


@pytest.fixture
def store() -> CompletedCheckpointStore:
    return CompletedCheckpointStore()


def acknowledged(job: str, number: int, *shared: str, generation: int = 0) -> PendingCheckpoint:
    """A checkpoint of the job that everybody has acknowledged; its source had finished."""
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
        acknowledged=Map({("reduce", 0): Acknowledgement("attempt", state, CheckpointMetrics())}),
        finished=Map({("source", 0): None}),
    )


def to_go_back_to(*completed: CompletedCheckpoint) -> tuple[RestoredCheckpoint, ...]:
    """Candidates, newest first."""
    return tuple(
        RestoredCheckpoint(checkpoint_id=each.checkpoint_id, uri=each.uri, generation=each.generation)
        for each in reversed(completed)
    )


def add(store: CompletedCheckpointStore, job: str, number: int, *shared: str) -> CompletedCheckpoint:
    return store.add("job", GRAPH, acknowledged(job, number, *shared))


def test_what_is_added_is_found_with_those_that_had_finished(
    store: CompletedCheckpointStore, job: str
) -> None:
    first, second = add(store, job, 1, "a"), add(store, job, 2, "a")
    found = CompletedCheckpointStore().recover(GRAPH, to_go_back_to(first, second))
    assert found.checkpoint == to_go_back_to(second)[0]
    assert (found.finished, found.passed_over) == ({"source": (0,)}, {})
    metadata = read_metadata(second.uri)
    assert (metadata.job_id, metadata.triggered, metadata.checkpoint) == ("job", 2, second)
    assert second.size == 10


def test_what_had_been_counted_by_those_that_had_finished_is_found_and_nothing_else(
    store: CompletedCheckpointStore, job: str
) -> None:
    pending = acknowledged(job, 1)
    (vertex,) = pending.acknowledged
    part = pending.acknowledged[vertex]
    stops = replace(part, state=replace(part.state, stops=True, accumulators={"n": 100.0}))
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
        found = CompletedCheckpointStore().recover(graph, to_go_back_to(added))
        assert found.accumulators == {"m": 2.0, "n": 6.0}


def test_adding_again_does_no_more(store: CompletedCheckpointStore, job: str) -> None:
    pending = acknowledged(job, 1)
    assert store.add("job", GRAPH, pending) == CompletedCheckpointStore().add("job", GRAPH, pending)


def test_an_add_that_fails_loses_nothing(
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


def test_a_checkpoint_whose_files_are_gone_is_not_complete(store: CompletedCheckpointStore, job: str) -> None:
    pending = acknowledged(job, 1, "a", "b")
    Storage.open(job).delete("shared/a")
    with pytest.raises(CorruptFile, match="shared/a is not there"):
        store.add("job", GRAPH, pending)
    assert Storage.open(job).size(f"chk-1/{METADATA}") is None


def test_what_is_missing_or_torn_is_passed_over_and_said(store: CompletedCheckpointStore, job: str) -> None:
    storage = Storage.open(job)
    completed = [add(store, job, number, f"only-{number}") for number in range(1, 7)]
    own = storage.read("chk-6/own")
    storage.write_atomically("chk-6/own", own[:-1] + b"?")
    storage.delete("shared/only-2")
    storage.write_atomically("shared/only-3", storage.read("shared/only-3")[:-1])
    metadata = storage.read(f"chk-4/{METADATA}")
    storage.write_atomically(f"chk-4/{METADATA}", metadata[:-1])
    storage.delete_tree("chk-5")
    found = store.recover(GRAPH, to_go_back_to(*completed))
    assert found.checkpoint.checkpoint_id == 1
    assert list(found.passed_over) == [f"{job}/chk-{number}" for number in (6, 5, 4, 3, 2)]
    for says, why in zip(
        ["checksum differs", "is not there", "is torn", "is torn", "is not there"],
        found.passed_over.values(),
        strict=True,
    ):
        assert says in why
    storage.delete_tree("")
    with pytest.raises(UnusableCheckpoint, match=r"no checkpoint can be restored: .*chk-6.*chk-1"):
        store.recover(GRAPH, to_go_back_to(*completed))
    with pytest.raises(UnusableCheckpoint, match="there is no completed checkpoint to go back to"):
        store.recover(GRAPH, ())


@pytest.mark.parametrize("local", [True, False])
def test_a_large_checkpoint_with_other_bytes_is_passed_over_where_its_storage_is_near(
    store: CompletedCheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    job = str(tmp_path / "job") if local else f"memory://checkpoints/{tmp_path.name}/job"
    completed = [add(store, job, number) for number in (1, 2)]
    storage = Storage.open(job)
    own = storage.read("chk-2/own")
    storage.write_atomically("chk-2/own", own[:-1] + b"?")
    monkeypatch.setattr(stores, "_READ_WHOLE", 0)
    found = store.recover(GRAPH, to_go_back_to(*completed))
    assert found.checkpoint.checkpoint_id == (1 if local else 2)


def test_storage_that_can_not_be_reached_passes_over_nothing(
    store: CompletedCheckpointStore, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = [add(store, job, number) for number in (1, 2)]

    def unreachable(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(local_files.LocalFiles, "read", unreachable)
    with pytest.raises(StorageError, match="Input/output error"):
        store.recover(GRAPH, to_go_back_to(*completed))


def test_one_that_a_person_named_has_to_fit(store: CompletedCheckpointStore, job: str) -> None:
    completed = add(store, job, 3)
    given = RestoredCheckpoint(checkpoint_id=0, uri=f"{completed.uri}/{METADATA}", generation=-1)
    found = store.recover(pipeline(4, 2), [given])
    assert found.checkpoint == RestoredCheckpoint(checkpoint_id=3, uri=completed.uri, generation=-1)
    assert found.finished == {"source": (0, 1, 2, 3)}
    with pytest.raises(UnusableCheckpoint, match="128 key groups"):
        store.recover(pipeline(1, 1, max_parallelism=64), [given])


def test_what_is_subsumed_goes_and_takes_nothing_with_it(store: CompletedCheckpointStore, job: str) -> None:
    first, second = add(store, job, 1, "a", "b"), add(store, job, 2, "b", "c")
    for each in (store, CompletedCheckpointStore()):
        each.discard(first.uri, [second.uri], completed=True)
        assert verify(read_metadata(second.uri), checksums=True) == []
        assert Storage.open(job).sizes("shared").keys() == {"b", "c"}
    store.remove(job, [])
    assert not Path(job).exists()


def test_a_checkpoint_that_is_added_while_an_older_one_goes_is_whole_or_refused(
    store: CompletedCheckpointStore, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may have begun with a checkpoint that was subsumed meanwhile: its next part refers to files of that."""
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
    assert [each.name for each in Path(job, "shared").iterdir()] == ["b"]


def test_what_was_added_since_a_discard_was_demanded_keeps_its_files(
    store: CompletedCheckpointStore, job: str
) -> None:
    first, second, third = (add(store, job, number, name) for number, name in ((1, "a"), (2, "b"), (3, "a")))
    for each in (store, CompletedCheckpointStore()):
        each.discard(first.uri, [second.uri], completed=True)
        assert verify(read_metadata(third.uri), checksums=True) == []
    store.discard(third.uri, [second.uri], completed=True)
    assert Storage.open(job).sizes("shared").keys() == {"b"}


# The shell.


@pytest.fixture
def said() -> queue.Queue[OutgoingEvent]:
    return queue.Queue()


@pytest.fixture
def shell(said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointShell]:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.001)
    shell = CheckpointShell(lambda _, owed: said.put(owed))
    yield shell
    shell.close()


def answer(shell: CheckpointShell, said: queue.Queue[OutgoingEvent], demand: Demand) -> Any:
    shell.perform("job_master/job", demand)
    owed = said.get(timeout=TIMEOUT_S)
    assert (owed.recipient, owed.cause) == ("job_master/job", 7)
    return owed.body


def test_every_demand_is_answered(shell: CheckpointShell, said: queue.Queue[OutgoingEvent], job: str) -> None:
    done = [
        answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, number, "a"), 7))
        for number in (1, 2)
    ]
    assert [each.checkpoint.uri for each in done] == [f"{job}/chk-1", f"{job}/chk-2"]
    candidates = to_go_back_to(*(each.checkpoint for each in done))
    found = answer(shell, said, FindCheckpoint("job", GRAPH, candidates, False, 7))
    assert found == job_master.CheckpointRestored(
        job_id="job", checkpoint=candidates[0], finished={"source": (0,)}
    )
    discard = DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (f"{job}/chk-2",), 7)
    for _ in range(2):
        assert answer(shell, said, discard) == job_master.CheckpointDiscarded(job_id="job", checkpoint_id=1)
    assert not Path(job, "chk-1").exists()
    remove = RemoveCheckpoints("job", job, (done[1].checkpoint,), 7)
    assert answer(shell, said, remove) == job_master.CheckpointsRemoved(job_id="job")
    assert verify(read_metadata(f"{job}/chk-2")) == []
    assert answer(shell, said, RemoveCheckpoints("job", job, (), 7)) == job_master.CheckpointsRemoved(
        job_id="job"
    )
    assert not Path(job).exists()
    failed = answer(shell, said, FindCheckpoint("job", GRAPH, candidates, False, 7))
    assert isinstance(failed, job_master.RestoreFailed)
    assert "chk-2 is no checkpoint or savepoint: it is not there" in failed.reason


def test_who_leads_a_job_no_more_deletes_nothing_more_of_it_and_says_nothing(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leads it now may have completed a checkpoint that refers to the files."""
    for number, names in ((1, "abc"), (2, "d")):
        answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, number, *names), 7))
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
    assert said.empty()
    assert Storage.open(job).sizes("shared").keys() == {"b", "c", "d"}
    assert Path(job, "chk-1").exists()


@pytest.mark.parametrize("is_deposed", [True, False])
def test_who_has_stood_still_deletes_nothing_before_it_knows_that_it_leads(
    said: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch, is_deposed: bool
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

    shell = CheckpointShell(lambda _, owed: said.put(owed), is_current)
    try:
        for number, names in ((1, "abc"), (2, "d")):
            answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, number, *names), 7))
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
            assert isinstance(said.get(timeout=TIMEOUT_S).body, job_master.CheckpointDiscarded)
    finally:
        shell.close()
    assert said.empty()
    left = {"b", "c", "d"} if is_deposed else {"d"}
    assert Storage.open(job).sizes("shared").keys() == left


def test_what_can_not_be_written_aborts_the_checkpoint(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], job: str
) -> None:
    pending = acknowledged(job, 1, "a")
    Storage.open(job).delete("shared/a")
    body = answer(shell, said, WriteMetadata("job", GRAPH, pending, 7))
    assert (body.checkpoint_id, body.failure) == (1, CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE)
    assert body.reason == f"{job}/shared/a is not there"


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("unheard of")])
def test_whatever_goes_wrong_is_said(
    shell: CheckpointShell,
    said: queue.Queue[OutgoingEvent],
    job: str,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completed = answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, 1), 7)).checkpoint

    def broken(*_: object, **__: object) -> Any:
        raise error

    for name in ("add", "recover", "discard", "remove"):
        monkeypatch.setattr(CompletedCheckpointStore, name, broken)
    body = answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, 2), 7))
    assert isinstance(body, job_master.CheckpointAborted)
    body = answer(shell, said, FindCheckpoint("job", GRAPH, to_go_back_to(completed), False, 7))
    assert isinstance(body, job_master.RestoreFailed)
    body = answer(shell, said, DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (), 7))
    assert isinstance(body, job_master.CheckpointDiscarded)
    body = answer(shell, said, RemoveCheckpoints("job", job, (), 7))
    assert isinstance(body, job_master.CheckpointsRemoved)


def test_a_job_goes_back_when_its_storage_can_be_reached_again_however_long_that_takes(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed = answer(shell, said, WriteMetadata("job", GRAPH, acknowledged(job, 1), 7)).checkpoint
    failures = [StorageError("it can't be reached")] * 20
    recover = CompletedCheckpointStore.recover

    def at_first_not(store: CompletedCheckpointStore, *args: Any, **settings: Any) -> Any:
        if failures:
            raise failures.pop()
        return recover(store, *args, **settings)

    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(CompletedCheckpointStore, "recover", at_first_not)
    body = answer(shell, said, FindCheckpoint("job", GRAPH, to_go_back_to(completed), False, 7))
    assert isinstance(body, job_master.CheckpointRestored)
    assert not failures


def unreachable(*_: object, **__: object) -> Any:
    raise StorageError("it can't be reached")


@pytest.mark.parametrize("how", ["not demanded any more", "another is", "closed"])
def test_a_search_ends_with_its_demand_and_nothing_is_said(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch, how: str
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
    assert said.empty()


def test_a_job_that_has_not_begun_is_told_that_its_savepoint_can_not_be_reached(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CompletedCheckpointStore, "recover", unreachable)
    given = RestoredCheckpoint(checkpoint_id=0, uri="s3://nowhere/savepoint", generation=-1)
    body = answer(shell, said, FindCheckpoint("job", GRAPH, (given,), False, 7))
    assert body == job_master.RestoreFailed(job_id="job", reason="it can't be reached")


def test_a_shell_that_is_closed_leaves_the_rest_to_its_successor(
    shell: CheckpointShell, said: queue.Queue[OutgoingEvent], job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", TIMEOUT_S)
    monkeypatch.setattr(CompletedCheckpointStore, "discard", unreachable)
    shell.perform("job_master/job", DiscardCheckpoint("job", 1, f"{job}/chk-1", True, (), 7))
    shell.close()
    assert said.empty()
