"""PyFlink's datastream/connectors/kafka_csv_format.py."""

from tailrace import Formats, KafkaSink, KafkaSource, StartingOffsets, StreamExecutionEnvironment

GREETINGS = [(1, "hi"), (2, "ho"), (3, "hi, there"), (4, "ho"), (4, "ho")]


def write_to_kafka(env: StreamExecutionEnvironment) -> None:
    ds = env.from_collection(GREETINGS, tuple[int, str])
    ds.sink_to(KafkaSink("test_csv_topic", Formats.csv()))
    env.execute()


def read_from_kafka(env: StreamExecutionEnvironment) -> None:
    kafka_source = KafkaSource(
        "test_csv_topic",
        Formats.csv(),
        starting=StartingOffsets.earliest(),
        group_id="test_group_1",
        output_type=tuple[int, str],
    )
    env.from_source(kafka_source).print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    write_to_kafka(env)
    read_from_kafka(env)
