"""Tools that know nothing of tailrace read the log and the output of a job, by the commands in docs/kafka.md."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.services.log.topics import log_topic

from .test_cluster import Cluster

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "kafka.md").read_text("utf-8").partition("\n## Other tools\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^    ((?:tailrace kafka-tools|kcat) .*)$", PAGE, re.MULTILINE)
INSTALLED = [command for command in COMMANDS if command.startswith("tailrace") or shutil.which("kcat")]
"""kcat is a program of its own, which a machine may lack."""
PROGRAM = """
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["one", "two", "three"]).print()
env.execute("printed")
"""


@pytest.fixture(scope="module")
def job(four_slots: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the id of a job that has printed three records."""
    program = tmp_path_factory.mktemp("program") / "printed.py"
    program.write_text(PROGRAM)
    four_slots.ok("run", str(program))
    jobs = [json.loads(line) for line in four_slots.ok("list", "-o", "json").stdout.splitlines()]
    return str(next(each["job_id"] for each in jobs if each["job_id"].startswith("printed-")))


def outputs(cluster: Cluster, command: str, job: str) -> Iterator[str]:
    record = cluster.record
    for name, value in (
        ("CLUSTER", record.cluster_id),
        ("JOB", job),
        ("HOST:PORT", record.bootstrap_servers),
    ):
        command = command.replace(name, value)
    words = shlex.split(command)
    if words[0] == "tailrace":
        yield from cluster.run(*words[1:]).stdout.splitlines()
    else:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        yield from done.stdout.splitlines()


def test_page_has_commands_of_both_tools() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["tailrace", "kcat"] * 2


@pytest.mark.parametrize("command", INSTALLED, ids=[" ".join(each.split()[:3]) for each in INSTALLED])
def test_tool_reads_as_printed(four_slots: Cluster, job: str, command: str) -> None:
    lines = list(outputs(four_slots, command, job))
    if "JOB" in command:
        assert [json.loads(line)["record"] for line in lines] == ["one", "two", "three"]
    else:
        assert any("tailrace.dispatcher.SubmitJob" in line for line in lines)
        assert all(">" in line for line in lines)


def test_plain_consumer_decodes_every_event_with_described_schemas(
    four_slots: Cluster, job: str, tmp_path: Path
) -> None:
    program = tmp_path / "plain.py"
    program.write_text(PAGE.partition("```python\n")[2].partition("```")[0])
    topic = log_topic(four_slots.record.cluster_id)
    command = [
        sys.executable,
        str(program),
        four_slots.record.bootstrap_servers,
        topic,
        str(DOCS / "asyncapi.yaml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(len(lines)))
    assert any("tailrace.dispatcher.SubmitJob" in line and job in line for line in lines)
