"""YARN and HDFS in one JVM: Hadoop's MiniYARNCluster and MiniDFSCluster, on free loopback ports over a directory.

It is for tests and first attempts. NodeManagers start containers as real processes, and YARN's clients find the
servers by the files in `configuration_dir`, as on any cluster. Only the process that started it can control the
servers: py4j connects both. The JVM ends with that process, however it ends, and stops the servers then. A killed JVM
leaves its containers, so `kill` ends those too: they have a directory of this cluster in their environment.

The servers start in 11 s on two cores, all of it CPU time of the JVM.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self
from xml.sax.saxutils import escape

import psutil
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from .embedded_server import SMALL_JVM, STOP_TIMEOUT_S, EmbeddedServer, ServerUnavailable
from .jars import pyspark_jars_dir, resolve
from .ports import ReservedPort
from .prerequisites import find_java
from .versions import MINI_YARN_JARS, JarSet

START_TIMEOUT_S: Final = 120.0

_JARS: Final = ("hadoop-client-*", "commons-logging-*", "log4j-[1acs]*", "slf4j-api-*", "jcl-over-slf4j-*")
_SHUTDOWN_PRIORITY: Final = 50

_NAME: Final = "localhost"
_SERVERS: Final = (
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.webapp.address",
)
"""The ResourceManager's addresses. They are known before its start, because its proxy for web pages names itself by
what is configured."""

_SETTINGS: Final[Mapping[str, str]] = {
    "dfs.replication": "1",
    "dfs.namenode.fs-limits.min-block-size": "0",
    "yarn.minicluster.fixed.ports": "true",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": "8192",
    "yarn.nodemanager.resource.cpu-vcores": "8",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.scheduler.maximum-allocation-mb": "8192",
    # A test machine's disk may be fuller than 90 %, and its processes larger than what they ask for.
    "yarn.nodemanager.disk-health-checker.enable": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    **{
        f"yarn.nodemanager.{each}": f"{_NAME}:0"
        for each in ("address", "localizer.address", "webapp.address")
    },
    "yarn.nodemanager.heartbeat.interval-ms": "200",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.log-aggregation-enable": "true",
    "yarn.nodemanager.delete.debug-delay-sec": "0",
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    "yarn.resourcemanager.am.max-attempts": "4",
}

_SITES: Final[Mapping[str, tuple[str, ...]]] = {
    "core-site.xml": ("fs.defaultFS",),
    "hdfs-site.xml": ("dfs.replication",),
    "yarn-site.xml": (
        *_SERVERS,
        "yarn.resourcemanager.am.max-attempts",
        "yarn.log-aggregation-enable",
        "yarn.nodemanager.remote-app-log-dir",
        "yarn.scheduler.maximum-allocation-mb",
        "yarn.scheduler.minimum-allocation-mb",
    ),
}


class YarnUnavailable(ServerUnavailable):
    """The embedded YARN did not start or is not running; the message gives the reason and the location of its log."""


class EmbeddedYarn(EmbeddedServer):
    """A ResourceManager with NodeManagers, and an HDFS. As a context manager it starts on entry and stops on exit."""

    name = "YARN"
    unavailable = YarnUnavailable
    jar_sets: tuple[JarSet, ...] = (MINI_YARN_JARS,)
    jar_patterns: tuple[str, ...] = _JARS
    """Of pyspark's jars."""
    site_keys: Mapping[str, tuple[str, ...]] = {}
    """File of `configuration_dir` -> further settings that clients need."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        node_managers: int = 2,
        heap: str = "512m",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`data_dir` holds HDFS, containers and logs; the default is a temporary directory, which `stop` removes.

        `settings` are Hadoop's, and override its own.
        """
        super().__init__(data_dir)
        self._node_managers = node_managers
        self._heap = heap
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: JavaGateway | None = None
        self._ports: list[ReservedPort] = []
        self.mini_hdfs: Any = None
        """Hadoop's MiniDFSCluster."""
        self.mini_yarn: Any = None
        """Hadoop's MiniYARNCluster: it can stop and restart each server."""

    @property
    def configuration_dir(self) -> Path:
        """The directory for HADOOP_CONF_DIR."""
        return self.data_dir / "conf"

    @property
    def jvm(self) -> Any:
        """The classes of the servers' JVM. Raises YarnUnavailable before the start."""
        if self._gateway is None:
            raise YarnUnavailable(f"the YARN over {self.data_dir} has not been started")
        return self._gateway.jvm

    def start(self) -> Self:
        """Starts the servers and returns when all NodeManagers have registered.

        Raises YarnUnavailable; JarsUnavailable, MissingPrerequisite.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        try:
            self._ports = [ReservedPort() for _ in _SERVERS]
            self._launch_jvm()
            self._start_servers()
        except Py4JError as error:
            # The JVM has the exception; it must be asked before its end.
            reason = _first_line(error)
            self.kill()
            raise YarnUnavailable(f"YARN does not start: {reason}; see {self.log_path}") from None
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops the servers in order, which ends all containers, and returns when they are gone."""
        if self.is_running() and self._gateway is not None:
            # The JVM exits at the end of its input, and its shutdown hooks stop the servers.
            self._gateway.close()
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        super().stop(timeout_s)

    def containers(self) -> list[psutil.Process]:
        """Returns the processes of all containers, also of those whose NodeManager is gone."""
        return [process for process in psutil.process_iter() if self._is_of_container(process)]

    def _end(self, timeout_s: float | None) -> None:
        """Kills the JVM and all containers, as when a machine fails; returns when they are gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for container in self.containers():
            with contextlib.suppress(psutil.NoSuchProcess):
                container.kill()
                container.wait()

    def _launch_jvm(self) -> None:
        folder = pyspark_jars_dir()
        found = [path for pattern in self.jar_patterns for path in sorted(folder.glob(f"{pattern}.jar"))]
        own = [path for jars in self.jar_sets for path in resolve(jars)]
        with self.log_path.open("a", encoding="utf-8") as log:
            port, token, self._process = launch_gateway(
                jarpath=str(next(folder.glob("py4j-*.jar"))),
                java_path=find_java(),
                classpath=os.pathsep.join(map(str, [*own, *found])),
                javaopts=[
                    f"-Xmx{self._heap}",
                    *SMALL_JVM,
                    "-Djava.net.preferIPv4Stack=true",
                    "-Dlog4j2.level=WARN",
                ],
                die_on_exit=True,
                # Python copies what the log of log4j prints; Hadoop writes little at this level.
                redirect_stdout=self.log_path.open("a", encoding="utf-8"),
                redirect_stderr=log,
                create_new_process_group=True,
                enable_auth=True,
                cwd=str(self.data_dir),
                return_proc=True,
            )
        self._write_record(self._process.pid, f"{_NAME}:{self._ports[0].number}")
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)

    def _start_servers(self) -> None:
        hadoop, deadline = self.jvm.org.apache.hadoop, time.monotonic() + START_TIMEOUT_S
        configuration = hadoop.yarn.conf.YarnConfiguration()
        for key, value in (self._settings | self._prepare()).items():
            configuration.set(key, value)
        configuration.set("hdfs.minidfs.basedir", str(self.data_dir / "hdfs"))
        for key, port in zip(_SERVERS, self._ports, strict=True):
            configuration.set(key, f"{_NAME}:{port.number}")
        builder = getattr(hadoop.hdfs, "MiniDFSCluster$Builder")
        self.mini_hdfs = builder(configuration).numDataNodes(1).build()
        self.mini_hdfs.waitActive()
        # One directory for local files and one for logs on each NodeManager.
        self.mini_yarn = hadoop.yarn.server.MiniYARNCluster("yarn", self._node_managers, 1, 1)
        self.mini_yarn.init(configuration)
        self.mini_yarn.start()
        for port in self._ports:
            port.release()
        hook = getattr(hadoop.service, "CompositeService$CompositeServiceShutdownHook")(self.mini_yarn)
        hadoop.util.ShutdownHookManager.get().addShutdownHook(hook, _SHUTDOWN_PRIORITY)
        remaining_ms = max(1, int((deadline - time.monotonic()) * 1000))
        if not self.mini_yarn.waitForNodeManagersToConnect(remaining_ms):
            raise YarnUnavailable(f"the NodeManagers do not register; see {self.log_path}")
        self._complete()
        self._write_files()

    def _prepare(self) -> dict[str, str]:
        """Starts what the servers need; returns further settings."""
        return {}

    def _complete(self) -> None:
        """Adds what clients need, when the servers run."""

    def _array_of_strings(self, elements: Sequence[str]) -> Any:
        assert self._gateway is not None
        made = self._gateway.new_array(self.jvm.java.lang.String, len(elements))
        for index, element in enumerate(elements):
            made[index] = element
        return made

    def _write_files(self) -> None:
        effective = self.mini_yarn.getConfig()
        self.configuration_dir.mkdir(exist_ok=True)
        for name, usual in _SITES.items():
            keys = (*usual, *self.site_keys.get(name, ()))
            pairs = {key: value for key in keys if (value := effective.get(key)) is not None}
            properties = "".join(
                f"  <property><name>{escape(key)}</name><value>{escape(value)}</value></property>\n"
                for key, value in pairs.items()
            )
            (self.configuration_dir / name).write_text(f"<configuration>\n{properties}</configuration>\n")

    def _is_of_container(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            return "CONTAINER_ID" in environment and environment.get("LOCAL_DIRS", "").startswith(
                f"{self.data_dir}{os.sep}"
            )
        return False


def _first_line(error: Py4JError) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).partition("\n")[0]
    return str(error).partition("\n")[0]
