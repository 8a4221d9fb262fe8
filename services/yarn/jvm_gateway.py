"""A JVM beside this process with Hadoop's client classes, which pyspark ships (hadoop-client-api and -runtime).

py4j connects both, as in PySpark, with a token that only this process knows. The JVM ends with its parent, however that
ends: it reads its standard input to the end.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from ...infra.closing import Closeable
from ...infra.jars import pyspark_jars_dir
from ...infra.prerequisites import find_java

CONFIGURATION_DIRECTORY_VARIABLE: Final = "HADOOP_CONF_DIR"
_HEAP_MIB = 192
_END_TIMEOUT_S = 5.0
_JAR_PATTERNS = (
    "commons-*.jar",
    "hadoop-client-*.jar",
    "jcl-over-slf4j-*.jar",
    "log4j-*.jar",
    "py4j-*.jar",
    "slf4j-api-*.jar",
)


class JvmGateway(Closeable):
    """A JVM with a Hadoop configuration directory and more jars on its classpath. Any thread may use it."""

    def __init__(
        self,
        configuration_directory: Path | None = None,
        jars: Iterable[Path] = (),
        *,
        log: Path | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        """Starts the JVM. Without a directory Hadoop reads that of HADOOP_CONF_DIR. What the JVM prints goes to
        `log`. Raises MissingPrerequisite without Java, and JarsUnavailable without pyspark."""
        directory = configuration_directory or os.environ.get(CONFIGURATION_DIRECTORY_VARIABLE)
        own = [str(path) for pattern in _JAR_PATTERNS for path in sorted(pyspark_jars_dir().glob(pattern))]
        classpath = os.pathsep.join([*([str(directory)] if directory else []), *map(str, jars), *own])
        stderr = None if log is None else log.open("a", encoding="utf-8")
        try:
            port, token, self._process = launch_gateway(
                java_path=find_java(),
                jarpath=str(next(pyspark_jars_dir().glob("py4j-*.jar"))),
                classpath=classpath,
                javaopts=[f"-Xmx{_HEAP_MIB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *java_options],
                die_on_exit=True,
                redirect_stderr=stderr,
                # Ctrl-C is for this process, which may need the JVM to end in order.
                create_new_process_group=True,
                enable_auth=True,
                return_proc=True,
            )
        finally:
            if stderr is not None:
                stderr.close()
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )

    @property
    def jvm(self) -> Any:
        """The classes of the JVM, by their packages: `jvm.org.apache.hadoop.conf.Configuration`."""
        return self._gateway.jvm

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return int(self._process.pid)

    def configuration(self) -> Any:
        """Returns a new YarnConfiguration from the files of the configuration directory."""
        return self.jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()

    def array_of(self, kind: Any, elements: Sequence[object]) -> Any:
        """Returns an array of a class, such as `jvm.java.lang.String`."""
        made = self._gateway.new_array(kind, len(elements))
        for index, element in enumerate(elements):
            made[index] = element
        return made

    def list_of(self, elements: Iterable[object]) -> Any:
        """Returns a java.util.ArrayList."""
        made = self.jvm.java.util.ArrayList()
        for element in elements:
            made.add(element)
        return made

    def close(self) -> None:
        """Ends the JVM."""
        # py4j writes a stack trace for each Java object that Python collects after the end.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        self._gateway.close()
        self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def describe_java_error(error: Py4JJavaError) -> str:
    """Returns the class and the message of a Java exception in one line, without its stack."""
    exception = error.java_exception
    name = str(exception.getClass().getSimpleName())
    message = " ".join(str(exception.getMessage() or "").split())
    return f"{name}: {message}" if message else name
