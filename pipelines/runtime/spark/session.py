"""The SparkSession of a TaskExecutor: a JVM on loopback, configured for real-time mode with Python.

Each setting has its reason beside it. The JVM ends with its TaskExecutor, also if that is SIGKILLed: PySpark's
gateway ends when its standard input closes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from .jvm import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task of a real-time query keeps its thread, and threads are made when they are needed: as many as queries
# may ever ask for.
_TASK_THREADS: Final = 512

SETTINGS: Final[Mapping[str, str]] = {
    # Python operators are not on Spark's list; of its guarantees only the source's order is leaned on.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    # A row must leave Spark when it is there, not when a batch or a buffer is full: a row is a buffer of many
    # records already.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "16",
    "spark.buffer.size": "16",
    # The default forks a shell for each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Without checksum files beside the checkpoint's: Hadoop forks a chmod for each file and folder it makes.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.python.daemon.module": "tailrace.pipelines.runtime.spark.daemon",
    # Workers must not import from the working directory, where users may have folders of any name.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    # The code of two jobs never shares an interpreter.
    "spark.python.worker.reuse": "false",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # By default one for each of the session's cores, which are as many here as tasks may run at once.
    "spark.rpc.netty.dispatcher.numThreads": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # What Spark remembers of queries and tasks for its user interface.
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.ui.retainedExecutions": "2",
    "spark.ui.retainedJobs": "2",
    "spark.ui.retainedStages": "2",
    "spark.ui.retainedTasks": "16",
    # A query that has ended is stopped at once.
    "spark.sql.streaming.stopTimeout": "5s",
    "spark.sql.session.timeZone": "UTC",
}


class BulkBatch(msgspec.Struct, frozen=True):
    """How rows gather before they leave Spark."""

    largest: int
    """Bytes of a message that this is meant for, at most."""
    records: int
    measured: bool
    """Whether Spark looks after each row how large the batch has become: a third of the time of a small one."""


# A backlog: rows gather, for a message is a record here, and what a crossing costs is shared by many. What is
# aggregated in front of a shuffle is aggregated by batch, so that large ones leave little to be sent.
BULK_BATCHES: Final = (
    BulkBatch(400, 50_000, False),
    BulkBatch(4_000, 10_000, False),
    BulkBatch(1 << 31, 10_000, True),
)


def start_session(
    scratch: Path, jars: Sequence[Path], heap_mib: int, *, jvm_options: Sequence[str] = ()
) -> SparkSession:
    """Starts the JVM, with further `jvm_options` if need be, and the session; takes seconds."""
    # The workers must be this interpreter, wherever it is installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

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
        # Not spark.jars: that would copy them, and load them where no class archive reaches.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.local.dir": str(scratch / "spark"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    builder = SparkSession.builder.master(f"local[{_TASK_THREADS}]").appName("tailrace")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class BulkSessions:
    """Sessions in the same JVM for queries that work off a backlog."""

    def __init__(self, spark: SparkSession) -> None:
        self._sessions = [(each.largest, _bulk_session(spark, each)) for each in BULK_BATCHES]

    def session_for(self, largest: int) -> SparkSession:
        """The session for messages that seem to be no larger than that (bytes)."""
        return next(session for limit, session in self._sessions if largest <= limit)


def _bulk_session(spark: SparkSession, batch: BulkBatch) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch.records))
    session.conf.set("spark.sql.execution.pandas.udf.buffer.size", "65536")
    if not batch.measured:
        session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str((1 << 31) - 1))
    return session
