"""Whichever thread of a real jobmanager fails, the process ends and names it.

None lives on without one of its parts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from polling import TIMEOUT_S

from tailrace.infra.kafka import EmbeddedKafka
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
    "output topics",
    "process exits",
    "process watch",
    "snapshots",
    "submissions",
    "topics",
]


@pytest.mark.parametrize(
    "name", ["heartbeats", "voice", *(pytest.param(each, marks=pytest.mark.soak) for each in ALSO)]
)
def test_a_jobmanager_whose_thread_fails_ends_and_names_it(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, name: str
) -> None:
    servers = kafka.bootstrap_servers
    create_cluster_topics(AdminClient({"bootstrap.servers": servers}), servers, cluster_id)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")},
        "TAILRACE_CLUSTER_ID": cluster_id,
        "TAILRACE_BOOTSTRAP_SERVERS": servers,
        "TAILRACE_HOME": str(tmp_path),
        "PLANTED": name,
    }
    ended = subprocess.run(
        [sys.executable, "-c", JOBMANAGER],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode != 0
    assert f"the thread {name!r}" in ended.stderr
    assert "ZeroDivisionError: planted" in ended.stderr
