"""`_metadata` is read as it was written or rejected with the reason, and compared with the files that it names."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from checkpoint_files import metadata_of, pipeline, plain, write_checkpoint
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import CheckpointError, CorruptFile, NoCheckpoint
from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.checkpoint import metadata as module
from tailrace.pipelines.checkpoint.layout import METADATA
from tailrace.pipelines.checkpoint.metadata import (
    CheckpointMetadata,
    SubtaskSnapshot,
    outline_of,
    read_metadata,
    verify,
    write_metadata,
)
from tailrace.schemas.types import (
    CheckpointMetrics,
    CompletedCheckpoint,
    InFlightState,
    OperatorState,
    SnapshotType,
    StateFile,
    SubtaskState,
)

WORDS = st.text(max_size=8)
NUMBERS = st.integers(0, 2**40)
FILES = st.builds(StateFile, path=WORDS, offset=NUMBERS, length=NUMBERS, crc=st.integers(0, 2**32 - 1))
STATES = st.builds(
    SubtaskState,
    operators=st.dictionaries(
        WORDS,
        st.builds(
            OperatorState, files=st.lists(FILES, max_size=2).map(tuple), inline=st.none() | st.binary()
        ),
        max_size=2,
    ),
    in_flight=st.lists(
        st.builds(
            InFlightState,
            operator_id=WORDS,
            input=st.integers(0, 3),
            partition=st.integers(0, 9),
            files=st.lists(FILES, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    changelog_offset=st.integers(-1, 2**40),
)
PARTS = st.lists(
    st.builds(
        SubtaskSnapshot,
        vertex_id=WORDS,
        subtask_index=st.integers(0, 9),
        state=STATES,
        metrics=st.builds(CheckpointMetrics, start_delay=NUMBERS),
        finished=st.booleans(),
    ),
    max_size=3,
).map(tuple)


def at(uri: str, parts: tuple[SubtaskSnapshot, ...] = ()) -> CheckpointMetadata:
    whole = metadata_of(pipeline(2, 3), {}, uri)
    return msgspec.structs.replace(whole, subtasks=parts)


@given(
    uids=st.lists(
        st.none() | st.text("abc", min_size=1), min_size=3, max_size=3, unique_by=lambda u: u or object()
    )
)
def test_operators_are_identified_by_uids_of_program(uids: list[str | None]) -> None:
    stream = StreamExecutionEnvironment()
    streams = [stream.from_collection([1], int)]
    streams.append(streams[-1].map(abs, int))
    streams.append(streams[-1].key_by(abs).reduce(max))
    for single_output_stream_operator, uid in zip(streams, uids, strict=True):
        if uid is not None:
            single_output_stream_operator.uid(uid)
    streams[-1].print()
    outline = outline_of(stream.get_job_graph("clicks"))
    assert [operator.uid for vertex in outline for operator in vertex.operators] == [*uids, None]


@settings(max_examples=example_count(10))
@given(parts=PARTS, kind=st.sampled_from(SnapshotType))
def test_metadata_survives_round_trip(
    fresh: Callable[[], Storage], parts: tuple[SubtaskSnapshot, ...], kind: SnapshotType
) -> None:
    uri = f"{fresh().uri}/chk-3"
    checkpoint = CompletedCheckpoint(checkpoint_id=3, snapshot_type=kind, uri=uri, generation=1, size=7)
    written = msgspec.structs.replace(at(uri, parts), checkpoint=checkpoint)
    assert write_metadata(written) == Storage.open(uri).size(METADATA)
    assert read_metadata(uri) == read_metadata(f"{uri}/") == read_metadata(f"{uri}/{METADATA}") == written


@settings(max_examples=example_count(10))
@given(data=st.data())
def test_truncated_or_changed_metadata_is_rejected(fresh: Callable[[], Storage], data: st.DataObject) -> None:
    storage = fresh()
    write_metadata(at(storage.uri))
    whole = storage.read(METADATA)
    flipped = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for torn in (cut, whole[:flipped] + bytes([whole[flipped] ^ bit]) + whole[flipped + 1 :]):
        storage.write_atomically(METADATA, torn)
        with pytest.raises((NoCheckpoint, CorruptFile)) as raised:
            read_metadata(storage.uri)
        assert "\n" not in str(raised.value)
        assert storage.uri in str(raised.value)


def test_file_that_is_no_metadata_is_rejected(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(uri: str) -> str:
        with pytest.raises(CheckpointError) as raised:
            read_metadata(uri)
        return str(raised.value).replace(storage.uri, "BASE")

    assert refusal(storage.uri) == "BASE is not a checkpoint or savepoint: it does not exist"
    storage.write_atomically("chk-7/file", b"")
    assert (
        refusal(f"{storage.uri}/chk-7") == "BASE/chk-7 is not a checkpoint or savepoint: it has no _metadata"
    )
    write_checkpoint(storage.uri, 8)
    write_checkpoint(storage.uri, 9)
    assert refusal(storage.uri) == (
        "BASE is not a checkpoint or savepoint: it has no _metadata; it contains chk-8, chk-9: name one"
    )
    storage.write_atomically("other/_metadata", b"\x00\x00\x00\x01something else")
    assert refusal(f"{storage.uri}/other") == (
        "BASE/other/_metadata was not written by tailrace: it begins 00000001736f6d65"
    )
    storage.write_atomically("other/_metadata", b"")
    assert refusal(f"{storage.uri}/other") == "BASE/other/_metadata is truncated: it has 0 bytes"
    monkeypatch.setattr(module, "VERSION", 2)
    write_checkpoint(storage.uri, 9)
    monkeypatch.undo()
    assert refusal(f"{storage.uri}/chk-9") == (
        "BASE/chk-9/_metadata has version 2 and this tailrace reads up to 1: use the newer one"
    )


def test_checkpoint_is_at_the_place_where_it_was_found(fresh: Callable[[], Storage]) -> None:
    old, new = fresh(), fresh()
    written = write_checkpoint(old.uri, 4, shared=["a"], own=["b"])
    for path in ("chk-4/_metadata", "chk-4/b", "shared/a"):
        new.write_atomically(path, old.read(path))
    old.delete_tree("")
    moved = read_metadata(f"{new.uri}/chk-4")
    assert moved.checkpoint.uri == f"{new.uri}/chk-4"
    assert moved.subtasks == written.subtasks
    assert verify(moved) == []
    assert len(verify(written)) == 2


def test_missing_and_damaged_files_are_reported_individually(storage: Storage) -> None:
    files = [plain(storage, f"shared/{name}", "reduce", b"12345678") for name in "abcd"]
    flight = plain(storage, "chk-1/in-flight", "in flight", b"1")
    state = SubtaskState(
        operators={"reduce": OperatorState(files=tuple(files))},
        in_flight=(InFlightState(operator_id="reduce", input=0, partition=0, files=(flight,)),),
    )
    metadata = metadata_of(pipeline(), {("reduce", 0): state}, f"{storage.uri}/chk-1")
    assert verify(metadata, checksums=True) == []
    storage.delete("shared/a")
    storage.write_atomically("shared/b", storage.read("shared/b")[:-1])
    storage.write_atomically("shared/c", storage.read("shared/c")[:-1] + b"?")
    storage.delete("chk-1/in-flight")
    seen = [fault.replace(f"{storage.uri}/", "") for fault in verify(metadata)]
    assert sorted(seen) == [
        "chk-1/in-flight does not exist",
        "shared/a does not exist",
        f"shared/b is truncated: it has {files[1].length - 1} of {files[1].length} bytes",
    ]
    (more,) = set(verify(metadata, checksums=True)) - set(verify(metadata))
    assert "shared/c" in more
    assert "checksum" in more
