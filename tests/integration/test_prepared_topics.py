"""Topics that somebody else has created serve a cluster that may not create topics.

The broker has an authorizer. It denies every creation, change and deletion of topics, and every request about the
Kafka cluster, to the only principal. So the commands that docs/kafka.md prints have created the topics.
"""

from __future__ import annotations

import json
import queue
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from answers_topic import messages_in
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from graphs import edge, job_graph, source, vertex
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.api.build import build_file
from tailrace.pipelines.graph.physical_plan import topics
from tailrace.schemas import client, dispatcher, job_master
from tailrace.services.client import Client
from tailrace.services.configuration import load_configuration
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.job_master.shell import JobMasterShell
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.topic_options import TopicOptions
from tailrace.services.log.topic_validation import find_faults
from tailrace.services.log.topics import TopicRefused, answers_topic, create_topics, describe_topics

from .test_submissions import Cluster

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
GRAPH = job_graph(source(parallelism=2), vertex("map", parallelism=1), edge("source", "map"))
PREPARED, TENANT = "team.prepared", "pay"
PROGRAM = """
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to", "be"])
words.key_by(lambda word: word, str).reduce(lambda a, b: a).set_parallelism(3).print()
env.execute("words")
"""


def acl(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)


RIGHTS = [
    *(
        acl(ResourceType.TOPIC, "*", operation, AclPermissionType.ALLOW)
        for operation in (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
        )
    ),
    # What the broker itself needs, and this test to see what is there.
    acl(ResourceType.BROKER, "kafka-cluster", AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "words.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def kafka(program: Path) -> Iterator[EmbeddedKafka]:
    """Yields a broker with the topics of cluster `team.prepared` and its jobs `j` and `words`, on which nobody may
    create any."""
    with EmbeddedKafka(settings=AUTHORIZER) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        create_topics(admin, documented_topics(PREPARED))
        create_topics(admin, [NewTopic(name, n, 1) for name, n in topics(PREPARED, "j", GRAPH).items()])
        create_topics(admin, planned_topics(program))
        for made in admin.create_acls(RIGHTS).values():
            made.result(TIMEOUT_S)
        wait_until(lambda: is_refused(admin))
        yield running


def is_refused(admin: AdminClient) -> bool:
    try:
        create_topics(admin, [NewTopic(f"probe-{uuid.uuid4().hex}", 1, 1)])
    except TopicRefused:
        return True
    return False


def documented_topics(cluster: str) -> list[NewTopic]:
    """Returns the topics that the commands of docs/kafka.md create, with one replica, and those of a tenant."""
    page = PAGE.read_text("utf-8").replace("\\\n", " ")
    found = []
    for line in re.findall(r"^    (kafka-topics --create --topic CLUSTER\..*)$", page, re.MULTILINE):
        words = shlex.split(line.replace("CLUSTER", cluster))
        pairs = list(zip(words[2::2], words[3::2], strict=True))
        given = dict(pairs)
        settings = dict(value.split("=") for name, value in pairs if name == "--config")
        settings["min.insync.replicas"] = "1"
        name = given["--topic"]
        has_tenants = name.endswith((".submissions", ".answers"))
        names = [name, f"{name}.{TENANT}"] if has_tenants else [name]
        found += [NewTopic(each, int(given["--partitions"]), 1, config=settings) for each in names]
    return found


def planned_topics(program: Path) -> list[NewTopic]:
    """Returns the topics of the job `words` that `tailrace plan` prints."""
    command = [sys.executable, "-m", "tailrace.services.cli", "plan", "-D", f"cluster.id={PREPARED}"]
    done = subprocess.run(
        [*command, "--topics", "words", "-o", "json", str(program)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return [
        NewTopic(topic["topic"], topic["partitions"], 1, config=topic["config"])
        for topic in json.loads(done.stdout)["topics"]
    ]


def test_jobmanager_serves_with_topics_of_somebody_else(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    options = TopicOptions(tenants=(TENANT,))
    assert create_cluster_topics(admin, kafka.connection, PREPARED, options=options) == frozenset()
    assert find_faults(admin, PREPARED, (TENANT,)) == []
    cluster = Cluster(kafka, PREPARED, tmp_path, (TENANT,), TAILRACE_DISPATCHER_TENANTS=TENANT)
    try:
        cluster.start()
        # Requests from before the first leader are not run: the log may be newer than they are.
        cluster._wait(lambda: list(cluster.events_of(dispatcher.SubmissionsTopicChanged)), "its first event")
        cluster.ask(dispatcher.CancelJob(job_id="nothing"))
        cluster.answer(client.CancelJobRejected, "nothing")
        tenant = load_configuration(
            definitions=[
                f"cluster.id={PREPARED}",
                f"bootstrap.servers={kafka.bootstrap_servers}",
                f"tenant={TENANT}",
            ],
            environment={},
        )
        with Client(tenant) as sender:
            sender.cancel("of-tenant")
        cluster.answer(client.CancelJobRejected, "of-tenant")
        wait_until(lambda: messages_in(kafka.connection, answers_topic(PREPARED, TENANT)), "the answer")
        log = (tmp_path / "jobmanager.log").read_text()
        assert "cannot check the settings" not in log
        assert "uthoriz" not in log
    finally:
        cluster.kill()
        cluster.log.close()


def test_missing_topic_is_named_with_command(kafka: EmbeddedKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    with pytest.raises(TopicRefused) as refused:
        create_cluster_topics(admin, kafka.connection, "nobody-made")
    message = str(refused.value)
    assert "\n" not in message
    assert "kafka-acls --add --allow-principal User:NAME --operation Create --topic nobody-made." in message
    assert "kafka-topics --create --topic nobody-made." in message


def test_job_without_its_topics_fails_with_command(kafka: EmbeddedKafka, cluster_id: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    events: queue.Queue[OutgoingEvent] = queue.Queue()
    shell = JobMasterShell(lambda _, owed: events.put(owed), admin, cluster_id, 60_000_000)
    try:
        shell.perform("job_master/j", [CreateChannels("j", GRAPH, 1, 3)], None)
        failed = events.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(failed, job_master.ChannelsFailed)
    assert (
        f"kafka-acls --add --allow-principal User:NAME --operation Create --topic {cluster_id}.job. "
        "--resource-pattern-type prefixed" in failed.reason
    )
    assert f"kafka-topics --create --topic {cluster_id}.job.j." in failed.reason


@pytest.mark.parametrize("job_id", ["j", "words"])
def test_job_with_its_topics_runs_and_leaves_them(kafka: EmbeddedKafka, program: Path, job_id: str) -> None:
    graph = GRAPH if job_id == "j" else build_file(str(program), [], 1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    events: queue.Queue[OutgoingEvent] = queue.Queue()
    shell = JobMasterShell(lambda _, owed: events.put(owed), admin, PREPARED, 60_000_000)
    try:
        shell.perform(f"job_master/{job_id}", [CreateChannels(job_id, graph, 1, 3)], None)
        assert events.get(timeout=TIMEOUT_S).body == job_master.ChannelsCreated(job_id=job_id)
        shell.perform(f"job_master/{job_id}", [DeleteChannels(job_id, graph, 2)], None)
        assert events.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id=job_id)
    finally:
        shell.close()
    assert None not in describe_topics(admin, topics(PREPARED, job_id, graph)).values()
