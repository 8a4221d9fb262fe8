"""The physical plan: the names of a job's topics, groups and transactional ids in Kafka. No other module composes
them.

A channel is an IntermediateDataSet as a topic, with a partition for each receiving subtask. A changelog holds the
progress and the state of a vertex, with a partition for each of its subtasks. The output topic holds the printed
records, in one partition.

Channels and changelogs are deleted with the run of a job; the output topic stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...schemas.types import JobGraph, JobVertex, OperatorConfig
from .execution_mode import has_slot_processes
from .operators import traits_of

TOPIC_NAME_LIMIT = 249
"""Kafka's limit for the length of a topic name."""
WARM_UP_TOPIC = "tailrace.warm-up"
"""An empty topic that TaskExecutors of all clusters read once, before their first job."""


def jobs_prefix(cluster: str) -> str:
    """Returns the prefix of the topics, consumer groups and transactional ids of all jobs.

    No part of a cluster's id is `job`. So no name of another cluster begins like this, also if its id begins with that
    of this one and a dot.
    """
    return f"{cluster}.job."


def channel_topic(cluster: str, job: str, data_set_id: str) -> str:
    """Returns the channel of a JobEdge: subtask i of its target vertex reads partition i."""
    return f"{jobs_prefix(cluster)}{job}.{data_set_id}"


def changelog_topic(cluster: str, job: str, vertex_id: str) -> str:
    """Returns the changelog of a vertex: partition i holds the progress and the state of subtask i."""
    return f"{jobs_prefix(cluster)}{job}.{vertex_id}.changelog"


def output_topic(cluster: str, job: str) -> str:
    """Returns the topic of the job's print sinks: one JSON message per record."""
    return f"{jobs_prefix(cluster)}{job}.output"


def job_of_topic(cluster: str, topic: str) -> str | None:
    """Returns the job of a topic; None if it is not a job's topic. A job id has no dot."""
    prefix = jobs_prefix(cluster)
    return topic.removeprefix(prefix).partition(".")[0] if topic.startswith(prefix) else None


def consumer_group(cluster: str, job: str, vertex_id: str, subtask: int) -> str:
    """Returns the consumer group to which a subtask copies its positions, for tools."""
    return f"{jobs_prefix(cluster)}{job}.{vertex_id}.{subtask}"


def transaction_vertex(graph: JobGraph, vertex_id: str) -> str:
    """Returns the vertex that names the transactions of a subtask. If a slot is one process, that is the first one of
    the slot sharing group."""
    if not has_slot_processes(graph.configuration):
        return vertex_id
    groups = {vertex.vertex_id: vertex.slot_sharing_group or vertex.vertex_id for vertex in graph.vertices}
    return next(name for name, group in groups.items() if group == groups[vertex_id])


def transactional_id(cluster: str, job: str, vertex_id: str, subtask: int) -> str:
    """Returns the id of an ExecutionVertex, not of an attempt: init_transactions of a new attempt fences the old
    one."""
    return f"{jobs_prefix(cluster)}{job}.{vertex_id}.{subtask}"


def external_sink_id(cluster: str, job: str, operator_id: str, subtask: int) -> str:
    """Returns the transactional id and the consumer group of a sink in another Kafka cluster."""
    return f"{jobs_prefix(cluster)}{job}.{operator_id}.{subtask}.sink"


def keeps_state(vertex: JobVertex) -> bool:
    """Whether an operator of the vertex has state or may count: accumulators are stored like state."""
    return any(traits_of(operator.kind).stateful or _may_count(operator) for operator in vertex.operators)


def _may_count(operator: OperatorConfig) -> bool:
    try:
        return msgspec.json.decode(operator.parameters, type=_Rich).rich
    except msgspec.MsgspecError:
        return False


class _Rich(msgspec.Struct):
    rich: bool = False


def has_output(graph: JobGraph) -> bool:
    """Whether the job has a print sink."""
    return any(traits_of(o.kind).prints for vertex in graph.vertices for o in vertex.operators)


def channels(cluster: str, job: str, graph: JobGraph) -> Mapping[str, int]:
    """Returns channel topic -> number of partitions, the parallelism of the receiving vertex."""
    parallelism = {vertex.vertex_id: vertex.parallelism for vertex in graph.vertices}
    return {
        channel_topic(cluster, job, edge.data_set_id): parallelism[edge.target_vertex_id]
        for edge in graph.edges
    }


def changelogs(cluster: str, job: str, graph: JobGraph) -> Mapping[str, int]:
    """Returns changelog topic -> number of partitions, the parallelism of the vertex."""
    return {changelog_topic(cluster, job, vertex.vertex_id): vertex.parallelism for vertex in graph.vertices}


def taken_names(graph: JobGraph) -> Mapping[str, str]:
    """Returns data set ids that no JobEdge may have -> the topic that their channel would collide with.

    Kafka's metric names do not distinguish `_` and `.`, so topic names that differ only in these collide.
    """
    changelogs = {
        f"{vertex.vertex_id}_changelog": f"vertex {vertex.vertex_id[:80]!r}" for vertex in graph.vertices
    }
    return {"output": "output", **changelogs}


def topics(cluster: str, job: str, graph: JobGraph) -> Mapping[str, int]:
    """Returns all topics that must exist before the job's tasks are deployed -> number of partitions."""
    output = {output_topic(cluster, job): 1} if has_output(graph) else {}
    return {**temporary_topics(cluster, job, graph), **output}


def temporary_topics(cluster: str, job: str, graph: JobGraph) -> Mapping[str, int]:
    """Returns those of `topics` that are deleted after the job has ended."""
    return {**channels(cluster, job, graph), **changelogs(cluster, job, graph)}
