"""A session in a YARN with Kerberos: who has no ticket is refused in one line, and containers work by delegation
tokens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from polling import wait_until

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.secured_yarn import SecuredYarn
from tailrace.schemas import job_master, resource_manager
from tailrace.services.cli.demo.text_server import TextServer

from .test_cluster import PROGRAM, Cluster
from .test_kill import LogFollower, runs

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredYarn]:
    with SecuredYarn() as running:
        yield running


@pytest.fixture
def session(secured: SecuredYarn, tmp_path: Path) -> Cluster:
    """Returns a home, and what a client of this YARN has in its environment: no ticket and no keytab."""
    return Cluster(
        tmp_path / "home",
        HADOOP_CONF_DIR=str(secured.configuration_dir),
        TAILRACE_YARN_PYTHON_EXECUTABLE=sys.executable,
        TAILRACE_REST_BIND_PORT="0",
        TAILRACE_SECURITY_KERBEROS_KRB5_CONF_PATH=str(secured.krb5_configuration),
        KRB5CCNAME=str(tmp_path / "no-ticket"),
    )


def forget_tokens(secured: SecuredYarn) -> None:
    """Makes all delegation tokens that HDFS has given invalid, as when they expire."""
    manager = secured.mini_hdfs.getNamesystem().getDelegationTokenSecretManager()
    manager.stopThreads()
    manager.reset()
    manager.startThreads()


def test_login_that_fails_is_refused_in_one_line(
    session: Cluster, secured: SecuredYarn, kafka: EmbeddedKafka
) -> None:
    def refusal(*more: str) -> str:
        result = session.run("yarn-session", "-d", "--bootstrap-servers", kafka.bootstrap_servers, *more)
        assert result.returncode == 5, result.stdout + result.stderr
        return result.stderr.splitlines()[-1]

    assert "this user has no ticket: run kinit, or set security.kerberos.login.keytab" in refusal()
    other = refusal(
        "-D", f"security.kerberos.login.keytab={secured.keytab}", "-D", "security.kerberos.login.principal=me"
    )
    assert "me cannot log in by the keytab" in other
    assert not (session.home / "cluster.json").exists()


def test_containers_work_by_tokens_and_application_master_gets_new_ones_by_keytab(
    session: Cluster, secured: SecuredYarn, kafka: EmbeddedKafka
) -> None:
    session.environment |= {
        "TAILRACE_SECURITY_KERBEROS_LOGIN_KEYTAB": str(secured.keytab),
        "TAILRACE_SECURITY_KERBEROS_LOGIN_PRINCIPAL": secured.principal,
        # The node of the ApplicationMaster has no room for it: its node has no file of the application yet.
        "TAILRACE_TASKMANAGER_MEMORY_PROCESS_SIZE": "7 gb",
        "TAILRACE_TASKMANAGER_NUMBEROFTASKSLOTS": "1",
        "TAILRACE_TASKMANAGER_SPARK_START_ON_DEMAND": "true",
        "TAILRACE_SLOT_REQUEST_TIMEOUT": "4 min",
    }
    session.ok("yarn-session", "-d", "--bootstrap-servers", kafka.bootstrap_servers)
    try:
        forget_tokens(secured)
        text, log = TextServer(words_per_s=20), LogFollower(session)
        options = ["--hostname", "127.0.0.1", "--port", str(text.port), "--window-seconds", "2"]
        session.ok("run", "-d", "-p", "1", str(PROGRAM), *options)
        log.until(resource_manager.WorkerStarted)
        log.until(job_master.UpdateTaskExecutionState, runs)
        log.close()
        text.close()
    finally:
        session.run("cluster", "stop")
    files, paths = secured.mini_hdfs.getFileSystem(), secured.jvm.org.apache.hadoop.fs.Path
    staging = paths(f"/user/{secured.principal}/.tailrace")
    wait_until(lambda: not files.exists(staging) or not list(files.listStatus(staging)))
    wait_until(lambda: not secured.containers())
