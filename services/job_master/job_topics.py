"""The topics that a job needs before its tasks are deployed, with their settings.

The JobMaster's shell creates those that do not exist. `tailrace plan --topics` prints them for somebody else.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from ...pipelines.graph.physical_plan import output_topic, topics
from ...schemas.types import JobGraph
from ..core.role import Time
from ..log.topic_options import TopicOptions
from ..log.topics import DELETE, KAFKAS_TIME, KEEP_FOR_EVER

_PREFERRED: Final = {"segment.bytes": str(64 << 20)}
"""Tasks delete records that nobody reads again (commit_followup.py), but Kafka frees only whole segments."""
_REQUIRED: Final = DELETE | KEEP_FOR_EVER | KAFKAS_TIME | {"max.message.bytes": str((1 << 20) + 12)}
"""Kafka's default size, whatever the broker's: buffers are made for it (buffers.py)."""


def new_job_topics(
    cluster: str, job_id: str, graph: JobGraph, options: TopicOptions, output_retention: Time
) -> list[NewTopic]:
    """Returns the channels, the changelogs and the output of a job.

    `output_retention`: for how long Kafka keeps the output, in microseconds, also while the job runs.
    """
    printed = output_topic(cluster, job_id)
    output = _REQUIRED | {"retention.ms": str(output_retention // 1000)}
    return [
        options.new_topic(name, partitions, output if name == printed else _REQUIRED, _PREFERRED)
        for name, partitions in topics(cluster, job_id, graph).items()
    ]
