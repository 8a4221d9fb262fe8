"""What is submitted to YARN reaches the container unchanged, through YARN's substitutions and the node's shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tailrace.services.configuration import Configuration
from tailrace.services.yarn.application_master import LocalResource, escape_for_launch
from tailrace.services.yarn.deployment import check_python, create_request, files_to_ship
from tailrace.services.yarn.errors import YarnError
from tailrace.services.yarn.kerberos import KerberosLogin

BASE = {"bootstrap.servers": "kafka:9092", "yarn.python-executable": "/opt/python"}


def test_text_survives_substitutions_and_shell() -> None:
    texts = ['{"a":{"b":"$HOME `id` \\ \'"}}', "{{JAVA_HOME}}", "{{{}}}", "}}}}"]
    escaped = [escape_for_launch(text) for text in texts]
    assert not any("{{" in each or "}}" in each for each in escaped)
    script = "\n".join(f'printf "%s\\n" "{each}"' for each in escaped)
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == texts


def test_application_master_gets_options_by_file_and_paths_of_its_own_directory(tmp_path: Path) -> None:
    given = Configuration({**BASE, "home": "/here", "taskmanager.numberOfTaskSlots": "3"})
    files = files_to_ship(given, {}, tmp_path)
    assert sorted(files) == ["cache.zip", "tailrace.yaml"]
    assert yaml.safe_load(files["tailrace.yaml"].read_text()) == {
        "bootstrap.servers": "kafka:9092",
        "resourcemanager.mode": "active",
        "resourcemanager.worker-driver": "yarn",
        "taskmanager.numberOfTaskSlots": "3",
    }
    resource = LocalResource("hdfs://n/x", 1, 2)
    request = create_request(given, {"hadoop-conf": resource}, "hdfs://n/s", ["jobmanager"])
    assert request.command.startswith("/opt/python -P -m tailrace.services.cli jobmanager 1> <LOG_DIR>/")
    assert request.environment["TAILRACE_HOME"] == "$PWD"
    assert request.environment["HADOOP_CONF_DIR"] == "$PWD/hadoop-conf"
    assert (request.memory_mib, request.vcores, request.attempts) == (1600, 1, 2)


def test_nodes_without_python_are_refused() -> None:
    with pytest.raises(YarnError, match=r"yarn\.python-archive=FILE .* yarn\.python-executable=PATH"):
        check_python(Configuration({}))
    with pytest.raises(YarnError, match="there is no file /nowhere"):
        check_python(Configuration({"yarn.python-archive": "/nowhere"}))


def test_keytab_is_shipped_and_named_by_its_place_in_the_container(tmp_path: Path) -> None:
    given = Configuration(
        {
            **BASE,
            "security.kerberos.login.keytab": "/secret/me.keytab",
            "security.kerberos.krb5-conf.path": "/etc/krb5.conf",
            "security.kerberos.login.principal": "me@EXAMPLE.ORG",
        }
    )
    files = files_to_ship(given, {}, tmp_path)
    assert files["login.keytab"] == Path("/secret/me.keytab")
    assert files["krb5.conf"] == Path("/etc/krb5.conf")
    told = yaml.safe_load(files["tailrace.yaml"].read_text())
    login = KerberosLogin.from_configuration(Configuration({key: str(value) for key, value in told.items()}))
    assert login == KerberosLogin("me@EXAMPLE.ORG", "login.keytab", "krb5.conf")
    assert login.java_options == ("-Djava.security.krb5.conf=krb5.conf",)
