"""Upgrades of a running job by the command line, on real servers: each result is there once, also if the new program
fails, and if the command is killed and repeated."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.services.cli.exit_codes import ExitCode

from ..fault_injection import result_topics
from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)

KEYS = 5
PROGRAM = """
import sys
from tailrace import Formats, KafkaSink, StreamExecutionEnvironment

topic = sys.argv[1]


def number(index: int) -> int:
    FAILURE
    return index


def count(before: tuple[str, int], one: tuple[str, int]) -> tuple[str, int]:
    return before[0], before[1] + one[1]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.generate(lambda index: index, rate_per_second=500, output_type=int).uid("numbers")
counts = numbers.map(number, int).map(lambda index: (f"k{index % 5}", 1), tuple[str, int])
counts = counts.key_by(lambda pair: pair[0], str).reduce(count).uid("UID")
counts.map(lambda pair: f"VERSION {pair[0]} {pair[1]}", str).sink_to(KafkaSink(topic, Formats.text()))
env.execute("Counting")
"""
FAILS = 'raise ValueError("planted")'


class Counting:
    """A job that counts per key, and the programs that it is upgraded to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic = result_topics.make(cluster.configuration.bootstrap_servers, "upgraded", 2)
        started = cluster.ok("run", "-d", str(self.program("v1")), self.topic)
        self.job_id = started.stdout.strip()

    def program(self, version: str, uid: str = "counts", failure: str = "pass") -> Path:
        """Writes a version of the program."""
        path = self.cluster.home.parent / f"{self.topic}-{version}.py"
        text = PROGRAM.replace("VERSION", version).replace("UID", uid).replace("FAILURE", failure)
        path.write_text(text)
        return path

    def upgrade(self, program: Path, *options: str) -> tuple[int, dict[str, str], str]:
        """Upgrades the job; returns the exit code, the result and the progress."""
        done = self.cluster.run(*self.command(program, *options))
        print(done.stderr, done.stdout)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def command(self, program: Path, *options: str) -> tuple[str, ...]:
        """Returns the command that upgrades the job."""
        limits = ("--stabilization", "1", "-o", "json")
        return "upgrade", *limits, *options, self.job_id, str(program), self.topic

    def kill_upgrade_at(self, program: Path, line: str) -> None:
        """Upgrades the job, and kills the command when it has printed a line."""
        with self.cluster.popen(*self.command(program)) as process:
            assert process.stderr is not None
            shown = []
            for text in process.stderr:
                shown.append(text)
                if line in text:
                    break
            process.kill()
        assert line in shown[-1], shown

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


def test_upgraded_job_has_each_result_once(cluster: Cluster) -> None:
    job = Counting(cluster)
    job.wait_for_results_of("v1")

    code, _, said = job.upgrade(job.program("other", uid="other"))
    assert code == ExitCode.JOB, said
    assert "nothing is changed" in said
    assert "there is state of operator" in said

    job.kill_upgrade_at(second := job.program("v2"), "is submitted as job")
    code, done, said = job.upgrade(second)
    assert (code, done["outcome"], done["upgraded_job_id"]) == (ExitCode.OK, "STABLE", job.job_id), said
    job.job_id = done["job_id"]
    job.wait_for_results_of("v2")
    code, done, said = job.upgrade(second)
    assert (code, done["outcome"]) == (ExitCode.OK, "UNCHANGED"), said

    code, done, said = job.upgrade(job.program("v3", failure=FAILS))
    assert (code, done["outcome"]) == (ExitCode.ROLLED_BACK, "ROLLED_BACK"), said
    assert re.search("a task failed: .*planted", done["reason"])
    cluster.ok("stop", done["job_id"])
    job.check()
    assert {line.partition(" ")[0] for line in job.written()} == {"v1", "v2"}
