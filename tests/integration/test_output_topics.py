"""The output topics of jobs that ended long ago are deleted, and no others."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from waiting import eventually

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.services.dispatcher.output_topics import OutputTopicCleaner
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.log.topics import create_topics

RETENTION_US = 10_000_000
NOW = 100_000_000
JOBS = (
    Job("ended-long-ago", "client/a", Phase.ENDED, 1, ended_at=NOW - RETENTION_US - 1),
    Job("printed-nothing", "client/a", Phase.ENDED, 2, ended_at=NOW - RETENTION_US - 1),
    Job("ended-lately", "client/a", Phase.ENDED, 3, ended_at=NOW - RETENTION_US),
    Job("ends-now", "client/a", Phase.TERMINATED, 4),
    Job("runs", "client/a", Phase.RUNNING, 5),
)


def test_only_topics_of_jobs_that_ended_long_ago_go(kafka: EmbeddedKafka, cluster_id: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    state = DispatcherState()
    for job in JOBS:
        state = state.put(job)
    printed = {output_topic(cluster_id, job_id) for job_id in state.jobs} - {
        output_topic(cluster_id, JOBS[1].job_id)
    }
    printed.add(output_topic(cluster_id, "of-nobody"))
    create_topics(admin, [NewTopic(name, 1, -1) for name in printed])

    known: list[DispatcherState | None] = [None]
    cleaner = OutputTopicCleaner(admin, cluster_id, RETENTION_US, lambda: known[0], lambda: NOW)
    assert cleaner.clean_up() == []
    known[0] = state
    assert eventually(cleaner.clean_up) == [output_topic(cluster_id, JOBS[0].job_id)]

    kept = printed - {output_topic(cluster_id, JOBS[0].job_id)}
    eventually(
        lambda: {name for name in admin.list_topics(timeout=5).topics if name.startswith(cluster_id)} == kept
    )
    assert cleaner.clean_up() == []
