"""The commands of the examples' README, and some random programs, on one real cluster: Kafka, Spark, a TaskExecutor
of four slots."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from committed_messages import read_by_partition
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import HealthCheck, Phase, given, seed, settings
from pipelines.examples.cases import (
    CASES,
    LATE_READING,
    READINGS,
    Case,
    In,
    readme_commands,
    rows_of,
    shown,
    write_sales,
)
from pipelines.model.interpreter import interpret
from pipelines.model.program_strategies import programs
from pipelines.model.programs import Program, decoded, topics, write
from polling import TIMEOUT_S

from tailrace.pipelines.api.build import build_file
from tailrace.schemas.types import JobGraph, JobStatus
from tailrace.services.cli.app import load_command
from tailrace.services.cli.args.common_options import Format
from tailrace.services.cli.demo.text_server import TextServer
from tailrace.services.cli.execution.cluster_executor import ClusterExecutor
from tailrace.services.cli.execution.submitted_job import JobOutcome, SubmittedJob
from tailrace.services.client import Client, Incident, OutputRecord, read_output
from tailrace.services.configuration import Configuration
from tailrace.services.log.topics import create_topics

from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)

MODEL_SEEDS = (1, 2, *(pytest.param(number, marks=pytest.mark.soak) for number in range(3, 9)))
Logs = Mapping[str, Sequence[Sequence[tuple[int, bytes]]]]


class Listener:
    """Records errors."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []

    def on_message(self, line: str) -> None: ...

    def on_accepted(self, job: JobOutcome) -> None: ...

    def on_incident(self, incident: Incident) -> None:
        self.incidents.append(incident)

    def on_output(self, record: OutputRecord) -> None: ...

    def on_ended(self, job: JobOutcome) -> None: ...


class RealCluster:
    """Topics to write and read, and jobs to run."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self._client = Client(configuration)
        self._servers = configuration.bootstrap_servers
        self._listener = Listener()

    def close(self) -> None:
        self._client.close()

    def write(self, logs: Logs) -> None:
        """Creates topics with these messages: topic -> partition -> (timestamp, value)."""
        create_topics(
            AdminClient({"bootstrap.servers": self._servers}),
            [NewTopic(topic, len(partitions)) for topic, partitions in logs.items()],
        )
        for topic, partitions in logs.items():
            for partition, messages in enumerate(partitions):
                self.send(topic, messages, partition)

    def send(self, topic: str, messages: Sequence[tuple[int, bytes]], partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        for timestamp, value in messages:
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Message]:
        """Returns all committed messages of a topic, partition by partition."""
        return read_by_partition(self._servers, topic)

    def printed(self, job: SubmittedJob) -> list[OutputRecord]:
        return list(read_output(self.configuration, job.job_id))

    def start(self, graph: JobGraph) -> SubmittedJob:
        return ClusterExecutor(self._client, self._listener, detached=False).execute(graph)

    def finish(self, job: SubmittedJob) -> None:
        """Waits for the end of a bounded job."""
        assert job.result().status is JobStatus.FINISHED, (job.outcome, self._listener.incidents)

    def wait(self, job: SubmittedJob, there: Callable[[], bool]) -> None:
        """Waits for the expected output of an unbounded job."""
        deadline = time.monotonic() + TIMEOUT_S
        while not there():
            assert not job.outcome.over, (job.outcome, self._listener.incidents)
            assert time.monotonic() < deadline, self._listener.incidents
            job.status()
            time.sleep(0.1)

    def cancel(self, job: SubmittedJob) -> None:
        job.cancel()
        assert job.result().status is JobStatus.CANCELED


@pytest.fixture(scope="module")
def cluster(four_slots: Cluster) -> Iterator[RealCluster]:
    cluster = RealCluster(four_slots.configuration)
    yield cluster
    cluster.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the working directory, in which the paths of the README lead to the examples and their data."""
    monkeypatch.chdir(tmp_path)
    for name in ("pipelines", "tests"):
        (tmp_path / name).symlink_to(Path(__file__).parents[2] / name)
    return tmp_path


def start(cluster: RealCluster, name: str, parallelism: int, folder: Path) -> SubmittedJob:
    """Starts the README's command for an example, with its input."""
    write_sales(folder / "sales")
    cluster.write({topic: [_messages(messages)] for topic, messages in CASES[name].topics.items()})
    return cluster.start(graph_of(readme_commands()[name], parallelism))


