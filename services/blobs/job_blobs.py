"""Decides which parts of a job become blobs, and lists the blobs that a job names.

The parts are shipped files and pickled functions. A large part becomes a blob; if all remaining parts together are too
large, so do the largest of them, because every process keeps a job's graph in its states. A job names only
blobs of its own: its id is in their keys. Masters read their content only to build the graph of a program in such
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from ...pipelines.graph.python_files import MAX_BYTES
from ...schemas.types import EntryPoint, JobGraph, JobVertex, OperatorConfig, PythonFile
from .errors import BlobRefused
from .keys import BlobKey

T = TypeVar("T", bound=JobGraph | EntryPoint)
Put = Callable[[bytes], BlobKey]

_MIN_INLINE_BYTES: Final = 1 << 20
"""The bytes of all parts together that may remain in the job, however small `blob.offload.minsize` is."""
_SMALLEST: Final = 4 << 10
"""In bytes; smaller parts never become blobs: a key has a length too."""


def offload(what: T, minsize: int, put: Put) -> T:
    """Returns the request with its large parts stored as blobs: all of at least `minsize` bytes, and more if the rest
    is too large.

    Raises what `put` raises.
    """
    least = least_size(what, minsize)
    if least is None:
        return what
    files = tuple(_file(file, least, put) for file in what.python_files)
    if isinstance(what, EntryPoint):
        return replace(what, python_files=files)
    vertices = tuple(
        replace(vertex, operators=tuple(_operator(operator, least, put) for operator in vertex.operators))
        for vertex in what.vertices
    )
    return replace(what, python_files=files, vertices=vertices)


def least_size(what: JobGraph | EntryPoint, minsize: int) -> int | None:
    """Returns the size from which on a part becomes a blob; None: no part does."""
    sizes = sorted(len(part) for part in _parts(what))
    inline = min(MAX_BYTES, max(minsize, _MIN_INLINE_BYTES))
    rest = sum(sizes)
    least = None
    while sizes and (sizes[-1] >= minsize or (rest > inline and sizes[-1] >= _SMALLEST)):
        least = sizes.pop()
        rest -= least
    return least


def blob_keys(what: JobGraph | EntryPoint) -> list[str]:
    """Returns the blob keys in the request, as text."""
    return [*file_keys(what), *([] if isinstance(what, EntryPoint) else _code_keys(what.vertices))]


def file_keys(what: JobGraph | EntryPoint) -> list[str]:
    """Returns the blob keys of shipped files."""
    return [file.blob for file in what.python_files if file.blob is not None]


def code_keys(graph: JobGraph, vertex_id: str) -> list[str]:
    """Returns the blob keys of one vertex's functions."""
    return list(_code_keys([vertex for vertex in graph.vertices if vertex.vertex_id == vertex_id]))


def with_code(graph: JobGraph, vertex_id: str, blobs: Mapping[str, Path]) -> JobGraph:
    """Returns the graph with the functions of one vertex inserted. `blobs`: key -> file. Raises OSError."""

    def of(operator: OperatorConfig) -> OperatorConfig:
        if operator.code_blob is None:
            return operator
        return replace(operator, code=blobs[operator.code_blob].read_bytes(), code_blob=None)

    vertices = tuple(
        replace(vertex, operators=tuple(of(operator) for operator in vertex.operators))
        if vertex.vertex_id == vertex_id
        else vertex
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices)


def with_owner(graph: JobGraph, job_id: str) -> JobGraph:
    """Returns the graph with the keys of the same blobs under the id of another job."""

    def move(text: str | None) -> str | None:
        return None if text is None else str(BlobKey(BlobKey.parse(text).digest, job_id))

    return replace(
        graph,
        python_files=tuple(replace(file, blob=move(file.blob)) for file in graph.python_files),
        vertices=tuple(
            replace(
                vertex,
                operators=tuple(
                    replace(operator, code_blob=move(operator.code_blob)) for operator in vertex.operators
                ),
            )
            for vertex in graph.vertices
        ),
    )


def find_fault(what: JobGraph | EntryPoint, job_id: str) -> str | None:
    """Returns why a job may not name its blobs, in one line; None if it may."""
    for text in blob_keys(what):
        try:
            parse(text, job_id)
        except BlobRefused as error:
            return str(error)
    return None


def parse(text: str, job_id: str) -> BlobKey:
    """Parses a blob key of a job. Raises BlobRefused for a key of another job."""
    try:
        key = BlobKey.parse(text)
    except ValueError as error:
        raise BlobRefused(str(error)) from error
    if key.job_id != job_id:
        raise BlobRefused(f"{key} is not a blob of job {job_id}: its key must begin with permanent/{job_id}/")
    return key


def _parts(what: JobGraph | EntryPoint) -> Iterator[bytes]:
    for file in what.python_files:
        yield file.content
    if isinstance(what, JobGraph):
        for vertex in what.vertices:
            for operator in vertex.operators:
                yield operator.code


def _file(file: PythonFile, least: int, put: Put) -> PythonFile:
    if len(file.content) < least:
        return file
    return replace(file, content=b"", blob=str(put(file.content)))


def _operator(operator: OperatorConfig, least: int, put: Put) -> OperatorConfig:
    if len(operator.code) < least:
        return operator
    return replace(operator, code=b"", code_blob=str(put(operator.code)))


def _code_keys(vertices: Sequence[JobVertex]) -> Iterator[str]:
    for vertex in vertices:
        for operator in vertex.operators:
            if operator.code_blob is not None:
                yield operator.code_blob
