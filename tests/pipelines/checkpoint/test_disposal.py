"""Deletion of checkpoints never deletes files that retained ones refer to, and a second deletion does nothing."""

from __future__ import annotations

from collections.abc import Callable

from checkpoint_files import metadata_of, pipeline, plain, write_checkpoint
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint import disposal
from tailrace.pipelines.checkpoint.layout import METADATA
from tailrace.pipelines.checkpoint.metadata import CheckpointMetadata, files_of, verify, write_metadata
from tailrace.schemas.types import OperatorState, StateFile, SubtaskState

NAMES = st.sets(st.sampled_from("abcdef"), max_size=4)


@settings(max_examples=example_count(20))
@given(
    shared=st.lists(NAMES, min_size=1, max_size=4), staying=st.sets(st.integers(0, 3)), twice=st.booleans()
)
def test_retained_checkpoints_are_intact_and_others_are_deleted(
    fresh: Callable[[], Storage], shared: list[set[str]], staying: set[int], twice: bool
) -> None:
    storage = fresh()
    plain(storage, "shared/of-tasks", "reduce", b"not yet in any checkpoint")
    all_of_them = {
        i: write_checkpoint(storage.uri, i + 1, shared=names, own=["x"]) for i, names in enumerate(shared)
    }
    retained = {i: checkpoint for i, checkpoint in all_of_them.items() if i in staying}
    gone = {i: checkpoint for i, checkpoint in all_of_them.items() if i not in staying}
    uris = [checkpoint_metadata.checkpoint.uri for checkpoint_metadata in retained.values()]
    for item in gone.values():
        for _ in range(1 + twice):
            disposal.discard(item.checkpoint.uri, uris)
    for item in retained.values():
        assert verify(item, checksums=True) == []
    assert storage.directories() == sorted([f"chk-{i + 1}" for i in retained] + ["shared"])
    rest = set[str]().union(*(shared[i] for i in retained))
    assert set(storage.sizes("shared")) == rest | {"of-tasks"}


class Writer:
    """Attempts of a subtask that write state: each continues from the last complete checkpoint."""

    def __init__(self, storage: Storage, subtask: int) -> None:
        self.storage = storage
        self.chain: list[str] = []
        self.completed: list[str] = []
        self.subtask, self.attempt, self.numbers, self.deltas = subtask, 0, 0, 0
        self.making: str | None = None

    def _written(self, ending: str) -> str:
        name = f"v-{self.subtask}-{self.attempt}-a{self.attempt}b-{ending}"
        plain(self.storage, f"shared/{name}", "reduce", b"x")
        return name

    def go_on(self, how: str) -> None:
        match how:
            case "delta":
                self.deltas += 1
                self.chain.append(self._written(f"reduce-{self.deltas:012x}-0"))
            case "begin a full one" if self.making is None:
                self.numbers += 1
                self.making = self._written(f"{self.numbers}.full")
            case "adopt it" if self.making is not None:
                self.chain, self.making = [self.making], None
            case "die":
                self.attempt += 1
                self.chain, self.making, self.numbers = list(self.completed), None, 0


STEPS = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["delta", "delta", "begin a full one", "adopt it", "die", "checkpoint", "checkpoint"]),
)


@settings(max_examples=example_count(30))
@given(steps=st.lists(STEPS, min_size=5, max_size=40), retained=st.integers(1, 3))
def test_files_deleted_with_subsumed_checkpoint_are_never_referenced_again(
    fresh: Callable[[], Storage], steps: list[tuple[int, str]], retained: int
) -> None:
    """Two subtasks write, fail, and continue; some checkpoints are aborted, and nobody knows their files."""
    storage = fresh()
    writers = [Writer(storage, 0), Writer(storage, 1)]
    checkpoints: list[CheckpointMetadata] = []
    number = 0
    for which, how in steps:
        if how != "checkpoint":
            writers[which].go_on(how)
            continue
        number += 1
        if which:
            continue  # aborted: its files stay in the chains
        for writer in writers:
            missing = set(writer.chain) - set(storage.sizes("shared"))
            assert not missing, "a checkpoint is to name what is gone"
            writer.completed = list(writer.chain)
        names = [name for writer in writers for name in writer.chain]
        checkpoints.append(write_checkpoint(storage.uri, number, shared=names))
        discards = len(checkpoints) > retained
        while len(checkpoints) > retained:
            disposal.discard(
                checkpoints.pop(0).checkpoint.uri, [checkpoint.checkpoint.uri for checkpoint in checkpoints]
            )
        for checkpoint_metadata in checkpoints:
            assert verify(checkpoint_metadata, checksums=True) == []
        named = {
            file.path.removeprefix("shared/") for checkpoint in checkpoints for file in files_of(checkpoint)
        }
        attempts: dict[str, int] = {}
        for subtask, attempt in map(place, named):
            attempts[subtask] = max(attempts.get(subtask, 0), attempt)
        for name in set(storage.sizes("shared")) - named if discards else ():
            subtask, attempt = place(name)
            assert attempt >= attempts.get(subtask, 0), f"{name} is left of an attempt that has a successor"


