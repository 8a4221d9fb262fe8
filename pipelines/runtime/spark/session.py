"""The SparkSession of a TaskExecutor: a JVM on loopback, configured for real-time mode with Python.

A comment gives the reason of each setting. The JVM ends with its TaskExecutor, even after a SIGKILL: PySpark's gateway
ends when its standard input closes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from .cluster import SparkClusterAddress, SparkClusterError, write_code
from .jvm import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task of a real-time query occupies its thread. Threads are created on demand, so this is the largest number that
# queries may need.
_TASK_THREADS: Final = 512

LOCAL_MASTER: Final = f"local[{_TASK_THREADS}]"
"""The JVM of the TaskExecutor runs the tasks of queries."""

REAL_TIME_ROWS: Final = 8
"""The rows of an Arrow batch in real-time mode. A batch costs PySpark's worker about 50 us, whatever is in it."""

SETTINGS: Final[Mapping[str, str]] = {
    # Python operators are not on Spark's list for real-time mode; tailrace relies only on the order of the source.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    # A row must leave Spark when it arrives, not when a batch or a buffer is full. The query adds as many empty rows to
    # each row as a batch has (query.py).
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(REAL_TIME_ROWS),
    "spark.sql.execution.pandas.udf.buffer.size": "16",
    "spark.buffer.size": "16",
    # The default forks a shell for each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Without checksum files beside the checkpoint's: Hadoop forks a chmod for each file and directory that it
    # creates.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.python.daemon.module": "tailrace.pipelines.runtime.spark.daemon",
    # Workers must not import from the working directory, where users may have directories of any name.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # The code of two jobs never shares an interpreter.
    "spark.python.worker.reuse": "false",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default is one per core of the session, which here is the number of tasks that may run at once.
    "spark.rpc.netty.dispatcher.numThreads": "2",
    "spark.ui.enabled": "false",
    # Any free port.
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # How many queries and tasks Spark remembers for its user interface.
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.ui.retainedJobs": "2",
    "spark.ui.retainedStages": "2",
    "spark.ui.retainedTasks": "16",
    # A query that has ended is stopped at once.
    "spark.sql.streaming.stopTimeout": "5s",
    "spark.sql.session.timeZone": "UTC",
}


_UI_SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}


class BulkBatch(msgspec.Struct, frozen=True):
    """The number of rows in a batch that leaves Spark."""

    largest: int
    """The largest message, in bytes, that this is meant for."""
    records: int
    measured: bool
    """Whether Spark checks the size of the batch after each row: that costs a third of the time of a small one."""


# For a backlog, rows are collected: a message is one record here, and a batch shares the cost of the transfer to
# Python. An aggregation before a shuffle works by batch, so large batches leave little to send.
BULK_BATCHES: Final = (
    BulkBatch(400, 50_000, False),
    BulkBatch(4_000, 10_000, False),
    BulkBatch(1 << 31, 10_000, True),
)


def start_session(
    scratch: Path,
    jars: Sequence[Path],
    heap_mib: int,
    *,
    jvm_options: Sequence[str] = (),
    cluster: SparkClusterAddress | None = None,
    has_ui: bool = False,
) -> SparkSession:
    """Starts the JVM, with further `jvm_options`, and the session; takes seconds. `cluster`: whose executors run the
    tasks of queries; None: the JVM itself. `has_ui`: whether Spark serves its user interface, on the loopback address.
    Raises SparkClusterError, and Spark's errors."""
    if cluster is not None:
        cluster.check()
        if fixed := sorted(SETTINGS.keys() & cluster.settings.keys()):
            raise SparkClusterError(
                f"spark.settings: tailrace sets {', '.join(fixed)} itself: remove it there"
            )
    # Workers must use this interpreter, wherever it is installed.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = sys.executable if cluster is None else cluster.python
    # The address of the user interface. Executors reach the driver by spark.driver.host.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # The C library would keep memory for each of the JVM's threads.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    from pyspark.sql import SparkSession

    _forget_numpy_converters()
    scratch.mkdir(parents=True, exist_ok=True)
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    options = " ".join(
        f'"{option}"' for option in (*java_options(scratch), f"-Djava.io.tmpdir={temporary}", *jvm_options)
    )
    settings = {
        **SETTINGS,
        "spark.driver.memory": f"{heap_mib}m",
        "spark.driver.extraJavaOptions": options,
        # Not spark.jars: Spark would copy them, and load them from where no class archive applies.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **(_UI_SETTINGS if has_ui else {}),
    }
    if cluster is not None:
        code = write_code(scratch / "tailrace-code.zip")
        settings |= cluster.spark_settings(jars, heap_mib, code)
    builder = SparkSession.builder.master(LOCAL_MASTER if cluster is None else cluster.master).appName(
        "tailrace"
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _forget_numpy_converters() -> None:
    """Removes PySpark's converters of NumPy values. They are asked about each argument of a call to the JVM; to answer,
    they import PySpark's testing tools, which import pandas."""
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    unused = NumpyArrayConverter, NumpyScalarConverter
    INPUT_CONVERTER[:] = [converter for converter in INPUT_CONVERTER if not isinstance(converter, unused)]


class BulkSessions:
    """Sessions in the same JVM, for queries that process a backlog."""

    def __init__(self, spark: SparkSession) -> None:
        self._sessions = [(batch.largest, _bulk_session(spark, batch)) for batch in BULK_BATCHES]

    def session_for(self, largest: int) -> SparkSession:
        """Returns the session for messages of at most about `largest` bytes."""
        return next(session for limit, session in self._sessions if largest <= limit)


def _bulk_session(spark: SparkSession, batch: BulkBatch) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch.records))
    session.conf.set("spark.sql.execution.pandas.udf.buffer.size", "65536")
    if not batch.measured:
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str((1 << 31) - 1))
    return session
