"""A large JobGraph is in a blob, and the log has it once for the submission and once for the start of its job."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import edge, job_graph, operator, vertex
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph.limits import MAX_INLINE_GRAPH_BYTES
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.event import Event
from tailrace.schemas.task_executor import JobManagerRegistrationSuccess
from tailrace.schemas.types import JobGraph
from tailrace.services.blobs import job_graph_blob
from tailrace.services.blobs.errors import BlobNotFound, BlobRefused
from tailrace.services.blobs.keys import BlobKey
from tailrace.services.blobs.local_blob_files import BlobFiles
from tailrace.services.blobs.store import VoidBlobStore
from tailrace.services.blobs.tiered_store import TieredBlobStore
from tailrace.services.log import Codec
from tailrace.services.processes.blobs import find_graph

from ..simulated_cluster.cluster import Cluster, start_cluster

OPTIONS = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4)
AMOUNTS = st.dictionaries(st.text(max_size=3), st.floats(0, 9), max_size=4)


def graph_of(size: int, **changes: object) -> JobGraph:
    """Returns a valid graph with functions of so many bytes."""
    own = operator("o", code=b"c" * size)
    head = vertex("source", operator("s", OperatorKind.GENERATOR))
    return replace(job_graph(head, vertex("v", own), edge("source", "v")), **changes)


@given(options=OPTIONS, size=st.sampled_from((1, 100_000)))
def test_blob_has_graph_whatever_the_order_of_its_maps(options: dict[str, str], size: int) -> None:
    graph = graph_of(size, configuration=options)
    reversed_ = replace(graph, configuration=dict(reversed(options.items())))
    content = job_graph_blob.encode("j", graph)
    assert job_graph_blob.decode(content, "here") == graph
    assert job_graph_blob.encode("j", reversed_) == content


@pytest.mark.parametrize("content", [b"", b"rubbish", Codec("t").encode], ids=["empty", "rubbish", "event"])
def test_other_content_is_refused(content: object) -> None:
    if callable(content):
        header = job_graph_blob._HEADER
        content = content(Event(header, JobManagerRegistrationSuccess(job_id="j")))
    assert isinstance(content, bytes)
    with pytest.raises(BlobRefused, match="here is not a job graph"):
        job_graph_blob.decode(content, "here")


@pytest.mark.parametrize("is_large", [False, True])
def test_only_large_graph_has_key(is_large: bool) -> None:
    smallest = len(job_graph_blob.encode("j", graph_of(1)))
    # The length of the function takes two more bytes than a length of 1.
    graph = graph_of(1 + MAX_INLINE_GRAPH_BYTES - smallest - 2 + is_large)
    assert (job_graph_blob.key_of("j", graph) is not None) is is_large


def bytes_to_start(graph: JobGraph, task_executors: int) -> tuple[int, list[JobManagerRegistrationSuccess]]:
    """Returns the bytes that the log gets by a job with a slot on each TaskExecutor, and what these receive."""
    cluster, codec = Cluster(), Codec("c.log")
    cluster.start_master()
    for number in range(task_executors):
        cluster.start_task_executor(f"te-{number}", 1)
    cluster.settle()
    before = len(cluster.log)
    cluster.submit("j", graph)
    cluster.settle()
    assert cluster.replica.states["job_master/j"].is_fully_running
    sent = [record.body for record in cluster.events_of("task_executor.JobManagerRegistrationSuccess")]
    size = sum(len(codec.encode(Event(record.header, record.body))) for record in cluster.log[before:])
    return size, [body for body in sent if isinstance(body, JobManagerRegistrationSuccess)]


def test_log_has_large_graph_twice_for_any_number_of_task_executors() -> None:
    wide = [replace(each, parallelism=40, slot_sharing_group="g") for each in graph_of(1).vertices]
    small, _ = bytes_to_start(graph_of(1, vertices=tuple(wide)), 40)
    wide[1] = replace(wide[1], operators=(operator("o", code=b"c" * 1_000_000),))
    large, sent = bytes_to_start(graph_of(1, vertices=tuple(wide)), 40)
    assert len(sent) == 40
    assert all(body.job_graph is None and body.job_graph_blob is not None for body in sent)
    assert large < small + 2 * 1_000_000 + 40 * 200


def test_every_jobmanager_serves_graph_from_its_states(tmp_path: Path) -> None:
    cluster = start_cluster("te", slots=2)
    cluster.submit("j", graph_of(100_000))
    cluster.settle()
    (sent,) = cluster.events_of("task_executor.JobManagerRegistrationSuccess")
    assert isinstance(sent.body, JobManagerRegistrationSuccess)
    key = BlobKey.parse(sent.body.job_graph_blob or "")
    # A disk that has never had it.
    depot = TieredBlobStore(BlobFiles(tmp_path, durable=False), VoidBlobStore(), largest=1 << 20)
    depot.find_in_state = lambda key: find_graph(cluster.replica, key)
    found = job_graph_blob.read(depot.file(key))
    assert found.vertices == graph_of(100_000).vertices
    for other in (BlobKey("0" * 64, "j"), BlobKey(key.digest, "k")):
        with pytest.raises(BlobNotFound):
            depot.file(other)