def place(name: str) -> tuple[str, int]:
    """Returns subtask and attempt of a file's writer."""
    _, subtask, attempt, _ = name.split("-", 3)
    return subtask, int(attempt)


@settings(max_examples=example_count(20))
@given(shared=st.lists(NAMES, min_size=1, max_size=4), staying=st.sets(st.integers(0, 3)))
def test_only_retained_files_of_ended_job_are_left(
    fresh: Callable[[], Storage], shared: list[set[str]], staying: set[int]
) -> None:
    storage = fresh()
    storage.write_atomically("chk-9/of-one-that-was-never-completed", b"")
    storage.write_atomically("taskowned/x", b"")
    plain(storage, "shared/of-tasks", "reduce", b"")
    all_of_them = [
        write_checkpoint(storage.uri, i + 1, shared=names, own=["x"]) for i, names in enumerate(shared)
    ]
    checkpoints = [checkpoint for i, checkpoint in enumerate(all_of_them) if i in staying]
    for _ in range(2):
        disposal.remove_all(storage.uri, [checkpoint.checkpoint.uri for checkpoint in checkpoints])
    for checkpoint_metadata in checkpoints:
        assert verify(checkpoint_metadata, checksums=True) == []
    rest = set[str]().union(*(names for i, names in enumerate(shared) if i in staying))
    assert set(storage.sizes("shared")) == rest
    assert [name for name in storage.directories() if name != "shared"] == [
        f"chk-{item.checkpoint.checkpoint_id}" for item in checkpoints
    ]
    assert checkpoints or not storage.exists("")


def test_no_shared_file_is_deleted_if_references_are_unknown(storage: Storage) -> None:
    old = write_checkpoint(storage.uri, 1, shared=["a"])
    new = write_checkpoint(storage.uri, 2, shared=["a"])
    storage.write_atomically(f"chk-2/{METADATA}", b"tailrace torn")
    disposal.discard(old.checkpoint.uri, [new.checkpoint.uri])
    assert (storage.directories(), storage.sizes("shared").keys()) == (["chk-2", "shared"], {"a"})
    disposal.remove_all(storage.uri, [new.checkpoint.uri])
    assert (storage.directories(), storage.sizes("shared").keys()) == (["chk-2", "shared"], {"a"})


def test_incomplete_checkpoint_keeps_files_that_tasks_continue_from(storage: Storage) -> None:
    storage.write_atomically("chk-1/in-flight", b"")
    storage.write_atomically("shared/a", b"")
    for _ in range(2):
        disposal.discard_incomplete(f"{storage.uri}/chk-1")
    assert (storage.directories(), storage.sizes("shared")) == (["shared"], {"a": 0})


def test_savepoint_is_deleted_with_its_own_directory_only(storage: Storage) -> None:
    storage.write_atomically("savepoint-1/state", b"")
    storage.write_atomically("savepoint-2/state", b"")
    disposal.discard(f"{storage.uri}/savepoint-1")
    assert storage.directories() == ["savepoint-2"]


def test_only_files_of_savepoint_below_its_directory_are_deleted(storage: Storage) -> None:
    own = Storage.open(f"{storage.uri}/savepoint-1")
    for name in ("a", "deep/er/b", "deep/c", "deep/er/of-somebody"):
        plain(own, name, "reduce", b"x")
    for name in ("outside", "elsewhere", "too"):
        plain(storage, name, "reduce", b"x")
    names = ["a", "deep/er/b", "deep/c", "../outside", f"{storage.uri}/elsewhere", "deep/../../too"]
    files = tuple(StateFile(path=name, length=0, crc=0) for name in names)
    state = SubtaskState(operators={"reduce": OperatorState(files=files)})
    savepoint = metadata_of(pipeline(), {("reduce", 0): state}, own.uri)
    write_metadata(savepoint)
    assert disposal.dispose(savepoint) == ["deep/"]
    assert (own.directories("deep"), own.sizes("deep")) == (["er"], {})
    assert own.sizes("deep/er").keys() == {"of-somebody"}
    for name in ("outside", "elsewhere", "too"):
        assert storage.exists(name), name
    own.delete("deep/er/of-somebody")
    write_metadata(savepoint)
    assert disposal.dispose(savepoint) == []
    assert not own.exists("")
