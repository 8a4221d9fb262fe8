"""Large parts of a job become blobs, and further parts until the rest fits into an event."""

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
    with_owner,
)
from tailrace.services.blobs.keys import BlobKey


class Blobs:
    """Stores uploaded blobs in files."""

    def __init__(self, directory: Path | None = None) -> None:
        self.contents: dict[str, bytes] = {}
        self.directory = directory

    def put(self, content: bytes) -> BlobKey:
        key = BlobKey(hashlib.sha256(content).hexdigest(), "job")
        self.contents[str(key)] = content
        return key

    def paths(self, keys: list[str]) -> dict[str, Path]:
        assert self.directory is not None
        for number, key in enumerate(keys):
            (self.directory / str(number)).write_bytes(self.contents[key])
        return {key: self.directory / str(number) for number, key in enumerate(keys)}


def files(*sizes: int) -> tuple[PythonFile, ...]:
    return tuple(
        PythonFile(path=f"f{number}", content=bytes([number % 256]) * size)
        for number, size in enumerate(sizes)
    )


def graph_of(*code: bytes, **changes: object) -> JobGraph:
    operators = [operator(f"o{number}", code=value) for number, value in enumerate(code)]
    return job_graph(source(), vertex("map", *operators), edge("source", "map"), **changes)


@given(st.lists(st.integers(0, 3000), max_size=20), st.integers(0, 2000))
def test_only_large_files_become_blobs(sizes: list[int], minsize: int) -> None:
    blobs = Blobs()
    program = EntryPoint(target="a:b", arguments=(), python_files=files(*sizes))
    made = offload(program, minsize, blobs.put)
    for before, after in zip(program.python_files, made.python_files, strict=True):
        if len(before.content) >= minsize:
            assert after == PythonFile(path=before.path, content=b"", blob=after.blob)
            assert blobs.contents[after.blob or ""] == before.content
        else:
            assert after == before
    assert replace(made, python_files=program.python_files) == program
    assert not list(validation_errors(made.python_files))
    assert find_fault(made, "job") is None


def test_inline_parts_together_are_below_blob_threshold() -> None:
    """Each TaskExecutor gets them through the log."""
    minsize = 1 << 20
    entry_point = EntryPoint(
        target="a:b", arguments=(), python_files=files(*(minsize // 4 + number for number in range(20)))
    )
    made = offload(entry_point, minsize, Blobs().put)
    assert sum(len(file.content) for file in made.python_files) <= minsize
    assert [file.blob is None for file in made.python_files] == [True] * 3 + [False] * 17
    whole = offload(entry_point, 1 << 40, Blobs().put)
    assert whole == entry_point


def test_further_parts_become_blobs_until_rest_fits() -> None:
    sizes = [MAX_BYTES // 4] * 6
    made = offload(EntryPoint(target="a:b", arguments=(), python_files=files(*sizes)), 1 << 30, Blobs().put)
    assert not list(validation_errors(made.python_files))
    distinct = [MAX_BYTES // 4 + number for number in range(6)]
    made = offload(
        EntryPoint(target="a:b", arguments=(), python_files=files(*distinct)), 1 << 30, Blobs().put
    )
    assert [file.blob is not None for file in made.python_files] == [False] * 3 + [True] * 3


def test_job_of_small_parts_is_same_object() -> None:
    graph = graph_of(b"code", python_files=files(10))
    assert least_size(graph, 100) is None
    assert offload(graph, 100, Blobs().put) is graph


def test_large_functions_become_blobs_and_are_restored(tmp_path: Path) -> None:
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


def test_graph_names_same_blobs_of_other_job() -> None:
    made = offload(graph_of(b"x" * 2000, b"small", python_files=files(1500, 3)), 1000, Blobs().put)
    moved = with_owner(made, "other")
    assert find_fault(moved, "other") is None
    assert [BlobKey.parse(key).digest for key in blob_keys(moved)] == [
        BlobKey.parse(key).digest for key in blob_keys(made)
    ]
    assert with_owner(moved, "job") == made


def test_failed_upload_changes_nothing() -> None:
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
def test_job_references_only_its_own_blobs(key: str) -> None:
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


def test_content_together_with_blob_of_same_content_is_rejected() -> None:
    key = f"permanent/job/{'a' * 64}"
    (reason,) = validation_errors([PythonFile(path="f", content=b"x", blob=key)])
    assert "'f'" in reason
    graph = graph_of(b"x")
    head = graph.vertices[1]
    changed = replace(head, operators=(replace(head.operators[0], code_blob=key),))
    assert any("only one" in item for item in validate(replace(graph, vertices=(graph.vertices[0], changed))))
