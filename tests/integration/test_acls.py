"""A cluster on a secured Kafka with the ACLs of `cluster acls` and no others: each principal can do its work, and
nothing of another's.

One cluster serves all tests, in order: a job is stopped with a savepoint, continues from it, and is cancelled.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from answers_topic import messages_in
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from java_programs import run_java
from polling import wait_until
from secured_kafka import Decision, SecuredKafka

from tailrace.infra.jars import kafka_classpath, pyspark_jars_dir
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.schemas import avro, client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.types import EntryPoint, Header, JobStatus
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log import Codec
from tailrace.services.log.topics import (
    answers_topic,
    create_topics,
    dead_letters_topic,
    heartbeats_topic,
    log_topic,
    submissions_topic,
)

from .test_cluster import EAGER_SPARK, Cluster

pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS = {"literal": ResourcePatternType.LITERAL, "prefixed": ResourcePatternType.PREFIXED}
_KIND_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
}
NOT_USED_HERE = {
    ("audit", "READ", "dead-letters"),
    ("audit", "READ", "heartbeats"),
    ("masters", "ALTER", "job."),
    *(("masters", "WRITE", f"submissions{team}") for team in ("", ".payments", ".search")),
    ("masters", "READ", "dead-letters"),
    *(("masters", "READ", f"answers{team}") for team in ("", ".payments", ".search")),
    ("tasks", "READ", "warm-up"),
    *((team, "READ", f"job.{team}_") for team in ("payments", "search")),
    *((submitter, "DESCRIBE", "") for submitter in ("shop", "payments", "search")),
}
"""(user, operation, name without the cluster). No command here asks for accumulators of a running job; partitions are
added to topics that somebody has made with fewer; the cluster is stopped later, and nobody uses REST; there are no
earlier dead letters and answers; a query that warms Spark may end before it reads; teams read what their jobs print in
a later test; a reader of one message may end before it looks for the coordinator of its group."""
_OPERATIONS = {"DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}
TEAMS = ("payments", "search")
"""Tenants, and the users that may write their topics."""
WORD_COUNT = EntryPoint(
    target="tailrace.pipelines.examples.window_word_count:main",
    arguments=("--hostname", "127.0.0.1", "--port", "9"),
)
PROGRAM = """
import sys

from tailrace import StreamExecutionEnvironment, TumblingProcessingTimeWindows
from tailrace.pipelines.api import Formats, KafkaSink, KafkaSource

source, sink = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
env.configure("execution.isolation", "vertex")  # the rights of tasks cover channels, too
counts = (
    env.from_source(KafkaSource(source, group_id=f"{source}-readers"))
    .uid("orders")
    .map(lambda name: (name, 1), output_type=tuple[str, int])
    .key_by(0)
    .window(TumblingProcessingTimeWindows.of(seconds=1))
    .sum(1)
    .uid("counts")
)
counts.print()
counts.map(lambda count: f"{count[0]} {count[1]}", output_type=str).sink_to(KafkaSink(sink, Formats.text()))
env.execute("Orders")
"""


TOPICS = [log_topic, heartbeats_topic, dead_letters_topic, submissions_topic, answers_topic]
FINITE_PROGRAM = """
import sys

from tailrace import StreamExecutionEnvironment

