"""Brings a cluster up in YARN: checks, a staging directory, the submission, and the wait until the jobmanager leads.

Everything that a container needs is in the staging directory, `.tailrace/<application id>` in the user's home on HDFS:
the options as `tailrace.yaml`, the job as `job.json` if the cluster runs for one, the client's Hadoop configuration,
the jars of Spark's Kafka source, and the environment of Python if it is shipped. So the nodes need Java, and no
configuration.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from ...infra.jars import spark_jars
from ..configuration import Configuration
from ..configuration.options.cluster import HOME
from ..configuration.options.kerberos import KERBEROS_KEYTAB, KRB5_CONFIGURATION
from ..configuration.options.resource_manager import RESOURCE_MANAGER_MODE, WORKER_DRIVER
from ..configuration.options.task_executor import NUMBER_OF_TASK_SLOTS, PROCESS_MEMORY
from ..configuration.options.yarn import (
    APPLICATION_ATTEMPTS,
    APPLICATION_JOB_ID,
    APPLICATION_MASTER_VCORES,
    APPLICATION_NAME,
    APPLICATION_QUEUE,
    JOB_MANAGER_PROCESS_MEMORY,
    PYTHON_ARCHIVE,
    PYTHON_EXECUTABLE,
    YARN_CONTAINER_VCORES,
)
from ..configuration.worker_size import process_cores, process_memory
from .application import ApplicationReport, ApplicationRequest
from .application_master import LocalResource, escape_for_launch
from .errors import YarnError
from .job_file import JobFile, write_job_file
from .jvm_application_client import JvmApplicationClient
from .resource_check import ContainerRequest, check_requests

START_TIMEOUT_S: Final = 300.0
HADOOP_CONFIGURATION: Final = "hadoop-conf"
_CACHE: Final = "cache"
_ENVIRONMENT: Final = "environment"
_CONFIGURATION_FILE: Final = "tailrace.yaml"
_JOB_FILE: Final = "job.json"
_KEYTAB: Final = "login.keytab"
_KRB5_CONFIGURATION: Final = "krb5.conf"
_MIB: Final = 1 << 20
_CLIENTS_OWN: Final = frozenset({HOME.key, PYTHON_ARCHIVE.key, PYTHON_EXECUTABLE.key})
"""Options that make no sense on another machine."""

Say = Callable[[str], None]


class Deployment(msgspec.Struct, frozen=True):
    """A cluster that runs in YARN."""

    application_id: str
    cluster_id: str
    staging_directory: str
    tracking_url: str
    configuration: Configuration
    """With the cluster id that it got."""


def deploy(
    configuration: Configuration,
    client: JvmApplicationClient,
    say: Say,
    job: JobFile | None = None,
) -> Deployment:
    """Brings the application up and returns when it is RUNNING, or has run. `job`: the one that it runs for; None: a
    session.

    Without `cluster.id` the application's id is the cluster's. Raises YarnError; then nothing is left in YARN or HDFS.
    """
    check_python(configuration)
    nodes = client.nodes()
    for node in nodes:
        say(f"node {node.name}: {node.memory_mib} MiB and {node.vcores} vcores")
    say(client.check_queue(configuration.get(APPLICATION_QUEUE)))
    client.check_file_system()
    largest = client.create()
    check_requests(container_requests(configuration), nodes, largest)
    say(f"{client.application_id} created")
    if not configuration.has("cluster.id"):
        configuration = configuration.replace({"cluster.id": client.application_id})
    if job is not None:
        configuration = configuration.replace({APPLICATION_JOB_ID.key: job.job_id})
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-yarn-") as scratch:
            resources = client.upload(files_to_ship(configuration, os.environ, Path(scratch), job))
        staging = client.staging_directory
        say(f"staging directory {staging}: {', '.join(sorted(resources))}")
        command = ["jobmanager"] if job is None else ["jobmanager", "--job-file", _JOB_FILE]
        client.submit(create_request(configuration, resources, staging, command))
        for report in client.reports(("RUNNING", "FINISHED"), START_TIMEOUT_S):
            say(_describe(report))
        # An application that FINISHED has registered: its job has ended already.
        has_run = report.state == "RUNNING" or (job is not None and report.state == "FINISHED")
        if not has_run:
            raise YarnError(f"{client.application_id} ended before it ran: {report.diagnostics}")
    except BaseException:
        client.discard()
        raise
    return Deployment(
        client.application_id, configuration.cluster_id, staging, report.tracking_url, configuration
    )


def check_python(configuration: Configuration) -> None:
    """Raises YarnError if the nodes would have no Python, or if the archive is not there."""
    archive = configuration.get(PYTHON_ARCHIVE)
    if not archive and not configuration.get(PYTHON_EXECUTABLE):
        raise YarnError(
            f"the nodes need a Python with tailrace: set -D {PYTHON_ARCHIVE.key}=FILE to an archive of an environment "
            f"(venv-pack, conda-pack), or -D {PYTHON_EXECUTABLE.key}=PATH to one that every node has"
        )
    if archive and not Path(archive).is_file():
        raise YarnError(f"{PYTHON_ARCHIVE.key}: there is no file {archive}")


def container_requests(configuration: Configuration) -> list[ContainerRequest]:
    """Returns the containers that the application asks for."""
    slots = configuration.get(NUMBER_OF_TASK_SLOTS)
    return [
        ContainerRequest(
            "the jobmanager",
            -(-configuration.get(JOB_MANAGER_PROCESS_MEMORY) // _MIB),
            configuration.get(APPLICATION_MASTER_VCORES),
            f"lower -jm or {JOB_MANAGER_PROCESS_MEMORY.key}, or {APPLICATION_MASTER_VCORES.key}",
        ),
        ContainerRequest(
            "a TaskExecutor",
            -(-process_memory(configuration) // _MIB),
            math.ceil(process_cores(configuration, slots, YARN_CONTAINER_VCORES)),
            f"lower -tm or {PROCESS_MEMORY.key}, or -s or {YARN_CONTAINER_VCORES.key}",
        ),
    ]


def files_to_ship(
    configuration: Configuration,
    environment: Mapping[str, str],
    scratch: Path,
    job: JobFile | None = None,
) -> dict[str, Path]:
    """Returns the files of every container, by name; writes those that are not there yet into `scratch`."""
    files: dict[str, Path] = {_CONFIGURATION_FILE: scratch / _CONFIGURATION_FILE}
    files[_CONFIGURATION_FILE].write_text(_configuration_file(configuration), "utf-8")
    jars = {f"jars/{path.parent.name}/{path.name}": path for path in spark_jars()}
    files[f"{_CACHE}.zip"] = _archive(scratch / f"{_CACHE}.zip", jars)
    if directory := environment.get("HADOOP_CONF_DIR"):
        sites = {path.name: path for path in sorted(Path(directory).glob("*.xml"))}
        name = f"{HADOOP_CONFIGURATION}.zip"
        files[name] = _archive(scratch / name, sites)
    if job is not None:
        files[_JOB_FILE] = scratch / _JOB_FILE
        write_job_file(files[_JOB_FILE], job)
    if shipped := configuration.get(PYTHON_ARCHIVE):
        path = Path(shipped).absolute()
        ending = ".zip" if path.suffix == ".zip" else ".tar.gz"
        files[f"{_ENVIRONMENT}{ending}"] = path
    for option, name in ((KERBEROS_KEYTAB, _KEYTAB), (KRB5_CONFIGURATION, _KRB5_CONFIGURATION)):
        if own := configuration.get(option):
            files[name] = Path(own).absolute()
    return files


def create_request(
    configuration: Configuration,
    resources: Mapping[str, LocalResource],
    staging: str,
    command: Sequence[str],
) -> ApplicationRequest:
    """Returns what is submitted. The container's directory is the home of its process."""
    jobmanager, _ = container_requests(configuration)
    python = configuration.get(PYTHON_EXECUTABLE) or f"{_ENVIRONMENT}/bin/python"
    line = escape_for_launch(shlex.join([python, "-P", "-m", "tailrace.services.cli", *command]))
    environment = {
        "TAILRACE_YARN_PYTHON": escape_for_launch(python),
        "TAILRACE_YARN_STAGING": escape_for_launch(staging),
        "TAILRACE_YARN_LOCAL_RESOURCES": escape_for_launch(msgspec.json.encode(dict(resources)).decode()),
        "TAILRACE_HOME": "$PWD",
        "TAILRACE_CACHE_DIR": f"$PWD/{_CACHE}",
        "PYTHONUNBUFFERED": "1",
    }
    if HADOOP_CONFIGURATION in resources:
        environment["HADOOP_CONF_DIR"] = f"$PWD/{HADOOP_CONFIGURATION}"
    return ApplicationRequest(
        name=configuration.get(APPLICATION_NAME),
        queue=configuration.get(APPLICATION_QUEUE),
        memory_mib=jobmanager.memory_mib,
        vcores=jobmanager.vcores,
        attempts=configuration.get(APPLICATION_ATTEMPTS),
        command=f"{line} 1> <LOG_DIR>/jobmanager.out 2> <LOG_DIR>/jobmanager.err",
        environment=environment,
        local_resources=resources,
    )


def _archive(target: Path, files: Mapping[str, Path]) -> Path:
    with zipfile.ZipFile(target, "w") as file:
        for name, path in files.items():
            file.write(path, name)
    return target


def _configuration_file(configuration: Configuration) -> str:
    values = {
        setting.key: setting.text for setting in configuration.settings() if setting.key not in _CLIENTS_OWN
    }
    for option, name in ((KERBEROS_KEYTAB, _KEYTAB), (KRB5_CONFIGURATION, _KRB5_CONFIGURATION)):
        if configuration.get(option):
            values[option.key] = name
    values |= {RESOURCE_MANAGER_MODE.key: "active", WORKER_DRIVER.key: "yarn"}
    # A string in JSON is one in YAML.
    return "".join(f"{json.dumps(key)}: {json.dumps(text)}\n" for key, text in sorted(values.items()))


def _describe(report: ApplicationReport) -> str:
    where = f"{report.host}:{report.port}, {report.tracking_url}" if report.state == "RUNNING" else ""
    return " ".join(part for part in (report.state, where, report.diagnostics) if part)