def graph_of(command: Sequence[str], parallelism: int = 1) -> JobGraph:
    """Returns the graph that `tailrace run` submits for a command line."""
    parsed = load_command("run").make_context("run", list(command)).params
    assert (parsed["output"], parsed["parallelism"]) == (Format.TEXT, None)
    return build_file(parsed["program"], list(parsed["arguments"]), parallelism)


def _messages(messages: Sequence[In]) -> list[tuple[int, bytes]]:
    return [(message.timestamp_ms, message.value) for message in messages]


def texts(cluster: RealCluster, job: SubmittedJob) -> Counter[str]:
    return Counter(record.text for record in cluster.printed(job))


def values(cluster: RealCluster, case: Case, topic: str) -> Counter[str]:
    return Counter(shown(case.decode(message.value() or b"")) for message in cluster.read(topic))


@pytest.mark.parametrize("name", [name for name in CASES if name != "late_data"])
def test_readme_command_gives_expected_output(cluster: RealCluster, name: str, folder: Path) -> None:
    case = CASES[name]
    job = start(cluster, name, 2 if name in ("word_count", "enrichment") else 1, folder)
    if case.bounded:
        cluster.finish(job)
    else:
        cluster.wait(
            job,
            lambda: (
                all(
                    values(cluster, case, topic).total() >= expected.total()
                    for topic, expected in case.written.items()
                )
                and (case.printed is None or texts(cluster, job).total() >= case.printed.total())
            ),
        )
        cluster.cancel(job)
    if case.printed is not None:
        assert texts(cluster, job) == case.printed
    for topic, expected in case.written.items():
        assert values(cluster, case, topic) == expected
    for topic, last in case.last.items():
        messages = cluster.read(topic)
        assert {(m.key() or b"").decode(): shown(case.decode(m.value() or b"")) for m in messages} == last
    if case.files is not None:
        assert rows_of(folder / "report") == case.files


def test_reading_after_end_of_its_minute_is_late(
    cluster: RealCluster, four_slots: Cluster, folder: Path
) -> None:
    case = CASES["late_data"]
    job = start(cluster, "late_data", 1, folder)
    cluster.wait(job, lambda: values(cluster, case, "highest").total() >= 3)
    cluster.send("readings", _messages([LATE_READING]))
    cluster.wait(job, lambda: values(cluster, case, "late").total() >= 1)

    def positions() -> list[tuple[str, int, int]]:
        lines = four_slots.run("offsets", "show", job.job_id, "-o", "json").stdout.splitlines()
        return [(each["topic"], each["position"], each["lag"]) for each in map(json.loads, lines)]

    read = len(READINGS) + 1
    cluster.wait(job, lambda: positions() == [("readings", read, 0)])  # the copy of the positions
    cluster.cancel(job)
    highest = [case.topics["readings"][i] for i in (1, 2, 3)]
    assert values(cluster, case, "highest") == Counter(shown(case.decode(m.value)) for m in highest)
    assert values(cluster, case, "late") == Counter([shown(case.decode(LATE_READING.value))])


def test_readme_command_with_socket_counts_words(cluster: RealCluster, folder: Path) -> None:
    server = TextServer(words_per_s=1000)
    try:
        *command, port = readme_commands()["window_word_count"]
        assert (command[-1], port) == ("--port", "9999")
        job = cluster.start(graph_of([*command, str(server.port)]))
        cluster.wait(job, lambda: texts(cluster, job).total() > 0)
        cluster.cancel(job)
    finally:
        server.close()


@pytest.mark.parametrize("number", MODEL_SEEDS)
def test_random_program_gives_results_of_interpreter(
    cluster: RealCluster, number: int, tmp_path: Path
) -> None:
    drawn = _drawn(number)
    prefix = f"model{number}."
    env = write(drawn, tmp_path, prefix)
    cluster.write(topics(drawn, prefix))
    job = cluster.start(env.get_job_graph(f"model {number}"))
    cluster.finish(job)
    meaning = interpret(env.get_stream_graph(), decoded(drawn, prefix))
    assert Counter((r.identifier, r.text) for r in cluster.printed(job)) == meaning.printed, drawn
    assert Counter(job.outcome.accumulators) == meaning.accumulators


def _drawn(number: int) -> Program:
    """Returns the largest of some programs of a seed: always the same one."""
    results: list[Program] = []

    @seed(number)
    @settings(
        max_examples=20, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(programs(steps=3, most_parallel=2, in_memory=False))
    def draw(drawn: Program) -> None:
        results.append(drawn)

    draw()
    return max(results, key=lambda program: (len({step.name for step in program.steps}), -len(program.steps)))
