"""Which parts of a job become blobs: the large ones, and as many more as the rest needs to fit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from graphs import edge, job_graph, operator, source, vertex
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.python_files import MAX_BYTES, validation_errors
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas.types import EntryPoint, JobGraph, PythonFile
from tailrace.services.blobs.errors import BlobRefused, BlobUnavailable
from tailrace.services.blobs.job_blobs import (
    blob_keys,
    code_keys,
    file_keys,
    find_fault,
    least_size,
    offload,
    parse,
    with_code,
)
from tailrace.services.blobs.keys import BlobKey


class Blobs:
    """Keeps what is put, in files."""

    def __init__(self, directory: Path | None = None) -> None:
        self.kept: dict[str, bytes] = {}
        self.directory = directory

    def put(self, content: bytes) -> BlobKey:
        key = BlobKey(hashlib.sha256(content).hexdigest(), "job")
        self.kept[str(key)] = content
        return key

    def paths(self, keys: list[str]) -> dict[str, Path]:
        assert self.directory is not None
        for number, key in enumerate(keys):
            (self.directory / str(number)).write_bytes(self.kept[key])
        return {key: self.directory / str(number) for number, key in enumerate(keys)}


def files(*sizes: int) -> tuple[PythonFile, ...]:
    return tuple(
        PythonFile(path=f"f{number}", content=bytes([number % 256]) * size)
        for number, size in enumerate(sizes)
    )


def graph_of(*code: bytes, **changes: object) -> JobGraph:
    operators = [operator(f"o{number}", code=each) for number, each in enumerate(code)]
    return job_graph(source(), vertex("map", *operators), edge("source", "map"), **changes)


@given(st.lists(st.integers(0, 3000), max_size=20), st.integers(0, 2000))
def test_the_large_files_become_blobs_and_no_others(sizes: list[int], minsize: int) -> None:
    blobs = Blobs()
    program = EntryPoint(target="a:b", arguments=(), python_files=files(*sizes))
    made = offload(program, minsize, blobs.put)
    for before, after in zip(program.python_files, made.python_files, strict=True):
        if len(before.content) >= minsize:
            assert after == PythonFile(path=before.path, content=b"", blob=after.blob)
            assert blobs.kept[after.blob or ""] == before.content
        else:
            assert after == before
    assert replace(made, python_files=program.python_files) == program
    assert not list(validation_errors(made.python_files))
    assert find_fault(made, "job") is None


def test_what_stays_in_a_job_has_no_more_together_than_what_becomes_a_blob_by_itself() -> None:
    """Each TaskExecutor is sent it, through the log."""
    minsize = 1 << 20
    entry_point = EntryPoint(
        target="a:b", arguments=(), python_files=files(*(minsize // 4 + number for number in range(20)))
    )
    made = offload(entry_point, minsize, Blobs().put)
    assert sum(len(each.content) for each in made.python_files) <= minsize
    assert [each.blob is None for each in made.python_files] == [True] * 3 + [False] * 17
    whole = offload(entry_point, 1 << 40, Blobs().put)
    assert whole == entry_point


def test_as_many_more_become_blobs_as_the_rest_needs_to_fit() -> None:
    sizes = [MAX_BYTES // 4] * 6
    made = offload(EntryPoint(target="a:b", arguments=(), python_files=files(*sizes)), 1 << 30, Blobs().put)
    assert not list(validation_errors(made.python_files))
    distinct = [MAX_BYTES // 4 + number for number in range(6)]
    made = offload(
        EntryPoint(target="a:b", arguments=(), python_files=files(*distinct)), 1 << 30, Blobs().put
    )
    assert [each.blob is not None for each in made.python_files] == [False] * 3 + [True] * 3


def test_a_job_of_small_parts_is_the_same_object() -> None:
    graph = graph_of(b"code", python_files=files(10))
    assert least_size(graph, 100) is None
    assert offload(graph, 100, Blobs().put) is graph


def test_large_functions_become_blobs_and_come_back(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    graph = graph_of(b"x" * 2000, b"small", b"y" * 1000, python_files=files(1500, 3))
    made = offload(graph, 1000, blobs.put)
    assert validate(made) == []
    assert blob_keys(made) == [*file_keys(made), *code_keys(made, "map")]
    assert (len(file_keys(made)), len(code_keys(made, "map")), code_keys(made, "source")) == (1, 2, [])
    assert find_fault(made, "job") is None
    assert with_code(made, "source", {}) == made
    restored = with_code(made, "map", blobs.paths(code_keys(made, "map")))
    assert restored.vertices == graph.vertices
    assert restored.python_files == made.python_files


def test_what_can_not_be_put_changes_nothing() -> None:
    def refuse(_: bytes) -> BlobKey:
        raise BlobUnavailable("the server is gone")

    with pytest.raises(BlobUnavailable):
        offload(graph_of(b"x" * 2000), 1000, refuse)


@pytest.mark.parametrize(
    "key",
    [
        f"permanent/other/{'a' * 64}",
        f"permanent/{'a' * 64}",
        f"transient/job/{'a' * 64}",
        f"permanent/job/../{'a' * 64}",
        "",
        "/etc/passwd",
    ],
)
def test_a_job_names_blobs_of_its_own_only(key: str) -> None:
    with pytest.raises(BlobRefused):
        parse(key, "job")
    of_file = EntryPoint(
        target="a:b", arguments=(), python_files=(PythonFile(path="f", content=b"", blob=key),)
    )
    assert find_fault(of_file, "job") is not None
    of_code = graph_of(b"")
    head = of_code.vertices[1]
    changed = replace(head, operators=(replace(head.operators[0], code_blob=key),))
    assert find_fault(replace(of_code, vertices=(of_code.vertices[0], changed)), "job") is not None


def test_content_and_a_blob_that_is_the_content_are_one_too_many() -> None:
    key = f"permanent/job/{'a' * 64}"
    (reason,) = validation_errors([PythonFile(path="f", content=b"x", blob=key)])
    assert "'f'" in reason
    graph = graph_of(b"x")
    head = graph.vertices[1]
    changed = replace(head, operators=(replace(head.operators[0], code_blob=key),))
    assert any("only one" in each for each in validate(replace(graph, vertices=(graph.vertices[0], changed))))
