"""PyFlink counts the words of a topic: a script for an interpreter that has apache-flink (see `_flink`).

    python _peer_flink.py BOOTSTRAP IN OUT PARALLELISM MODE JAR

Reads the content of the topic, keeps running counts, and writes the counts to OUT as text. Prints {"seconds": ...}, the
job's net run time according to Flink.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


def split(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def add(a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    return a[0], a[1] + b[1]


def shown(counted: tuple[str, int]) -> str:
    return f"{counted[0]} {counted[1]}"


def main(servers: str, source_topic: str, sink_topic: str, parallelism: str, mode: str, jar: str) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.add_jars(Path(jar).as_uri())
    env.set_parallelism(int(parallelism))
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(source_topic)
        .set_group_id("peer-flink")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(sink_topic)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer).build()
    lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")
    words = lines.flat_map(split, Types.TUPLE([Types.STRING(), Types.LONG()]))
    counts = words.key_by(lambda pair: pair[0], Types.STRING()).reduce(add)
    counts.map(shown, Types.STRING()).sink_to(sink)
    seconds = env.execute("peer").get_net_runtime() / 1000
    print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
