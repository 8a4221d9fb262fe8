"""Reads which topics a cluster has in Kafka, with the offsets of their partitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from ...pipelines.graph.physical_plan import job_of_topic
from .event_log import LogUnavailable

_TIMEOUT_S: Final = 10.0


class PartitionExtent(msgspec.Struct, frozen=True):
    """The first offset of a partition, and the offset after its last one."""

    first: int
    end: int


class TopicExtent(msgspec.Struct, frozen=True):
    """A topic. `job_id`: the job that it belongs to; null for a topic of the cluster. `partitions` by number; null: the
    offsets can't be read now. Marks of transactions take offsets too, so there may be fewer records."""

    name: str
    job_id: str | None
    partitions: Sequence[PartitionExtent | None]


def read_topic_extents(
    admin: AdminClient, cluster: str, own: Collection[str], timeout_s: float = _TIMEOUT_S
) -> list[TopicExtent]:
    """Returns the topics of a cluster by name, its `own` ones first. Those that the client may not describe are left
    out. Raises LogUnavailable."""
    try:
        listed = admin.list_topics(timeout=timeout_s).topics
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
    return [TopicExtent(name, jobs[name], partitions[name]) for name in names]


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
