"""Reads which topics a cluster has in Kafka, with the offsets and sizes of their partitions, and what jobs read.

Subtasks copy their positions to consumer groups every 5 s (pipelines/runtime/stream_task/loop/commit_followup.py): they
tell how far a job is behind the end of a channel, or of a user's topic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from ...infra.kafka_log_dirs import read_partition_sizes
from ...infra.logging_setup import logger
from ...pipelines.graph.physical_plan import job_of_topic, jobs_prefix
from .event_log import LogUnavailable

_log = logger(__name__)
_TIMEOUT_S: Final = 10.0
_SIZE_TIMEOUT_S: Final = 2.0
MAX_GROUPS: Final = 200
"""Each subtask has a group, and each group needs a request."""


class PartitionExtent(msgspec.Struct, frozen=True):
    """The first offset of a partition, and the offset after its last one."""

    first: int
    end: int


class TopicExtent(msgspec.Struct, frozen=True):
    """A topic. `job_id`: the job that it belongs to; null for a topic of the cluster. `partitions` by number; null: the
    offsets can't be read now. Marks of transactions take offsets too, so there may be fewer records. `size`: the bytes
    of one copy on disk; null: brokers do not return it."""

    name: str
    job_id: str | None
    partitions: Sequence[PartitionExtent | None]
    size: int | None = None


class ConsumedTopic(msgspec.Struct, frozen=True):
    """A topic that a vertex of a job reads. `partitions`: the number of those whose position is known. `lag`: the
    offsets of these that are not read yet; marks of transactions count."""

    name: str
    job_id: str
    vertex_id: str
    partitions: int
    lag: int


def read_topic_extents(
    admin: AdminClient,
    cluster: str,
    own: Collection[str],
    timeout_s: float = _TIMEOUT_S,
    *,
    is_secured: bool = False,
) -> list[TopicExtent]:
    """Returns the topics of a cluster by name, its `own` ones first. Those that the client may not describe are left
    out. `is_secured`: brokers do not return sizes. Raises LogUnavailable."""
    try:
        metadata = admin.list_topics(timeout=timeout_s)
        listed = metadata.topics
        jobs = {name: job_of_topic(cluster, name) for name in listed}
        names = sorted(
            (name for name in listed if name in own or jobs[name] is not None),
            key=lambda name: (name not in own, name),
        )
        places = [(name, number) for name in names for number in sorted(listed[name].partitions)]
        firsts = _read_offsets(admin, places, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
        ends = _read_offsets(admin, places, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
    except KafkaException as error:
        raise LogUnavailable(f"the topics of {cluster} can't be listed: {error.args[0].str()}") from error
    partitions: dict[str, list[PartitionExtent | None]] = {name: [] for name in names}
    for place in places:
        first, end = firsts.get(place), ends.get(place)
        known = None if first is None or end is None else PartitionExtent(first, max(first, end))
        partitions[place[0]].append(known)
    brokers = [] if is_secured else [(str(each.host), each.port) for each in metadata.brokers.values()]
    sizes = _read_sizes(brokers, places)
    return [TopicExtent(name, jobs[name], partitions[name], sizes.get(name)) for name in names]


def read_consumed_topics(
    admin: AdminClient, cluster: str, timeout_s: float = _TIMEOUT_S
) -> list[ConsumedTopic]:
    """Returns what the jobs of a cluster read, by job, vertex and topic; of the first 200 subtasks. Groups and topics
    that the client may not describe are left out. Raises LogUnavailable."""
    prefix = jobs_prefix(cluster)
    try:
        listed = admin.list_consumer_groups(request_timeout=timeout_s).result().valid
        groups = sorted(each.group_id for each in listed if each.group_id.startswith(prefix))[:MAX_GROUPS]
        positions = {
            (*_vertex_of_group(prefix, group), place.topic, place.partition): place.offset
            for group in groups
            for place in _read_positions(admin, group, timeout_s)
            if place.error is None and place.offset >= 0
        }
        read = sorted({(topic, number) for *_, topic, number in positions})
        ends = _read_offsets(admin, read, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
    except KafkaException as error:
        raise LogUnavailable(f"the positions of jobs can't be read: {error.args[0].str()}") from error
    found: dict[tuple[str, str, str], list[int]] = {}
    for (job_id, vertex_id, topic, number), position in positions.items():
        end = ends.get((topic, number))
        if end is not None:
            found.setdefault((job_id, vertex_id, topic), []).append(max(0, end - position))
    return [
        ConsumedTopic(topic, job_id, vertex_id, len(lags), sum(lags))
        for (job_id, vertex_id, topic), lags in sorted(found.items())
    ]


def _vertex_of_group(prefix: str, group: str) -> tuple[str, str]:
    """Returns the job and the vertex of the group of a subtask."""
    job_id, _, rest = group.removeprefix(prefix).partition(".")
    return job_id, rest.partition(".")[0]


def _read_positions(admin: AdminClient, group: str, timeout_s: float) -> Sequence[TopicPartition]:
    (future,) = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=timeout_s
    ).values()
    try:
        found: Sequence[TopicPartition] = future.result().topic_partitions
    except KafkaException:
        # It was deleted meanwhile.
        return ()
    return found


def _read_sizes(brokers: Sequence[tuple[str, int]], places: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Returns the sizes of topics; none if a broker does not answer."""
    if not brokers or not places:
        return {}
    try:
        found = read_partition_sizes(brokers, places, _SIZE_TIMEOUT_S)
    except OSError as error:
        _log.debug("the sizes of topics can't be read", reason=str(error))
        return {}
    sizes: dict[str, int] = {}
    for (topic, _), size in found.items():
        sizes[topic] = sizes.get(topic, 0) + size
    return sizes


def _read_offsets(
    admin: AdminClient, places: Sequence[tuple[str, int]], spec: OffsetSpec, timeout_s: float
) -> dict[tuple[str, int], int]:
    """Returns the offsets of those partitions that have a leader."""
    if not places:
        return {}
    wanted = {TopicPartition(name, number): spec for name, number in places}
    found = {}
    for place, future in admin.list_offsets(wanted, request_timeout=timeout_s).items():
        try:
            found[place.topic, place.partition] = int(future.result().offset)
        except KafkaException:
            # It was deleted meanwhile, or moves to another broker.
            continue
    return found