divisor = int(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([2, 4]).map(lambda number: number // divisor, output_type=int).print()
env.execute("Finite")
"""


class SecuredCluster(Cluster):
    """A cluster whose principals have the rights of their roles."""

    def __init__(self, secured: SecuredKafka, home: Path, cluster_id: str) -> None:
        self.secured = secured
        self.cluster_id = cluster_id
        self.orders, self.totals = f"{cluster_id}-orders", f"{cluster_id}-totals"
        self.users = {
            name: f"{cluster_id}-{name}"
            for name in ("masters", "workers", "tasks", "operator", "shop", "audit", *TEAMS)
        }
        roles = {
            "jobmanager": "masters",
            "taskmanager": "workers",
            "tasks": "tasks",
            "submitter": "shop",
            "auditor": "audit",
        }
        self.connections = {name: secured.add_user(user) for name, user in self.users.items()}
        environment = _environment("", self.connections["operator"])
        for role in ("jobmanager", "taskmanager", "tasks"):
            environment |= _environment(f"{role}.", self.connections[roles[role]])
        super().__init__(
            home,
            # Spark's warm-up uses a right of its own.
            **EAGER_SPARK,
            **environment,
            TAILRACE_BOOTSTRAP_SERVERS=secured.bootstrap_servers,
            TAILRACE_CLUSTER_ID=cluster_id,
            TAILRACE_HEARTBEAT_INTERVAL="500 ms",
            TAILRACE_DISPATCHER_TENANTS=";".join(TEAMS),
            TAILRACE_DISPATCHER_TENANT_PAYMENTS_MAX_SLOTS="1",
        )
        self.granted: set[AclBinding] = set()
        self.principals = [
            *((role, f"User:{self.users[name]}") for role, name in roles.items()),
            *((role, f"User:{self.users['operator']}") for role in ("submitter", "auditor")),
            *((f"submitter@{team}", f"User:{self.users[team]}") for team in TEAMS),
        ]

    def grant(self) -> None:
        """Creates exactly the ACLs that `cluster acls` prints."""
        options = [f"--principal={role}={principal}" for role, principal in self.principals]
        options += ["--read", self.orders, "--write", self.totals, "--group", f"{self.orders}-readers"]
        printed = json.loads(self.ok("cluster", "acls", *options, "-o", "json").stdout)
        bindings = {
            AclBinding(
                _KINDS[acl["resource_type"]],
                acl["name"],
                _PATTERNS[acl["pattern_type"]],
                each["principal"],
                "*",
                _OPERATIONS.get(operation) or AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for each in printed["principals"]
            for acl in each["acls"]
            for operation in acl["operations"]
        }
        for created in self.secured.admin.create_acls(list(bindings)).values():
            created.result(20)
        self.granted = bindings

    def run_as(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command with the credentials of a user."""
        other = Cluster(
            self.home,
            **_environment("", self.connections[name]),
            TAILRACE_BOOTSTRAP_SERVERS=self.secured.bootstrap_servers,
            TAILRACE_CLUSTER_ID=self.cluster_id,
            TAILRACE_DISPATCHER_TENANTS=";".join(TEAMS),
            TAILRACE_TENANT=name if name in TEAMS else "",
        )
        return other.run(*arguments)

    def ok_as(self, name: str, *arguments: str) -> str:
        """Runs a command like `run_as`; returns its output."""
        result = self.run_as(name, *arguments)
        assert result.returncode == ExitCode.OK, f"{arguments}: {result.stdout}{result.stderr}"
        return result.stdout

    def order(self, names: list[str]) -> None:
        producer = Producer(self.secured.kafka.connection.to_librdkafka())
        for name in names:
            producer.produce(self.orders, name.encode())
        assert producer.flush(20) == 0

    def totals_so_far(self) -> Counter[str]:
        """Returns the committed counts of the sink."""
        consumer = Consumer(
            {
                **self.secured.kafka.connection.to_librdkafka(),
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.totals, 0, 0)])
        found: Counter[str] = Counter()
        while (message := consumer.poll(20)) is not None and message.error() is None:
            name, count = (message.value() or b"").decode().split()
            found[name] += int(count)
        consumer.close()
        return found


def _environment(prefix: str, connection: KafkaConnection) -> dict[str, str]:
    """Returns the variables of `kafka.<prefix><property>`."""
    named = {f"kafka.{prefix}{key}": value for key, value in connection.properties.items()}
    return {
        f"TAILRACE_{key.upper().replace('.', '_').replace('-', '_')}": value for key, value in named.items()
    }


@pytest.fixture(scope="module")
def cluster(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    home = tmp_path_factory.mktemp("secured") / "home"
    made = SecuredCluster(secured, home, f"c{uuid.uuid4().hex[:8]}")
    create_topics(secured.admin, [NewTopic(made.orders, 2), NewTopic(made.totals, 1)])
    made.grant()
    (home.parent / "orders.py").write_text(PROGRAM)
    (home.parent / "finite.py").write_text(FINITE_PROGRAM)
    try:
        made.ok("cluster", "start", "--taskexecutors", "1", "--slots", "2")
        yield made
    finally:
        made.ok("cluster", "stop")


@pytest.fixture(scope="module")
def first_job(cluster: SecuredCluster) -> str:
    return start_job(cluster)


def start_job(cluster: SecuredCluster, *options: str) -> str:
    interval = ("-D", "execution.checkpointing.interval=1s")
    arguments = ("orders.py", cluster.orders, cluster.totals)
    return cluster.ok("run", "-d", *interval, *options, *arguments).stdout.strip()


def test_job_reads_and_writes_topics_of_user_and_takes_checkpoints(
    cluster: SecuredCluster, first_job: str
) -> None:
    cluster.order(["tea", "milk"] * 50)
    wait_until(lambda: cluster.totals_so_far() == {"tea": 50, "milk": 50}, "counts in the sink")

    def completed() -> list[str]:
        lines = cluster.ok("checkpoints", first_job, "-o", "json").stdout.splitlines()
        return [each["uri"] for each in map(json.loads, lines) if each["status"] == "COMPLETED"]

    wait_until(completed, "a completed checkpoint")


@pytest.mark.parametrize("role", ["jobmanager", "taskmanager", "tasks"])
def test_doctor_finds_no_fault_in_running_cluster(cluster: SecuredCluster, first_job: str, role: str) -> None:
    topics = ("--read", cluster.orders, "--write", cluster.totals, "--group", f"{cluster.orders}-readers")
    found = json.loads(cluster.ok("cluster", "doctor", "--role", role, *topics, "-o", "json").stdout)
    health: dict[str, set[str]] = {}
    for each in found["findings"]:
        health.setdefault(each["check"], set()).add(each["health"])
    assert "ok" in health["acls"]
    assert "failed" not in set().union(*health.values())
    of_services = ["kafka", "storage", *(["clock", "blob server"] if role != "tasks" else [])]
    of_services += ["topics"] if role == "jobmanager" else []
    assert {name: health[name] for name in of_services} == {name: {"ok"} for name in of_services}


def test_auditor_reads_history_and_output(cluster: SecuredCluster, first_job: str) -> None:
    (listed,) = map(json.loads, cluster.ok_as("audit", "list", "-o", "json").splitlines())
    assert (listed["job_id"], listed["status"]) == (first_job, "RUNNING")
    assert "SubmitJob" in cluster.ok_as("audit", "log", "--job", first_job)
    assert "('tea', " in cluster.ok_as("audit", "output", first_job)
    assert first_job in cluster.ok_as("audit", "cluster", "status", "-o", "json")


def test_job_continues_from_savepoint_and_is_cancelled(cluster: SecuredCluster, first_job: str) -> None:
    savepoint = cluster.ok("stop", first_job).stdout.strip()
    job = start_job(cluster, "-s", savepoint)
    cluster.order(["tea"] * 10)
    wait_until(lambda: cluster.totals_so_far() == {"tea": 60, "milk": 50}, "counts after the savepoint")
    cluster.ok("cancel", job)
    wait_until(lambda: "CANCELED" in cluster.ok_as("audit", "list", "-o", "json"), "the job CANCELED")
    prefix = f"{cluster.cluster_id}.job.{job}."

    def left() -> list[str]:
        names = cluster.secured.admin.list_topics(timeout=90).topics
        return [name for name in names if name.startswith(prefix) and not name.endswith(".output")]

    wait_until(lambda: not left(), "deletion of the job's topics")
    # Its checkpoints may be on their way out.
    verified = json.loads(cluster.run_as("audit", "cluster", "verify", "--quick", "-o", "json").stdout)
    assert [fault for fault in verified["faults"] if fault["kind"] != "checkpoint"] == []


def test_team_submits_through_its_topic_and_controls_its_own_jobs_only(cluster: SecuredCluster) -> None:
    small = dispatcher.SubmitJob(job_id="pay-1", entry_point=WORD_COUNT)
    large = dispatcher.SubmitJob(job_id="pay-2", entry_point=WORD_COUNT, parallelism=2)
    ask(cluster, "payments", small)
    wait_until(lambda: accepted(cluster, "pay-1"), "acceptance of the team's job")
    ask(cluster, "payments", large)
    rejected = wait_until(lambda: answers(cluster, "pay-2", "JobRejected"), "rejection above the quota")
    assert "tenant payments have 1 of the 1 that dispatcher.tenant.payments.max-slots allows" in rejected

    listed = [json.loads(line) for line in cluster.ok_as("audit", "list", "-o", "json").splitlines()]
    assert {job["job_id"]: job["tenant"] for job in listed}["pay-1"] == "payments"
    assert "TENANT" in cluster.ok_as("audit", "list")
    assert "of tenant payments -> Dispatcher" in cluster.ok_as("audit", "story", "pay-1")

    ask(cluster, "search", dispatcher.CancelJob(job_id="pay-1"))
    refused = wait_until(lambda: answers(cluster, "pay-1", "CancelJobRejected"), "the refused cancellation")
    assert "job pay-1 is unknown" in refused
    ask(cluster, "payments", dispatcher.CancelJob(job_id="pay-1"))
    wait_until(lambda: answers(cluster, "pay-1", "JobFinished"), "the end of the team's job")


def ask(cluster: SecuredCluster, team: str, body: Body) -> None:
    """Writes a request to the topic of a team with its credentials."""
    topic = submissions_topic(cluster.cluster_id, team)
    header = Header(
        event_id=uuid.uuid4().hex, time=0, sender="client/ci", sender_epoch=0, recipient="dispatcher"
    )
    errors: list[KafkaError | None] = []
    producer = Producer(cluster.connections[team].to_librdkafka())
    value = Codec(topic).encode(Event(header, body))
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]


def answers(cluster: SecuredCluster, job: str, kind: str) -> str:
    """Returns the events of a type about a job in the log."""
    return cluster.ok_as("audit", "log", "--job", job, "--type", kind, "-o", "json")


def test_every_right_is_used_and_no_other_is_wanted(cluster: SecuredCluster) -> None:
    assert write_error(cluster.connections["shop"], submissions_topic(cluster.cluster_id)) is None
    for team in ("", *TEAMS):
        assert (
            read_error(cluster.connections[team or "shop"], answers_topic(cluster.cluster_id, team)) is None
        )
    wait_until(
        lambda: "dead-letters" in {wanted.name.partition(".")[2] for wanted in written(cluster)},
        "the dead letter of garbage",
    )
    own = [each for each in cluster.secured.decisions() if each.user in cluster.users.values()]
    # A client that only looks whether a broker answers asks for a topic without a name.
    assert [each for each in own if not each.is_allowed and each.name] == []
    used = {(each.user, each.operation, each.kind, each.name) for each in own}

    def is_used(binding: AclBinding) -> bool:
        user = binding.principal.removeprefix("User:")
        kind = _KIND_NAMES[binding.restype]
        is_prefix = binding.resource_pattern_type is ResourcePatternType.PREFIXED
        return any(
            (user, binding.operation.name, kind) == each[:3]
            and (each[3].startswith(binding.name) if is_prefix else each[3] == binding.name)
            for each in used
        )

    unused = {
        (binding.principal.rpartition("-")[2], binding.operation.name, binding.name.partition(".")[2])
        for binding in cluster.granted
        # An operator has two roles of others.
        if not binding.principal.endswith("-operator") and not is_used(binding)
    }
    assert unused <= NOT_USED_HERE


def written(cluster: SecuredCluster) -> list[Decision]:
    """Returns what masters have written."""
    return [
        each
        for each in cluster.secured.decisions()
        if each.user == cluster.users["masters"] and each.operation == "WRITE"
    ]


@pytest.mark.parametrize("name", ["tasks", "shop", "audit"])
@pytest.mark.parametrize("topic", TOPICS)
def test_topic_of_cluster_is_not_written_by_others(cluster: SecuredCluster, name: str, topic: object) -> None:
    wanted = topic(cluster.cluster_id)  # type: ignore[operator]
    if name == "shop" and topic is submissions_topic:
        assert write_error(cluster.connections[name], wanted) is None
    else:
        assert write_error(cluster.connections[name], wanted) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_submitter_opens_no_transaction(cluster: SecuredCluster) -> None:
    """An open transaction on the topic of submissions would hold up the requests of all others."""
    connection = cluster.connections["shop"].to_librdkafka()
    producer = Producer({**connection, "transactional.id": f"{cluster.cluster_id}.shop", "log_level": 0})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(30)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("name", [*TEAMS, "shop", "tasks", "audit"])
@pytest.mark.parametrize("team", ["", *TEAMS])
def test_team_writes_only_its_own_topic(cluster: SecuredCluster, name: str, team: str) -> None:
    error = write_error(cluster.connections[name], submissions_topic(cluster.cluster_id, team))
    assert error == (None if name == (team or "shop") else KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("name", [*TEAMS, "shop", "tasks"])
@pytest.mark.parametrize("team", ["", *TEAMS])
def test_team_reads_only_answers_to_its_own_requests(cluster: SecuredCluster, name: str, team: str) -> None:
    error = read_error(cluster.connections[name], answers_topic(cluster.cluster_id, team))
    assert error == (None if name == (team or "shop") else KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("name", ["tasks", "shop"])
@pytest.mark.parametrize("topic", TOPICS)
def test_topic_of_cluster_is_not_read_by_others(cluster: SecuredCluster, name: str, topic: object) -> None:
    wanted = topic(cluster.cluster_id)  # type: ignore[operator]
    if name == "shop" and topic is answers_topic:
        assert read_error(cluster.connections[name], wanted) is None
        return
    assert read_error(cluster.connections[name], wanted) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_topic_of_user_that_no_option_names_is_not_written_by_tasks(cluster: SecuredCluster) -> None:
    assert write_error(cluster.connections["tasks"], cluster.orders) == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("name", "command"), [("audit", ("run", "-d", "orders.py", "a", "b")), ("shop", ("list",))]
)
def test_command_without_right_fails_in_one_line_that_names_it(
    cluster: SecuredCluster, name: str, command: tuple[str, ...]
) -> None:
    result = cluster.run_as(name, *command)
    assert result.returncode == ExitCode.UNREACHABLE
    assert len(lines := result.stderr.splitlines()) == 1, result.stderr
    assert cluster.users[name] in lines[0]


def test_submitter_follows_its_job_by_its_answers(cluster: SecuredCluster) -> None:
    done = cluster.run_as("shop", "run", "finite.py", "2")
    assert (done.returncode, done.stdout) == (ExitCode.OK, ""), done.stderr
    assert "(Finite) is accepted" in done.stderr
    (line,) = [each for each in done.stderr.splitlines() if "prints is not shown: " in each]
    assert f"{cluster.users['shop']} may not read " in line
    assert "is FINISHED" in done.stderr


@pytest.mark.parametrize("team", TEAMS)
def test_team_sees_output_of_its_own_jobs_only(cluster: SecuredCluster, team: str) -> None:
    assert cluster.ok_as(team, "run", "finite.py", "2").splitlines() == ["1> 1", "1> 2"]
    other = output_topic(cluster.cluster_id, f"{'-'.join(each for each in TEAMS if each != team)}_job")
    assert read_error(cluster.connections[team], other) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_submitter_gets_end_and_reason_of_its_failed_job(cluster: SecuredCluster) -> None:
    options = ("-D", "restart-strategy.type=none")
    failed = cluster.run_as("shop", "run", *options, "finite.py", "0")
    assert failed.returncode == ExitCode.JOB, failed.stderr
    assert "is FAILED" in failed.stderr
    assert "ZeroDivisionError" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_submitter_is_told_why_its_program_is_rejected(cluster: SecuredCluster) -> None:
    rejected = cluster.run_as("shop", "run", "-d", "no.such.module:main")
    assert rejected.returncode == ExitCode.JOB, rejected.stderr
    assert "no.such.module" in rejected.stderr


def test_team_gets_answers_to_its_own_requests_and_to_no_others(cluster: SecuredCluster) -> None:
    jobs = {team: cluster.ok_as(team, "run", "-d", "finite.py", "2").strip() for team in TEAMS}
    for team in TEAMS:
        rejected = cluster.run_as(team, "run", "-d", f"no.such.module_of_{team}:main")
        assert rejected.returncode == ExitCode.JOB, rejected.stderr
        assert f"no.such.module_of_{team}" in rejected.stderr
        wait_until(lambda job=jobs[team]: answers(cluster, job, "JobFinished"), "the end of the job")  # type: ignore[misc]
    log = Codec(log_topic(cluster.cluster_id))
    kafka = cluster.secured.kafka.connection

    def bodies(team: str) -> list[Body]:
        topic = answers_topic(cluster.cluster_id, team)
        return [log.decode(value).body for _, each in messages_in(kafka, topic) if (value := each.value())]

    for team in TEAMS:
        end = client.JobFinished(job_id=jobs[team], status=JobStatus.FINISHED)
        wait_until(lambda of=team, body=end: body in bodies(of), "the end in the topic of the team")  # type: ignore[misc]
    for team, other in zip(("", *TEAMS), (TEAMS[0], *reversed(TEAMS)), strict=True):
        found = bodies(team)
        assert not [body for body in found if getattr(body, "job_id", "") == jobs[other]]
        assert f"module_of_{other}" not in str(found)
        assert not team or f"module_of_{team}" in str(found)


def accepted(cluster: SecuredCluster, job: str) -> bool:
    """Returns whether the log has the acceptance of a job."""
    return bool(answers(cluster, job, "JobAccepted"))


SUBMITTERS = pytest.mark.parametrize(
    ("user", "tenant"),
    [pytest.param("shop", (), marks=pytest.mark.soak), (TEAMS[0], (TEAMS[0],))],
)
"""A user, and the tenant in whose name it submits."""


@SUBMITTERS
def test_java_program_submits_and_reads_its_answer_with_rights_of_submitter(
    cluster: SecuredCluster, user: str, tenant: tuple[str, ...]
) -> None:
    properties = cluster.home / f"{user}.properties"
    cluster.connections[user].write_java_properties(properties)
    classpath = [*kafka_classpath(), *pyspark_jars_dir().glob("avro-1*.jar")]
    where = (cluster.secured.bootstrap_servers, cluster.cluster_id, "127.0.0.1", "9999")
    program = ROOT / "examples" / "submit-from-java" / "SubmitWordCount.java"
    job = run_java(program, classpath, *where, str(ROOT / "schemas"), str(properties), *tenant).strip()
    wait_until(lambda: accepted(cluster, job), "acceptance of the job")
    cluster.ok("cancel", job)


@pytest.mark.soak  # the compilation takes a minute
@SUBMITTERS
def test_go_program_submits_and_reads_its_answer_with_rights_of_submitter(
    cluster: SecuredCluster, user: str, tenant: tuple[str, ...]
) -> None:
    schema = cluster.home / "schema.json"
    schema.write_text(json.dumps(avro.standalone("tailrace.dispatcher.SubmitJob")))
    properties = cluster.connections[user].properties
    login = ("-user", properties["sasl.username"], "-password-file", properties["sasl.password-file"])
    where = (cluster.secured.bootstrap_servers, cluster.cluster_id, "127.0.0.1", "9999")
    of_tenant = [f"-tenant={name}" for name in tenant]
    options = ("-schema", str(schema), *of_tenant, "-ca", properties["ssl.ca.location"], *login, *where)
    folder = ROOT / "examples" / "submit-from-go"
    done = subprocess.run(
        ["go", "run", ".", *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_until(lambda: accepted(cluster, job), "acceptance of the job")
    cluster.ok("cancel", job)


def test_doctor_names_lost_right_and_its_command_gives_it_back(cluster: SecuredCluster) -> None:
    principal = f"User:{cluster.users['workers']}"
    lost = AclBindingFilter(
        ResourceType.TOPIC,
        heartbeats_topic(cluster.cluster_id),
        ResourcePatternType.LITERAL,
        principal,
        None,
        AclOperation.WRITE,
        AclPermissionType.ANY,
    )
    for deleted in cluster.secured.admin.delete_acls([lost]).values():
        assert len(deleted.result(20)) == 1
    properties = cluster.home / "admin.properties"
    cluster.secured.kafka.connection.write_java_properties(properties)

    def failed() -> list[dict[str, str]]:
        options = ("--role", "taskmanager", "--command-config", str(properties), "-o", "json")
        result = cluster.run("cluster", "doctor", *options)
        findings = json.loads(result.stdout)["findings"]
        faults = [each for each in findings if each["health"] == "failed"]
        assert result.returncode == (ExitCode.UNSOUND if faults else ExitCode.OK)
        return faults

    (fault,) = wait_until(failed, "the lost right")
    assert fault["check"] == "acls"
    assert f"{principal} lacks Write on topic {cluster.cluster_id}.heartbeats" in fault["message"]
    script, *arguments = shlex.split(fault["remedy"])
    assert script == "kafka-acls.sh"
    cluster.ok("kafka-tools", "kafka-acls", *arguments)
    wait_until(lambda: not failed(), "the right")


def test_doctor_says_that_password_is_wrong_and_skips_what_needs_kafka(
    cluster: SecuredCluster, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("wrong\n")
    options = ("-D", f"kafka.jobmanager.sasl.password-file={tmp_path / 'password'}", "-o", "json")
    result = cluster.run("cluster", "doctor", *options)
    assert result.returncode == ExitCode.UNREACHABLE
    findings = json.loads(result.stdout)["findings"]
    (fault,) = [each for each in findings if each["health"] == "failed"]
    assert f"User:{cluster.users['masters']}" in fault["message"]
    skipped = {each["check"] for each in findings if each["message"].endswith("the check of kafka failed")}
    assert skipped == {"acls", "topics", "clock", "blob server", "dead letters", "transactions"}


def write_error(connection: KafkaConnection, topic: str) -> int | None:
    """Returns the code of the error with which a write fails; None if it does not."""
    errors: list[int | None] = []
    producer = Producer({**connection.to_librdkafka(), "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(
        topic, b"garbage", partition=0, on_delivery=lambda error, _: errors.append(error and error.code())
    )
    producer.flush(20)
    (code,) = errors
    return code


def read_error(connection: KafkaConnection, topic: str) -> int | None:
    """Returns the code of the error with which a consumer is refused a topic; None if it is not."""
    consumer = Consumer(
        {
            **connection.to_librdkafka(),
            "group.id": "tailrace-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        refusal = consumer.list_topics(topic, 20).topics[topic].error
        if refusal is not None:
            return int(refusal.code())
        consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(20)) is not None:
            error = message.error()
            # The group is refused, too.
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                return None
            if error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                return error.code()
        raise AssertionError(f"{topic} returned nothing")
    finally:
        consumer.close()
