"""Plain PySpark Structured Streaming doing what the benchmarks' jobs do, as one query each: a process of its own.

    python _peer_spark.py count BOOTSTRAP IN OUT      a backlog of lines -> counts; prints {"seconds": ...}
    python _peer_spark.py map|keyed BOOTSTRAP IN OUT  runs until its standard input closes; prints {} when it runs

It is given what helps it here: as many shuffle partitions as cores, and a checkpoint file manager that forks no shell.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, explode, split
from pyspark.sql.functions import max as latest
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.infra.jars import spark_jars

CORES = 2
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session(scratch: str) -> SparkSession:
    """Returns a session with Kafka's connector, on this machine's cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, spark_jars())),
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("peer")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def source(spark: SparkSession, servers: str, topic: str, starting: str) -> DataFrame:
    """Returns the messages of a topic."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
    )


def counted(lines: DataFrame) -> DataFrame:
    """Returns running counts of words, as messages."""
    words = lines.select(explode(split(col("value"), " ")).alias("key"))
    return words.groupBy("key").agg(count("*").cast("string").alias("value"))


def keyed(records: DataFrame) -> DataFrame:
    """Counts records `key,time` by key, with the last time."""
    fields = records.select(split(col("value"), ",").alias("f")).selectExpr("f[0] AS key", "f[1] AS sent")
    counts = fields.groupBy("key").agg(count("*").alias("n"), latest("sent").alias("sent"))
    return counts.selectExpr("concat_ws(',', key, sent, n) AS value")


def mapped(records: DataFrame) -> DataFrame:
    """Appends something to records `key,time`."""
    return records.selectExpr("concat(value, ',1') AS value")


def start(
    rows: DataFrame, servers: str, topic: str, checkpoint: str, *, backlog: bool = False
) -> StreamingQuery:
    """Starts the query; with `backlog` it ends when it has caught up."""
    writer = (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
    )
    writer = writer.trigger(availableNow=True) if backlog else writer.trigger(processingTime="0 seconds")
    return writer.start()


def main(what: str, servers: str, source_topic: str, sink_topic: str) -> None:
    with tempfile.TemporaryDirectory(prefix="tailrace-peer-spark-") as scratch:
        spark = session(scratch)
        match what:
            case "count":
                # Once for the JVM to compile what it needs.
                for attempt in ("warm-up", "measured"):
                    suffix = "-warm-up" if attempt == "warm-up" else ""
                    rows = counted(source(spark, servers, source_topic + suffix, "earliest"))
                    begin = time.perf_counter()
                    start(
                        rows, servers, sink_topic + suffix, f"{scratch}/{attempt}", backlog=True
                    ).awaitTermination()
                    seconds = time.perf_counter() - begin
                print(json.dumps({"seconds": seconds}), flush=True)
            case "map" | "keyed":
                rows = (mapped if what == "map" else keyed)(source(spark, servers, source_topic, "latest"))
                query = start(rows, servers, sink_topic, f"{scratch}/{what}")
                while query.lastProgress is None:
                    time.sleep(0.1)
                print(json.dumps({}), flush=True)
                sys.stdin.read()
                query.stop()
            case _:
                raise SystemExit(f"nothing is called {what}")
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
