"""Topics of ended jobs are deleted, and no others: output after its retention, the rest after a minute."""

from __future__ import annotations

import queue

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]
from graphs import edge, job_graph, operator, source, vertex
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.physical_plan import changelog_topic, channel_topic, output_topic, topics
from tailrace.pipelines.runtime.common.offset_bounds import bounds
from tailrace.schemas.job_master import ChannelsCreated
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher.job_topic_cleaner import JobTopicCleaner
from tailrace.services.dispatcher.state import DispatcherState, Job, Phase
from tailrace.services.job_master.instructions import CreateChannels
from tailrace.services.job_master.shell import JobMasterShell
from tailrace.services.log.clients import retry_until
from tailrace.services.log.topics import add_partitions, create_topics, describe_topics

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


def test_only_topics_of_ended_jobs_are_deleted(kafka: EmbeddedKafka, cluster_id: str) -> None:
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
    there = {*outputs.values(), *(item for of_job in others.values() for item in of_job)}
    create_topics(admin, [NewTopic(name, 1, -1) for name in there])

    known: list[DispatcherState | None] = [None]
    cleaner = JobTopicCleaner(admin, cluster_id, RETENTION_US, lambda: known[0], lambda: NOW)
    assert cleaner.clean_up() == []
    known[0] = state
    gone = {outputs["ended-long-ago"]}
    for name in ("ended-long-ago", "printed-nothing", "ended-lately"):
        gone |= others[name]
    results: set[str] = set()

    def has_seen_all() -> bool:
        results.update(cleaner.clean_up())
        return results == gone

    wait_until(has_seen_all)
    wait_until(
        lambda: (
            {name for name in admin.list_topics(timeout=90).topics if name.startswith(cluster_id)}
            == there - gone
        )
    )
    assert cleaner.clean_up() == []


def test_recreated_topic_of_job_gets_its_partitions(kafka: EmbeddedKafka, cluster_id: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    graph = job_graph(source(parallelism=3), vertex("map", parallelism=2), edge("source", "map"))
    wanted = topics(cluster_id, "j", graph)
    few = next(name for name, count in wanted.items() if count == 3)
    many = next(name for name, count in wanted.items() if count == 2)
    create_topics(admin, [NewTopic(few, 1, -1), NewTopic(many, 5, -1)])
    events: queue.Queue[OutgoingEvent] = queue.Queue()
    shell = JobMasterShell(lambda _, owed: events.put(owed), admin, cluster_id, 60_000_000)
    try:
        shell.perform("job_master/j", [CreateChannels("j", graph, 1, 3)], None)
        assert events.get(timeout=TIMEOUT_S).body == ChannelsCreated(job_id="j")
    finally:
        shell.close()
    expected = {**wanted, many: 5}

    def has_all_partitions() -> bool:
        described = describe_topics(admin, wanted)
        return {
            name: description.partitions for name, description in described.items() if description is not None
        } == expected

    wait_until(has_all_partitions)


def test_kafka_deletes_old_output_of_running_job(kafka: EmbeddedKafka, cluster_id: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    graph = job_graph(source(), vertex("print", operator("p", OperatorKind.PRINT)), edge("source", "print"))
    events: queue.Queue[OutgoingEvent] = queue.Queue()
    shell = JobMasterShell(lambda _, owed: events.put(owed), admin, cluster_id, 60_000_000)
    try:
        shell.perform("job_master/j", [CreateChannels("j", graph, 1, 3)], None)
        assert events.get(timeout=TIMEOUT_S).body == ChannelsCreated(job_id="j")
    finally:
        shell.close()
    wanted = topics(cluster_id, "j", graph)

    def describe() -> dict[str, str]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in wanted]
        answers = admin.describe_configs(resources)
        return {resource.name: answer.result()["retention.ms"].value for resource, answer in answers.items()}

    # A topic that was created a moment ago may not be known to the broker yet.
    retention_ms = retry_until(describe, TIMEOUT_S)
    printed = output_topic(cluster_id, "j")
    assert retention_ms == dict.fromkeys(wanted, "-1") | {printed: "60000"}


def test_partitions_that_are_added_are_there_for_clients_that_knew_fewer(
    kafka: EmbeddedKafka, cluster_id: str
) -> None:
    """A rescale adds partitions, and tasks read them at once: the progress of one that finds none counts as lost."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": cluster_id})
    names = [f"{cluster_id}-{number}" for number in range(10)]
    create_topics(admin, [NewTopic(name, 1, -1) for name in names])
    for name in names:
        assert bounds(consumer, name, 0) == (0, 0)
    add_partitions(admin, dict.fromkeys(names, 4))
    assert {known.partitions for known in describe_topics(admin, names).values() if known is not None} == {4}
    for name in names:
        assert bounds(consumer, name, 3) == (0, 0)
    consumer.close()
