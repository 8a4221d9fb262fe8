"""A Spark cluster whose executors run the tasks of queries: its settings, and its errors in one line.

Executors may be on other machines. Spark sends them the jars of Kafka's connector, the code of tailrace, and an
environment of Python if one is given, each unpacked in the working directory of an executor.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ..common.failures import TaskError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECT_TIMEOUT_S: Final = 5.0
CODE: Final = "tailrace-code"
"""The directory of tailrace's code, in the working directory of an executor."""
ENVIRONMENT: Final = "tailrace-python"
"""The same of the environment of Python."""
_STANDALONE: Final = "spark://"
_SHIPPED: Final = ("pipelines", "schemas", "infra")
"""The packages that Spark's Python workers import."""


class SparkClusterError(TaskError):
    """The cluster cannot run queries; the message says why and what to do."""


class SparkClusterAddress(msgspec.Struct, frozen=True):
    """A Spark cluster, and what a TaskExecutor wants of it."""

    master: str
    """`spark://host:port,...`, `yarn`, or `k8s://https://host:port`."""
    driver_host: str
    """The address of this machine at which executors reach the TaskExecutor."""
    cores: int
    """The most cores to take: a task of a query needs one."""
    executors: int | None = None
    """The number of executors. None, for a standalone cluster only: one on each Worker that has cores."""
    python_executable: str | None = None
    """The Python of the executors; None: at the path of this one."""
    python_archive: str | None = None
    """An archive of an environment that is sent, with its bin/python."""
    settings: Mapping[str, str] = {}
    """Spark's own, such as `spark.kubernetes.container.image`."""

    @property
    def is_standalone(self) -> bool:
        """Whether it has Spark's own Master."""
        return self.master.startswith(_STANDALONE)

    @property
    def python(self) -> str:
        """The Python that executors start."""
        if self.python_archive is not None:
            return f"./{ENVIRONMENT}/bin/python"
        return self.python_executable or sys.executable

    def spark_settings(self, jars: Sequence[Path], heap_mib: int, code: Path) -> dict[str, str]:
        """Returns the settings of a session. `code`: the archive of write_code."""
        archives = [f"{code}#{CODE}"]
        if self.python_archive is not None:
            archives.append(f"{self.python_archive}#{ENVIRONMENT}")
        return {
            "spark.executor.memory": f"{heap_mib}m",
            # A host that is cut off is noticed as late as one of tailrace's (heartbeat.timeout).
            "spark.network.timeout": "50s",
            "spark.network.timeoutInterval": "10s",
            **self._size(),
            **self.settings,
            "spark.driver.host": self.driver_host,
            "spark.driver.bindAddress": self.driver_host,
            "spark.dynamicAllocation.enabled": "false",
            # Spark sends them to the executors.
            "spark.jars": ",".join(map(str, jars)),
            "spark.archives": ",".join(archives),
            "spark.executorEnv.PYTHONPATH": CODE,
            # A failed query is started again from the tasks' positions. A task that Spark starts again would begin
            # where its query began.
            "spark.task.maxFailures": "1",
        }

    def _size(self) -> dict[str, str]:
        if self.is_standalone and self.executors is None:
            return {"spark.cores.max": str(self.cores)}
        executors = self.executors or 1
        cores = -(-self.cores // executors)
        if self.is_standalone:
            return {"spark.cores.max": str(cores * executors), "spark.executor.cores": str(cores)}
        return {"spark.executor.instances": str(executors), "spark.executor.cores": str(cores)}

    def is_reachable(self) -> bool:
        """Whether a Master accepts connections; True if the cluster has none."""
        return not self.is_standalone or any(
            _accepts(server) for server in self.master.removeprefix(_STANDALONE).split(",")
        )

    def check(self) -> None:
        """Raises SparkClusterError if a session cannot start."""
        if not self.is_reachable():
            raise SparkClusterError(
                f"spark.master: no Master of Spark accepts connections at {self.master}: start one there, or correct "
                "the address"
            )
        if self.master == "yarn" and not (
            os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")
        ):
            raise SparkClusterError(
                "spark.master: yarn needs the directory of YARN's configuration files in HADOOP_CONF_DIR"
            )
        image = "spark.kubernetes.container.image", "spark.kubernetes.executor.container.image"
        if self.master.startswith("k8s://") and not any(name in self.settings for name in image):
            raise SparkClusterError(
                f"spark.master: {self.master} needs an image of executors: set {image[0]} in spark.settings"
            )
        if self.python_archive is not None and not Path(self.python_archive).is_file():
            raise SparkClusterError(f"spark.python-archive: there is no file {self.python_archive}")


def write_code(target: Path) -> Path:
    """Writes an archive of the code that workers need, and returns its path."""
    package = Path(__file__).parents[3]
    files = [
        package / "__init__.py",
        *(path for each in _SHIPPED for path in sorted((package / each).rglob("*.py"))),
    ]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, Path("tailrace") / path.relative_to(package))
    return target


def send_files(spark: SparkSession, directory: Path, scratch: Path) -> None:
    """Sends a directory of files that a job ships to the executors, present and future ones. Spark has no way to remove
    it there before the session ends."""
    archive = scratch / "shipped" / f"{directory.name}.zip"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        # Two queries of a job may start at once.
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = shutil.make_archive(f"{folder}/files", "zip", directory)
            os.replace(made, archive)
    spark.sparkContext._jsc.sc().addArchive(f"{archive}#{directory.name}")


def received_files(path: str) -> Path:
    """Returns where a worker finds a directory of send_files, by its path at the TaskExecutor."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / Path(path).name


def do_nothing(_number: int) -> None:
    """Runs on executors, to see whether they can run our code."""


def explain(cluster: SparkClusterAddress, text: str) -> str | None:
    """Returns what is wrong with the executors, and what to do; None if the error may pass."""
    from pyspark.version import __version__

    if "InvalidClassException" in text or "local class incompatible" in text:
        return (
            f"a Worker of {cluster.master} has another release of Spark than this TaskExecutor, {__version__}: "
            "install the same one"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        own = ".".join(map(str, sys.version_info[:2]))
        return (
            f"the executors of {cluster.master} have another Python than {own}: set spark.python-executable or "
            "spark.python-archive"
        )
    if "Cannot run program" in text:
        return (
            f"the executors of {cluster.master} have no {cluster.python}: set spark.python-executable to a Python that "
            "they have, or spark.python-archive to an environment that is sent"
        )
    if "No module named" in text:
        module = text.partition("No module named")[2].split()[0].strip("'\"")
        return (
            f"the Python of the executors of {cluster.master}, {cluster.python}, has no module {module}: install it "
            "there, or set spark.python-archive to an environment that is sent"
        )
    return None


def _accepts(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
