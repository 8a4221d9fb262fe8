"""Topics of jobs that have ended are deleted, and no others: output after its retention, the rest after a minute."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from waiting import eventually

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.physical_plan import changelog_topic, channel_topic, output_topic
from tailrace.services.dispatcher.job_topics import JobTopicCleaner
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.log.topics import create_topics

RETENTION_US = 100_000_000
GRACE_US = 60_000_000
NOW = 1_000_000_000
JOBS = (
    Job("ended-long-ago", "client/a", Phase.ENDED, 1, ended_at=NOW - RETENTION_US - 1),
    Job("printed-nothing", "client/a", Phase.ENDED, 2, ended_at=NOW - RETENTION_US - 1),
    Job("ended-lately", "client/a", Phase.ENDED, 3, ended_at=NOW - GRACE_US - 1),
    Job("has-just-ended", "client/a", Phase.ENDED, 4, ended_at=NOW - GRACE_US),
    Job("ends-now", "client/a", Phase.TERMINATED, 5),
    Job("is-suspended", "client/a", Phase.SUSPENDED, 6),
    Job("runs", "client/a", Phase.RUNNING, 7),
)


def test_only_topics_of_jobs_that_have_ended_go(kafka: EmbeddedKafka, cluster_id: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    state = DispatcherState()
    for job in JOBS:
        state = state.put(job)
    names = [*state.jobs, "of-nobody"]
    outputs = {name: output_topic(cluster_id, name) for name in names if name != "printed-nothing"}
    others = {
        name: {channel_topic(cluster_id, name, "v1-v2"), changelog_topic(cluster_id, name, "v1")}
        for name in names
    }
    there = {*outputs.values(), *(each for topics in others.values() for each in topics)}
    create_topics(admin, [NewTopic(name, 1, -1) for name in there])

    known: list[DispatcherState | None] = [None]
    cleaner = JobTopicCleaner(admin, cluster_id, RETENTION_US, lambda: known[0], lambda: NOW)
    assert cleaner.clean_up() == []
    known[0] = state
    gone = {outputs["ended-long-ago"]}
    for name in ("ended-long-ago", "printed-nothing", "ended-lately"):
        gone |= others[name]
    found: set[str] = set()

    def has_seen_all() -> bool:
        found.update(cleaner.clean_up())
        return found == gone

    eventually(has_seen_all)
    eventually(
        lambda: (
            {name for name in admin.list_topics(timeout=5).topics if name.startswith(cluster_id)}
            == there - gone
        )
    )
    assert cleaner.clean_up() == []
