"""The size of a graph in events is bounded: the log grows with the submission, and with the number of TaskExecutors."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import edge, operator, vertex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas import dispatcher
from tailrace.schemas.event import Event
from tailrace.schemas.types import JobGraph, PythonFile
from tailrace.services.blobs.job_blobs import blob_keys, parse, with_code
from tailrace.services.blobs.local_blob_files import BlobFiles
from tailrace.services.blobs.store import VoidBlobStore
from tailrace.services.blobs.tiered_store import TieredBlobStore
from tailrace.services.configuration.options.blob import BLOB_INLINE_SIZE_MAX, BLOB_OFFLOAD_MINSIZE
from tailrace.services.dispatcher.inline_limit import GraphTooLarge, InlineLimit
from tailrace.services.log import Codec

from ..simulated_cluster.cluster import Cluster

MINSIZE, MOST = BLOB_OFFLOAD_MINSIZE.default, BLOB_INLINE_SIZE_MAX.default
SAID_OF_A_TASK_EXECUTOR = 20_000
"""Bytes of all that is said because of one, but for the graph."""
_CODEC = Codec("c.log")
SIZES = st.lists(st.sampled_from((10, 5_000, 300_000, 900_000, MINSIZE, 6_000_000)), min_size=1, max_size=3)


def graph_of(code: list[int], files: list[int], selector: int = 0) -> JobGraph:
    """Returns a job with functions and files of these sizes, and with a key selector."""
    vertices = tuple(
        replace(
            vertex(f"v{number}", replace(operator(f"s{number}", OperatorKind.GENERATOR), code=bytes(size))),
            parallelism=1,
        )
        for number, size in enumerate(code)
    )
    sink = replace(vertex("sink", operator("p", OperatorKind.PRINT)), parallelism=3)
    return JobGraph(
        name="g",
        vertices=(*vertices, sink),
        edges=tuple(
            replace(edge(vertex.vertex_id, "sink"), code=b"" if number else bytes(selector))
            for number, vertex in enumerate(vertices)
        ),
        configuration={},
        python_files=tuple(PythonFile(path=f"f{n}.py", content=bytes(size)) for n, size in enumerate(files)),
    )


def depot(path: Path, largest: int = 1 << 30) -> TieredBlobStore:
    return TieredBlobStore(BlobFiles(path, durable=False), VoidBlobStore(), largest=largest)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(code=SIZES, files=SIZES, task_executors=st.integers(1, 4))
def test_log_has_large_parts_of_job_twice_at_most(
    code: list[int], files: list[int], task_executors: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = depot(tmp_path_factory.mktemp("blobs"))
    graph = graph_of(code, files)
    request = InlineLimit(blobs, MINSIZE, MOST).apply_to_submission(
        dispatcher.SubmitJob(job_id="j", job_graph=graph)
    )
    assert isinstance(request, dispatcher.SubmitJob)
    assert request.job_graph is not None
    assert validate(request.job_graph) == []
    cluster = Cluster()
    cluster.start_master()
    for number in range(task_executors):
        cluster.start_task_executor(f"te-{number}", 3)
    cluster.settle()
    before = len(cluster.log)
    cluster.submit("j", request.job_graph)
    cluster.settle()
    written = sum(len(_CODEC.encode(Event(record.header, record.body))) for record in cluster.log[before:])
    report = len(cluster.events_of("task_executor.JobManagerRegistrationSuccess"))
    assert 1 <= report <= task_executors
    assert written <= 2 * min(MOST, sum(code) + sum(files)) + (2 + report) * SAID_OF_A_TASK_EXECUTOR


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(code=SIZES, files=SIZES)
def test_blob_content_equals_submitted_content(
    code: list[int], files: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    blobs = depot(tmp_path_factory.mktemp("blobs"))
    graph = graph_of(code, files)
    result = InlineLimit(blobs, MINSIZE, MOST).move_to_blobs(graph, "j")
    paths = {key: blobs.file(parse(key, "j")) for key in blob_keys(result)}
    for job_vertex in result.vertices:
        result = with_code(result, job_vertex.vertex_id, paths)
    assert result.vertices == graph.vertices
    contents = [paths[file.blob].read_bytes() if file.blob else file.content for file in result.python_files]
    assert contents == [file.content for file in graph.python_files]


@pytest.mark.parametrize("selector", [MOST - 10_000, MOST + 1])
def test_inline_parts_are_bounded_by_option_that_rejection_names(selector: int, tmp_path: Path) -> None:
    limit = InlineLimit(depot(tmp_path), MINSIZE, MOST)
    graph = graph_of([10], [], selector)
    if selector < MOST:
        assert limit.move_to_blobs(graph, "j") == graph
        return
    with pytest.raises(
        GraphTooLarge, match=r"has 2,09.,... bytes .* blob\.inline\.size\.max allows 2,097,152"
    ):
        limit.move_to_blobs(graph, "j")


def test_rejection_says_why_there_are_no_blobs(tmp_path: Path) -> None:
    with pytest.raises(GraphTooLarge, match=r"cannot be stored as blobs: .* raise blob\.size\.max"):
        InlineLimit(depot(tmp_path, largest=100), MINSIZE, MOST).move_to_blobs(graph_of([6_000_000], []), "j")


@pytest.mark.parametrize(
    "request_body",
    [
        dispatcher.CancelJob(job_id="j"),
        dispatcher.SubmitJob(job_id="j", job_graph=graph_of([100], [100])),
        dispatcher.SubmitJob(job_id="no/id", job_graph=graph_of([1_900_000], [])),
    ],
)
def test_other_requests_are_unchanged(request_body: dispatcher.SubmitJob, tmp_path: Path) -> None:
    assert InlineLimit(depot(tmp_path), MINSIZE, MOST).apply_to_submission(request_body) is request_body
    assert list(tmp_path.rglob("blob_*")) == []
