"""If any thread of a real jobmanager fails, the process ends and names it.

No process continues without one of its threads.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest
from confluent_kafka.admin import AdminClient
from polling import TIMEOUT_S, wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.log.cluster_topics import create_cluster_topics

JOBMANAGER = """
import os
from tailrace.infra import threads
from tailrace.services.configuration import load_configuration
from tailrace.infra.logging_setup import log_to_stderr
from tailrace.services.processes import jobmanager, process_lifecycle

run, planted = threads.Thread.run, os.environ["PLANTED"]

def fails():
    raise ZeroDivisionError("planted")

def run_or_fail(thread):
    os.write(2, f"starts: {thread.name}.\\n".encode())
    if thread.name == planted:
        thread._target, thread._args = fails, ()
    run(thread)

threads.Thread.run = run_or_fail
log_to_stderr()
threads.handle(threads.end_process)
jobmanager.run(load_configuration(), process_lifecycle.stop_on_signals())
"""
ALSO = [
    "blob clean-up",
    "blob server",
    "process exits",
    "process watch",
    "snapshots",
    "submissions",
    "topics",
    "topics of ended jobs",
]


ALWAYS = ["heartbeats", "voice"]
NOT_PLANTED = {"end"}
"""The thread that ends the process."""


@pytest.mark.parametrize("name", [*ALWAYS, *(pytest.param(item, marks=pytest.mark.soak) for item in ALSO)])
def test_jobmanager_with_failed_thread_ends_and_names_it(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, name: str
) -> None:
    with (tmp_path / "stderr").open("wb") as stderr:
        code = start(kafka, cluster_id, tmp_path, name, stderr).wait(TIMEOUT_S)
    printed = (tmp_path / "stderr").read_text()
    assert code != 0
    assert f"the thread {name!r}" in printed
    assert "ZeroDivisionError: planted" in printed


@pytest.mark.soak
def test_every_thread_is_tested(kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    planted = {*ALWAYS, *ALSO}

    def names() -> set[str]:
        return set(re.findall(r"starts: (.*)\.\n", path.read_text())) - NOT_PLANTED

    with path.open("wb") as stderr:
        process = start(kafka, cluster_id, tmp_path, "", stderr)
        try:
            wait_until(lambda: names() >= planted, "all threads that can fail")
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
    assert names() == planted


def start(
    kafka: EmbeddedKafka, cluster_id: str, home: Path, planted: str, stderr: BinaryIO
) -> subprocess.Popen[bytes]:
    """Runs a jobmanager in which the thread `planted` fails at its start."""
    servers = kafka.bootstrap_servers
    create_cluster_topics(AdminClient({"bootstrap.servers": servers}), KafkaConnection(servers), cluster_id)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")},
        "TAILRACE_CLUSTER_ID": cluster_id,
        "TAILRACE_BOOTSTRAP_SERVERS": servers,
        "TAILRACE_HOME": str(home),
        "PLANTED": planted,
    }
    return subprocess.Popen([sys.executable, "-c", JOBMANAGER], env=environment, stderr=stderr)
