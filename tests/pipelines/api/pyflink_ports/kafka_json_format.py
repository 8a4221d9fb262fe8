"""PyFlink's datastream/connectors/kafka_json_format.py: two jobs. Objects of JSON need names of fields."""

from typing import NamedTuple

from tailrace import (
    Formats,
    KafkaSink,
    KafkaSource,
    StartingOffsets,
    StreamExecutionEnvironment,
)


class Greeting(NamedTuple):
    f0: int
    f1: str


GREETINGS = [Greeting(*pair) for pair in ((1, "hi"), (2, "ho"), (3, "hi"), (4, "ho"), (4, "ho"))]


def write_to_kafka(env: StreamExecutionEnvironment) -> None:
    ds = env.from_collection(GREETINGS)
    ds.sink_to(KafkaSink("test_json_topic", Formats.json()))
    env.execute()


def read_from_kafka(env: StreamExecutionEnvironment) -> None:
    kafka_source = KafkaSource(
        "test_json_topic",
        Formats.json(),
        starting=StartingOffsets.earliest(),
        group_id="test_group_1",
        output_type=Greeting,
    )
    ds = env.from_source(kafka_source, name="kafka source")
    ds.print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    write_to_kafka(env)
    read_from_kafka(env)
