"""The options of a TaskExecutor's JVM: what it compiles, and what it logs.

Two TaskExecutors share a small machine, so the JVM has one collector thread, and the second compiler (C2) compiles only
the code that a backlog passes through, row by row: Kafka's consumer, Spark's source, rows, Arrow. There it halves the
time of a message. Anywhere else it makes the first twenty queries of a JVM twice as expensive.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    # Without a bound it grows to a third of the heap, which records in transit do not need: 75 MiB less.
    "-Xmn48m",
    "-Xss512k",
    # Starts a process directly; the default starts a helper that starts it.
    "-Djdk.lang.Process.launchMechanism=VFORK",
    "-XX:+UnlockDiagnosticVMOptions",
    # Suppresses the message on stdout about the directives; warnings and crashes are still reported.
    "-XX:-DisplayVMOutput",
    # Maps the class archive at its own address. Elsewhere the JVM has to change each page, so TaskExecutors on one
    # machine cannot share its 157 MiB.
    "-XX:ArchiveRelocationMode=0",
    # Returns what the compilers needed at the start: 25 MiB.
    "-XX:TrimNativeHeapInterval=30000",
)

_SQL: Final = "org/apache/spark/sql"
_COMPILED_TWICE: Final = (
    "org/apache/kafka/*.*",
    "org/apache/arrow/*.*",
    "org/apache/spark/unsafe/*.*",
    "org/apache/spark/util/UninterruptibleThread.*",
    f"{_SQL}/kafka010/*.*",
    f"{_SQL}/execution/python/*.*",
    f"{_SQL}/execution/arrow/*.*",
    f"{_SQL}/execution/BufferedRowIterator.*",
    f"{_SQL}/catalyst/expressions/GeneratedClass*.*",
    f"{_SQL}/catalyst/expressions/codegen/Unsafe*.*",
)
# The first matching rule applies.
_DIRECTIVES: Final = (
    {"match": list(_COMPILED_TWICE), "c2": {"Exclude": False}},
    {"match": ["*.*"], "c2": {"Exclude": True}},
)

# Stopping a query kills its tasks, and Spark writes a stack trace for each; here that is not an error.
_LOG4J: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS} spark %c{1}: %m%n%ex
logger.task.name = org.apache.spark.util.Utils
logger.task.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSetManager
logger.scheduler.level = off
logger.query.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.query.level = off
"""


def java_options(scratch: Path) -> tuple[str, ...]:
    """Returns the options of a JVM. Writes the files that they name into the existing directory `scratch`."""
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    directives = scratch / "compiler-directives.json"
    directives.write_text(json.dumps(_DIRECTIVES))
    return (
        *_OPTIONS,
        f"-XX:CompilerDirectivesFile={directives}",
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
    )
