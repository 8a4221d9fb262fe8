"""Upgrades of a running job by the command line, on real servers: each result is there once, also if the new program
fails, and if the command is killed and repeated."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.history import cluster_view

from ..fault_injection import result_topics
from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)

KEYS = 5
PROGRAM = """
import sys
from tailrace import Formats, KafkaSink, StreamExecutionEnvironment

topic = sys.argv[1]
PADDING = b"x" * (1 << 20)  # Large code travels as a blob.


def number(index: int) -> int:
    FAILURE
    return index % len(PADDING)


def count(before: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    return before[0], before[1] + one[1]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(PARALLELISM)
numbers = env.generate(lambda index: index, rate_per_second=500, output_type=int).uid("numbers")
counts = numbers.map(number, int).map(lambda index: (f"k{index % 5}", 1), tuple[str, int])
counts = counts.key_by(lambda pair: pair[0], str).reduce(count).uid("UID")
counts.map(lambda pair: f"VERSION {pair[0]} {pair[1]}", str).sink_to(KafkaSink(topic, Formats.text()))
env.execute(topic)
"""
FROM_KAFKA = """
import sys
from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment

records, counts = sys.argv[1:]


def count(before: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    return before[0], before[1] + one[1]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
texts = env.from_source(KafkaSource(records, Formats.text(), group_id="counting")).uid("records")
pairs = texts.map(lambda text: (f"k{int(text) % 5}", 1), tuple[str, int])
counted = pairs.key_by(lambda pair: pair[0], str).reduce(count).uid("counts")
counted.map(lambda pair: f"VERSION {pair[0]} {pair[1]}", str).sink_to(KafkaSink(counts, Formats.text()))
env.execute("counting")
"""
KEPT = ("is being stopped", "is triggered", "is submitted as job", "starts", "all tasks of job")
"""What a command prints on its way to a new program, in order."""
NOT_KEPT = (
    "is being stopped",
    "is complete",
    "is submitted as job",
    "is not stable",
    "is being cancelled",
    "the old program is submitted",
    "of the old program starts",
)
"""The same, and on its way back."""
FAILS = 'raise ValueError("planted")'


class Counting:
    """A job that counts per key, and the programs that it is upgraded to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = result_topics.make(cluster.configuration.bootstrap_servers, "upgraded", 2)
        started = cluster.ok("run", "-d", str(self.program("v1")), self.topic)
        self.job_id = started.stdout.strip()

    def program(self, version: str, uid: str = "counts", failure: str = "pass", parallelism: int = 2) -> Path:
        """Writes a version of the program."""
        path = self.cluster.home.parent / f"{self.topic}-{version}.py"
        text = PROGRAM.replace("VERSION", version).replace("UID", uid).replace("FAILURE", failure)
        text = text.replace("PARALLELISM", str(parallelism))
        path.write_text(text)
        return path

    def upgrade(self, program: Path, *options: str, job: str = "") -> tuple[int, dict[str, str], str]:
        """Upgrades the job; returns the exit code, the result and the progress."""
        done = self.cluster.run(*self.command(program, *options, job=job))
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def command(self, program: Path, *options: str, job: str = "") -> tuple[str, ...]:
        """Returns the command that upgrades the job. `job`: another name for it."""
        limits = ("--stabilization", "1", "-o", "json")
        return "upgrade", *limits, *options, job or self.job_id, str(program), self.topic

    def kill_upgrade_at(self, program: Path, line: str, job: str = "") -> bool:
        """Upgrades the job, and kills the command when it has printed a line; returns whether it has."""
        with self.cluster.popen(*self.command(program, job=job)) as process:
            assert process.stderr is not None
            is_shown = any(line in shown for shown in process.stderr)
            process.kill()
        return is_shown

    def written(self) -> Counter[str]:
        """Returns the committed results with their version."""
        return result_topics.read(self.cluster.configuration.bootstrap_servers, self.topic)

    def wait_for_results_of(self, version: str) -> None:
        """Waits until a version of the program has written."""
        wait_until(
            lambda: any(line.startswith(f"{version} ") for line in self.written()), f"{version} writes"
        )

    def check(self) -> None:
        """Checks that the counts of each key are 1, 2, 3, ..., each once, by whichever program."""
        found: dict[str, list[int]] = {}
        for line, times in self.written().items():
            _, key, number = line.split()
            found.setdefault(key, []).extend([int(number)] * times)
        assert sorted(found) == [f"k{key}" for key in range(KEYS)]
        for key, numbers in found.items():
            assert sorted(numbers) == list(range(1, len(numbers) + 1)), key


@pytest.fixture
def cluster(four_slots: Cluster) -> Cluster:
    return four_slots


def test_job_whose_new_program_fails_goes_back_and_has_each_result_once(cluster: Cluster) -> None:
    job = Counting(cluster)
    job.wait_for_results_of("v1")
    code, done, said = job.upgrade(job.program("v2", failure=FAILS))
    assert (code, done["outcome"], done["upgraded_job_id"]) == (
        ExitCode.ROLLED_BACK,
        "ROLLED_BACK",
        job.job_id,
    ), said
    assert re.search("a task failed: .*planted", done["reason"])
    cluster.ok("stop", done["job_id"])
    job.check()


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_upgrade_that_is_killed_at_each_line_has_each_result_once(cluster: Cluster) -> None:
    job = Counting(cluster)
    job.wait_for_results_of("v1")

    unfit = {
        "there is state of operator 'Keyed Reduce'": job.program("unfit", uid="other"),
        "the program needs 99 slots": job.program("large", parallelism=99),
    }
    for why, program in unfit.items():
        code, _, said = job.upgrade(program)
        assert code == ExitCode.JOB, said
        assert "1 problem; nothing is changed" in said
        assert why in said
    planned = cluster.ok("upgrade", "--dry-run", job.topic, str(job.program("v2")), job.topic)
    assert f"job {job.job_id} would be stopped" in planned.stdout

    killed = [job.kill_upgrade_at(job.program("v2"), line, job=job.topic) for line in KEPT]
    assert sum(killed) >= 4, killed
    code, done, said = job.upgrade(job.program("v2"))
    assert (code, done["outcome"]) == (ExitCode.OK, "STABLE"), said
    code, done, said = job.upgrade(job.program("v2"), job=job.topic)
    assert (code, done["outcome"]) == (ExitCode.OK, "UNCHANGED"), said
    job.job_id = done["job_id"]
    job.wait_for_results_of("v2")

    failing = job.program("v3", failure=FAILS)
    killed = [job.kill_upgrade_at(failing, line) for line in NOT_KEPT]
    assert sum(killed) >= 5, killed
    code, done, said = job.upgrade(failing)
    assert (code, done["outcome"]) == (ExitCode.ROLLED_BACK, "ROLLED_BACK"), said
    cluster.ok("stop", done["job_id"])
    job.check()
    assert {line.partition(" ")[0] for line in job.written()} == {"v1", "v2"}
    fold, _ = cluster.story()
    assert len([each for each in cluster_view.jobs(fold) if each.name == job.topic]) == 4


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_green_cluster_continues_savepoint_of_blue_one_on_same_kafka(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Records are written before, during and after the switch; each is counted once, and so on the way back."""
    servers = cluster.configuration.bootstrap_servers
    records, counts = result_topics.make(servers, "records", 2), result_topics.make(servers, "counts", 2)
    shared, green = tmp_path / "savepoints", Cluster(tmp_path / "green")
    number = itertools.count()

    def write() -> None:
        values = [str(next(number)) for _ in range(2_000)]
        result_topics.write(servers, records, values, 2)

    def program(version: str) -> str:
        path = tmp_path / f"{version}.py"
        path.write_text(FROM_KAFKA.replace("VERSION", version))
        return str(path)

    def has_counted() -> bool:
        return result_topics.read(servers, counts).total() == expected

    write()
    expected = 2_000
    job = cluster.ok("run", "-d", program("blue"), records, counts).stdout.strip()
    wait_until(has_counted, "blue's counts")
    green.ok(
        *("cluster", "start", "--bootstrap-servers", servers, "--cluster-id", "green"),
        *("--taskexecutors", "1", "--slots", "2"),
    )
    try:
        for here, there, version in ((cluster, green, "green"), (green, cluster, "back")):
            write()
            savepoint = here.ok("stop", job, "--target", str(shared)).stdout.strip()
            write()
            job = there.ok("run", "-d", "-s", savepoint, program(version), records, counts).stdout.strip()
            write()
            expected += 6_000
            wait_until(has_counted, f"{version}'s counts")
    finally:
        green.ok("cluster", "stop")
    cluster.ok("stop", job)
    found = [line.split() for line in result_topics.read(servers, counts).elements()]
    assert {version for version, _, _ in found} == {"blue", "green", "back"}
    for key in range(KEYS):
        numbers = sorted(int(count) for _, name, count in found if name == f"k{key}")
        assert numbers == list(range(1, expected // KEYS + 1))
