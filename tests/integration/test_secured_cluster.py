"""A cluster on a secured Kafka, from tailrace.yaml alone: each principal with its ACLs, and secrets in files only."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType  # type: ignore[attr-defined]
from polling import wait_until
from secured_kafka import SecuredKafka, add_cluster_users, yaml_of

from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log.topics import create_topics, log_topic
from tailrace.services.reference.acls import AclScope

from .test_cluster import Cluster
from .test_secrets import files

pytestmark = pytest.mark.timeout(300)

PROGRAM = """
import sys
from collections.abc import Iterator
from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment

def split(line: str) -> Iterator[tuple[str, int]]:
    return ((word, 1) for word in line.split())

def show(count: tuple[str, int]) -> str:
    return f"{count[0]}={count[1]}"

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_source(KafkaSource(sys.argv[1], Formats.text(), bounded=True)).flat_map(split)
counts = words.key_by(0).sum(1)
counts.print()
counts.map(show).sink_to(KafkaSink(sys.argv[2], Formats.text()))
env.execute("SecuredWordCount")
"""
LINES = ["to be or not to be", "that is the question"]


class SecuredCluster:
    """A running cluster with four principals."""

    def __init__(self, secured: SecuredKafka, home: Path) -> None:
        self.secured = secured
        self.id = f"s{uuid.uuid4().hex[:8]}"
        self.words, self.counts = f"{self.id}-words", f"{self.id}-counts"
        create_topics(secured.admin, [NewTopic(name, 1) for name in (self.words, self.counts)])
        self.users = add_cluster_users(secured, AclScope(self.id, reads=(self.words,), writes=(self.counts,)))
        # Who looks at the result with Kafka's own tools.
        secured.allow(f"{self.id}-commands", [AclOperation.READ], ResourceType.TOPIC, self.counts)
        secured.allow(f"{self.id}-commands", [AclOperation.READ], ResourceType.GROUP, "console-consumer-")
        home.mkdir(parents=True)
        self.certificate = secured.authority.issue("masters")
        self.secret = home.parent / "secret"
        self.secret.write_text(f"{uuid.uuid4()}\n")
        (home / "tailrace.yaml").write_text(self.yaml())
        self.cluster = Cluster(home)

    def yaml(self) -> str:
        """The servers of masters have TLS of the same authority, and a secret."""
        own = {
            "cluster.id": self.id,
            "blob.secret-file": self.secret,
            "blob.server.ssl.enabled": "true",
            "blob.server.ssl.certificate": self.certificate,
            "blob.server.ssl.ca": self.secured.authority.ca,
        }
        lines = "".join(f"{name}: {value}\n" for name, value in own.items())
        return lines + yaml_of(self.users)

    def passwords(self) -> list[str]:
        return [
            Path(user.properties["sasl.password-file"]).read_text().strip() for user in self.users.values()
        ]

    def log_of(self, name: str) -> str:
        return (self.cluster.home / "log" / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def cluster(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    running = SecuredCluster(secured, tmp_path_factory.mktemp("secured") / "home")
    try:
        running.cluster.ok("cluster", "start", "--taskexecutors", "1", "--slots", "4")
        yield running
    finally:
        running.cluster.run("cluster", "stop")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "word_count.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def counted(cluster: SecuredCluster, program: Path) -> list[str]:
    """Returns all that commands have printed around a job which has counted words."""
    producer = Producer(cluster.secured.kafka.connection.to_librdkafka())
    for line in LINES:
        producer.produce(cluster.words, line.encode())
    producer.flush(20)
    printed = []
    for arguments in (
        ("run", "-p", "2", str(program), cluster.words, cluster.counts),
        ("list", "-o", "json"),
        ("log", "-o", "json"),
        ("config", "-o", "json"),
        ("state", "-o", "json"),
        ("cluster", "snapshot"),
        ("log", "export", str(program.with_name("log.jsonl"))),
        ("cluster", "status"),
        (
            "kafka-tools",
            "console-consumer",
            "--topic",
            cluster.counts,
            "--from-beginning",
            "--timeout-ms",
            "5000",
        ),
    ):
        done = cluster.cluster.ok(*arguments)
        printed.append(done.stdout + done.stderr)
    return printed


def test_job_counts_words_with_principal_for_each_role(counted: list[str]) -> None:
    printed, listed, *_, consumed = counted
    assert {"('be', 2)", "('question', 1)"} <= {line.partition("> ")[2] for line in printed.splitlines()}
    assert "FINISHED" in listed
    assert "be=2" in consumed.splitlines()


def test_task_executor_reads_log_by_relay_with_tls(cluster: SecuredCluster) -> None:
    wait_until(lambda: "reads the log from a relay" in cluster.log_of("taskexecutor-1"), "the relay")


def test_secrets_are_in_files_of_user_only(
    cluster: SecuredCluster, program: Path, counted: list[str]
) -> None:
    passwords = [*cluster.passwords(), cluster.secret.read_text().strip()]
    home = cluster.cluster.home
    assert [text for text in counted for secret in passwords if secret in text] == []
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.cmdline()} {process.environ()}")
    assert [line for line in lines for secret in passwords if secret in line] == []
    left = [*home.rglob("*"), *program.parent.iterdir()]
    kept = [path for path, text in files(left) for secret in passwords if secret.encode() in text]
    # What Kafka's Java client reads, until the process ends.
    assert [path for path in kept if not path.name.startswith("kafka.properties")] == []
    assert [path for path in kept if path.stat().st_mode & 0o077] == []


def test_wrong_password_ends_command_at_once(cluster: SecuredCluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    (tmp_path / "home").mkdir()
    yaml = cluster.yaml().replace(cluster.users[""].properties["sasl.password-file"], str(wrong))
    (tmp_path / "home" / "tailrace.yaml").write_text(yaml)
    failed = Cluster(tmp_path / "home").run("list")
    assert failed.returncode == ExitCode.UNREACHABLE
    assert failed.stderr.count("\n") == 1
    assert f"refuses User:{cluster.id}-commands" in failed.stderr


def test_password_on_command_line_is_refused(cluster: SecuredCluster) -> None:
    refused = cluster.cluster.run("jobmanager", "-D", "kafka.sasl.password=hidden-value")
    assert refused.returncode == ExitCode.USAGE
    assert "set kafka.sasl.password-file to the path of the file" in refused.stderr
    assert "hidden-value" not in refused.stderr + refused.stdout


def test_cluster_continues_with_new_passwords(
    cluster: SecuredCluster, program: Path, counted: list[str]
) -> None:
    before = cluster.passwords()
    for user in cluster.users.values():
        cluster.secured.add_user(user.properties["sasl.username"])
    assert not set(before) & set(cluster.passwords())
    assert "('be', 2)" in cluster.cluster.ok("run", str(program), cluster.words, cluster.counts).stdout


def test_master_continues_after_it_has_lost_a_right(
    cluster: SecuredCluster, program: Path, counted: list[str]
) -> None:
    user, log = f"{cluster.id}-jobmanager", log_topic(cluster.id)
    removed = cluster.secured.revoke(user, log, AclOperation.WRITE)
    asked = cluster.cluster.popen("run", "-d", str(program), cluster.words, cluster.counts)
    wait_until(lambda: "may not write" in cluster.log_of("jobmanager"), "the log line")
    cluster.secured.restore(removed)
    wait_until(lambda: "may write again" in cluster.log_of("jobmanager"), "the second log line")
    out, err = asked.communicate(timeout=60)
    assert asked.returncode == ExitCode.OK, out + err
    assert cluster.log_of("jobmanager").count("may not write") == 1
    assert "jobmanager" in cluster.cluster.ok("cluster", "status").stdout
