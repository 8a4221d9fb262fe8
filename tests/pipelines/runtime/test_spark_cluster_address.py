"""The settings of a session on a Spark cluster, and what is refused before one starts."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from tailrace.infra.ports import ReservedPort
from tailrace.pipelines.runtime.spark.cluster import (
    CODE,
    ENVIRONMENT,
    SparkClusterAddress,
    SparkClusterError,
    write_code,
)
from tailrace.pipelines.runtime.spark.session import start_session
from tailrace.services.configuration import Configuration
from tailrace.services.processes.taskexecutor import spark_cluster

ADDRESS = SparkClusterAddress("spark://127.0.0.1:7077", "10.0.0.1", 10)


def settings_of(address: SparkClusterAddress) -> dict[str, str]:
    return address.spark_settings([Path("/jars/a.jar")], 640, Path("/scratch/code.zip"))


@pytest.mark.parametrize(
    ("address", "size"),
    [
        (ADDRESS, {"spark.cores.max": "10"}),
        (replace(ADDRESS, executors=4), {"spark.cores.max": "12", "spark.executor.cores": "3"}),
        (
            replace(ADDRESS, master="yarn", executors=4),
            {"spark.executor.instances": "4", "spark.executor.cores": "3"},
        ),
    ],
)
def test_executors_have_all_cores_together(address: SparkClusterAddress, size: dict[str, str]) -> None:
    found = settings_of(address)
    names = {"spark.cores.max", "spark.executor.cores", "spark.executor.instances"}
    assert {name: value for name, value in found.items() if name in names} == size


def test_own_settings_change_size_of_executors_but_not_how_they_reach_driver() -> None:
    own = {"spark.executor.memory": "2g", "spark.driver.host": "10.9.9.9"}
    found = settings_of(replace(ADDRESS, settings=own))
    assert (found["spark.executor.memory"], found["spark.driver.host"]) == ("2g", "10.0.0.1")


def test_python_is_that_of_archive_if_one_is_sent() -> None:
    address = replace(ADDRESS, python_archive="/archives/env.tar.gz")
    assert settings_of(address)["spark.archives"].split(",") == [
        f"/scratch/code.zip#{CODE}",
        f"/archives/env.tar.gz#{ENVIRONMENT}",
    ]
    assert address.python == f"./{ENVIRONMENT}/bin/python"
    assert ADDRESS.python == sys.executable


def test_sent_code_is_all_that_workers_import(tmp_path: Path) -> None:
    with zipfile.ZipFile(write_code(tmp_path / "code.zip")) as archive:
        archive.extractall(tmp_path / CODE)
    script = "import tailrace.pipelines.runtime.spark.record_forwarder as m; print(m.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / CODE)}
    command = [sys.executable, "-P", "-c", script]
    printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    assert printed.startswith(str(tmp_path / CODE))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (replace(ADDRESS, master="yarn"), "HADOOP_CONF_DIR"),
        (replace(ADDRESS, master="k8s://https://127.0.0.1:6443"), "spark.kubernetes.container.image"),
        (replace(ADDRESS, python_archive="/nowhere.zip", master="yarn"), "there is no file /nowhere.zip"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    address: SparkClusterAddress, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    if "HADOOP" in reason:
        monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    else:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(SparkClusterError, match=reason) as refused:
        start_session(tmp_path, [], 640, cluster=address)
    assert "\n" not in str(refused.value)


def test_address_without_master_is_refused_at_once(tmp_path: Path) -> None:
    port = ReservedPort()
    address = replace(ADDRESS, master=f"spark://127.0.0.1:{port.number}")
    with pytest.raises(SparkClusterError, match="no Master of Spark accepts connections"):
        start_session(tmp_path, [], 640, cluster=address)
    port.release()


def test_settings_that_tailrace_needs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    address = replace(ADDRESS, master="yarn", settings={"spark.python.worker.reuse": "true"})
    with pytest.raises(SparkClusterError, match=r"tailrace sets spark\.python\.worker\.reuse itself"):
        start_session(tmp_path, [], 640, cluster=address)


@pytest.mark.parametrize(
    ("master", "executors"),
    [("spark://a:7077,b:7077", None), ("yarn", 3), ("k8s://https://api:6443", 3)],
)
def test_executors_are_as_many_as_slots_except_on_standalone_cluster(
    master: str, executors: int | None
) -> None:
    configuration = Configuration(
        {
            "spark.master": master,
            "taskmanager.numberOfTaskSlots": "3",
            "spark.settings": "spark.yarn.queue=streams; spark.a=b=c",
        }
    )
    found = spark_cluster(configuration)
    assert found is not None
    assert (found.executors, found.settings) == (
        executors,
        {"spark.yarn.queue": "streams", "spark.a": "b=c"},
    )
