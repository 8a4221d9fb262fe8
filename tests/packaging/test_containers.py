"""Dockerfile, compose.yaml and the workflows agree with the options, versions and files of the package.

`make lint` checks their syntax; no container engine runs here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailrace.infra.versions import KAFKA_VERSION

SERVICES = ("jobmanager", "taskexecutor-1", "taskexecutor-2")


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    result: dict[str, Any] = yaml.safe_load((root / "compose.yaml").read_text("utf-8"))
    return result


@pytest.fixture(scope="module")
def workflows(root: Path) -> dict[str, Any]:
    paths = sorted((root / ".github" / "workflows").glob("*.yml"))
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in paths}


@pytest.mark.parametrize("service", SERVICES)
def test_environment_variables_of_services_set_options(
    compose: dict[str, Any], service: str, tmp_path: Path
) -> None:
    environment = compose["services"][service]["environment"]
    assert all(name.startswith("TAILRACE_") for name in environment)
    shown = subprocess.run(
        [sys.executable, "-m", "tailrace.services.cli", "config", "--output", "json"],
        env={**os.environ, **environment, "TAILRACE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    result = {option["from"]: option["value"].removeprefix("file://") for option in json.loads(shown.stdout)}
    assert {name: result.get(name) for name in environment} == environment


def test_all_services_share_one_storage(compose: dict[str, Any]) -> None:
    directories = set()
    for service in SERVICES:
        assert compose["services"][service]["volumes"] == ["storage:/storage"]
        environment = compose["services"][service]["environment"]
        directories.add(tuple(value for value in environment.values() if value.startswith("/storage/")))
    assert [len(paths) for paths in directories] == [3]


def test_blob_server_and_relay_listen_on_cluster_network(compose: dict[str, Any]) -> None:
    environment = compose["services"]["jobmanager"]["environment"]
    assert environment["TAILRACE_BLOB_SERVER_HOST"] == environment["TAILRACE_LOG_RELAY_HOST"] == "jobmanager"


def test_task_executor_keeps_name_after_container_restart(compose: dict[str, Any]) -> None:
    for service in SERVICES[1:]:
        assert compose["services"][service]["environment"]["TAILRACE_TASKMANAGER_RESOURCE_ID"] == service


def test_no_port_is_published_to_host(compose: dict[str, Any]) -> None:
    assert [name for name, service in compose["services"].items() if "ports" in service] == []
    assert [name for name, service in compose["services"].items() if "network_mode" in service] == []


def test_broker_has_version_that_tests_use(compose: dict[str, Any]) -> None:
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"


def test_every_image_is_built_here_or_has_version(compose: dict[str, Any], root: Path) -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE))
    for name, service in compose["services"].items():
        if "build" in service:
            assert service["build"]["target"] in stages, name
        else:
            assert re.search(r":\d", service["image"]), name


def test_build_context_has_files_of_wheel(root: Path) -> None:
    allowed = set(re.findall(r"^!/(\S+)$", (root / ".dockerignore").read_text("utf-8"), re.MULTILINE))
    assert [name for name in allowed if not (root / name).exists()] == []
    packages = re.search(r"^SHIPPED = \((.*)\)$", (root / "setup.py").read_text("utf-8"), re.MULTILINE)
    assert packages is not None
    assert set(re.findall(r'"(\w+)"', packages[1])) <= allowed


def test_python_versions_are_consistent(root: Path, workflows: dict[str, Any]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    prefix = "Programming Language :: Python :: "
    stated = [line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix)]
    assert workflows["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"] == stated
    assert project["requires-python"] == f">={stated[0]}"
    image = re.search(r"^ARG PYTHON_VERSION=(\S+)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert image is not None
    assert image[1] in stated


@pytest.mark.parametrize(("workflow", "job"), [("ci", "test"), ("release", "release")])
def test_workflow_calls_ci_script(workflows: dict[str, Any], workflow: str, job: str) -> None:
    assert ".ci/run" in [step.get("run") for step in workflows[workflow]["jobs"][job]["steps"]]
