"""The Kafka resources of a job."""

from __future__ import annotations

import re

from graphs import edge, job_graph, operator, source, stream_graphs, vertex
from hypothesis import given

from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.physical_plan import (
    TOPIC_NAME_LIMIT,
    keeps_state,
    temporary_topics,
    topics,
)
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.schemas.types import Partitioner

WORD_COUNT = job_graph(
    source(),
    vertex("split", parallelism=4),
    vertex(
        "count",
        operator("reduce", OperatorKind.WINDOW),
        operator("print", OperatorKind.PRINT),
        parallelism=3,
    ),
    edge("source", "split", data_set_id="lines"),
    edge("split", "count", Partitioner.HASH, data_set_id="words"),
)


def test_channels_have_partition_per_receiver_and_changelogs_per_subtask() -> None:
    assert topics("c", "job-1", WORD_COUNT) == {
        "c.job.job-1.lines": 4,
        "c.job.job-1.words": 3,
        "c.job.job-1.source.changelog": 1,
        "c.job.job-1.split.changelog": 4,
        "c.job.job-1.count.changelog": 3,
        "c.job.job-1.output": 1,
    }


def test_everything_except_output_is_deleted_with_job() -> None:
    kept = topics("c", "j", WORD_COUNT).keys() - temporary_topics("c", "j", WORD_COUNT).keys()
    assert kept == {"c.job.j.output"}


@given(stream_graphs())
def test_names_are_valid_topic_names(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    names = topics("cluster-of-some-length", "j" * 64, job)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) and len(name) <= TOPIC_NAME_LIMIT for name in names)
    prints = any(TRAITS[of.kind].prints for vertex in job.vertices for of in vertex.operators)
    assert len(names) == len(job.edges) + len(job.vertices) + prints


def test_vertices_that_may_count_have_changelog() -> None:
    plain, rich = operator("plain", OperatorKind.MAP), operator("rich", parameters='{"rich": true}')
    assert [keeps_state(job_vertex) for job_vertex in (vertex("a", plain), vertex("b", rich))] == [
        False,
        True,
    ]
