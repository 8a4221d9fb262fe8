"""State files: what is read equals what was written, or raises; the content of a cut does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import CheckpointError, CorruptFile, MissingFile, StorageError
from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint import state_files
from tailrace.pipelines.checkpoint.delta_writer import DeltaWriter
from tailrace.pipelines.checkpoint.state_files import (
    GrowingFile,
    Section,
    Sections,
    check,
    in_flight_key,
    in_flight_message,
    in_flight_type,
    read_in_flight,
    read_messages,
    read_section,
)
from tailrace.schemas.types import StateFile

MESSAGES = st.lists(st.binary(max_size=30), max_size=6)


@pytest.fixture(scope="module", params=[16, 8 << 20])
def chunk(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reads sections at once, or in chunks that are smaller than messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_files, "_CHUNK", request.param)
        yield


def messages_of(storage: Storage, files: tuple[StateFile, ...], key: str) -> list[bytes]:
    return [message for file in files for message in read_messages(storage, file, key)]


@settings(max_examples=example_count(20))
@given(sections=st.lists(st.tuples(st.text(max_size=8), MESSAGES, st.integers(0, 3)), max_size=5))
def test_each_section_has_its_messages(
    fresh: Callable[[], Storage], chunk: None, sections: list[tuple[str, list[bytes], int]]
) -> None:
    storage = fresh()
    with Sections(storage, "shared/full") as file:
        written = [file.add(key, iter(messages), first, first + 1) for key, messages, first in sections]
    for stretch, (key, messages, first) in zip(written, sections, strict=True):
        assert list(read_messages(storage, stretch, key)) == messages
        assert read_section(storage, stretch) == Section(key, first, first + 1)
        check(storage, stretch)
    assert sum(stretch.length for stretch in written) == file.length
    assert storage.sizes("shared") == ({"full": file.length} if written else {}), (
        "a file that nothing names stays for ever"
    )


@settings(max_examples=example_count(20))
@given(cuts=st.lists(MESSAGES, max_size=6))
def test_each_cut_has_exactly_what_was_written_before_it(
    fresh: Callable[[], Storage], chunk: None, cuts: list[list[bytes]]
) -> None:
    storage = fresh()
    deltas = DeltaWriter(storage, "shared", "vertex-0", "operator")
    taken = []
    messages: list[bytes] = []
    for new in cuts:
        deltas.append(new)
        messages += new
        taken.append((list(messages), deltas.cut()))
    deltas.close()
    for expected, files in taken:
        assert messages_of(storage, files, "operator") == expected
    if taken and not messages:
        assert taken[-1][1] == ()
        assert storage.sizes("shared") == {}
    assert deltas.length == sum(map(len, messages))


@settings(max_examples=example_count(20))
@given(messages=MESSAGES, data=st.data())
def test_any_truncation_or_changed_byte_is_detected(
    fresh: Callable[[], Storage], chunk: None, messages: list[bytes], data: st.DataObject
) -> None:
    storage = fresh()
    with Sections(storage, "f") as file:
        stretch = file.add("operator", messages)
    whole = storage.read("f")
    end = data.draw(st.integers(0, len(whole) - 1))
    flipped = data.draw(st.integers(0, len(whole) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    for torn in (whole[:end], whole[:flipped] + bytes([whole[flipped] ^ bit]) + whole[flipped + 1 :]):
        storage.write_atomically("f", torn)
        for read in (check, lambda *args: list(read_messages(*args))):
            with pytest.raises(CorruptFile, match="f"):
                read(storage, stretch)
    storage.write_atomically("f", whole + b"what came after the cut")
    assert list(read_messages(storage, stretch)) == messages


def test_damaged_section_returns_no_message(storage: Storage, chunk: None) -> None:
    with Sections(storage, "f") as file:
        stretch = file.add("operator", [b"first" * 10, b"second" * 10])
    whole = storage.read("f")
    storage.write_atomically("f", whole[:-1] + b"?")
    with pytest.raises(CorruptFile, match="checksum"):
        next(read_messages(storage, stretch))


def test_reader_of_state_of_other_operator_gets_error(storage: Storage) -> None:
    with Sections(storage, "f") as file:
        stretch = file.add("operator", [b"1"])
    with pytest.raises(CorruptFile, match="contains messages of 'operator', not of 'other'"):
        list(read_messages(storage, stretch, "other"))
    storage.delete("f")
    with pytest.raises(MissingFile, match=r"/f does not exist$"):
        list(read_messages(storage, stretch, "operator"))


@settings(max_examples=example_count(20))
@given(buffers=st.lists(st.tuples(st.integers(0, 2**31), st.binary(max_size=20)), max_size=5))
def test_in_flight_buffers_keep_their_senders(
    fresh: Callable[[], Storage], buffers: list[tuple[int, bytes]]
) -> None:
    storage = fresh()
    key = in_flight_key("operator", 1, 3)
    with Sections(storage, "chk-1/in-flight") as file:
        stretch = file.add(
            key, [in_flight_type(b'"int"'), *(in_flight_message(*buffer) for buffer in buffers)]
        )
    assert list(read_in_flight(storage, stretch)) == [(None, b'"int"'), *buffers]
    assert read_section(storage, stretch).key == key


def test_file_does_not_grow_after_failed_write_and_its_cuts_stay_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.infra.storage import local_files

    storage = Storage.open(str(tmp_path))
    file = GrowingFile(storage, "f", "operator")
    file.append([b"1"])
    cut = file.cut()
    write_all = local_files.write_all

    def half(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local_files, "write_all", half)
    with pytest.raises(StorageError, match="No space left"):
        file.append([b"22222222"])
    monkeypatch.undo()
    with pytest.raises(ValueError, match="closed"):
        file.append([b"3"])
    assert list(read_messages(storage, cut, "operator")) == [b"1"]


def test_attempts_write_separate_files(storage: Storage) -> None:
    chains = [DeltaWriter(storage, "shared", "vertex-0", "operator") for _ in range(3)]
    cuts = []
    for number, chain in enumerate(chains):
        chain.append([b"%d" % number])
        cuts.append(chain.cut())
    assert [messages_of(storage, cut, "operator") for cut in cuts] == [[b"0"], [b"1"], [b"2"]]
    assert issubclass(CorruptFile, CheckpointError)
