"""Starts Spark for queries: an own JVM on loopback, without output on the terminal and without remaining files."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ....infra.cds_archives import read_archive_options, spark_archive
from ....infra.jars import spark_jars
from ....infra.prerequisites import find_java
from .errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    # The results of the ranges are small.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "tailrace.services.history.sql.daemon",
    # Workers must not import from the working directory, where users may have folders of any name.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
_LOG4J: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} %c{1}: %m%n%ex
"""


@contextmanager
def session() -> Iterator[SparkSession]:
    """Yields the active session of this process, or a new one. Starting one takes seconds.

    Raises MissingPrerequisite if there is no Java, SparkUnavailable.
    """
    find_java()
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    scratch = Path(tempfile.mkdtemp(prefix="tailrace-sql-"))
    try:
        spark = _start(scratch)
        try:
            yield spark
        finally:
            spark.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _start(scratch: Path) -> SparkSession:
    # The workers must be this interpreter, wherever it is installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # It prints errors of queries as JSON; the exceptions have the same messages.
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True

    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    settings = {
        **_SETTINGS,
        "spark.driver.extraJavaOptions": _java_options(log4j),
        # The class archive fits this class path only.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, spark_jars())),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    builder = SparkSession.builder.master("local[*]").appName("tailrace sql")
    for key, value in settings.items():
        builder = builder.config(key, value)
    errors = scratch / "spark.log"
    try:
        with _standard_error_in(errors):
            return builder.getOrCreate()
    except Exception as error:
        # PySpark raises many kinds of errors; the reason is in the output of the JVM.
        lines = errors.read_text("utf-8", "replace").strip().splitlines()
        raise SparkUnavailable(f"Spark did not start: {lines[-1] if lines else error}") from error


def _java_options(log4j: Path) -> str:
    """Returns the options of the JVM. A query takes about a second, too short for the optimizing compiler."""
    options = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *read_archive_options(spark_archive(find_java())),
    ]
    return " ".join(f'"{option}"' for option in options)


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Redirects standard error to a file for processes that start meanwhile: a JVM writes much."""
    sys.stderr.flush()
    kept = os.dup(2)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(opened)
