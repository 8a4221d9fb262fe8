"""PyFlink's datastream/connectors/kafka_bytearray_format.py."""

import json

from tailrace import Formats, KafkaSink, KafkaSource, StartingOffsets, StreamExecutionEnvironment

COUNTRIES = ["Norway", "Chile", "Kenya"]


def write_to_kafka(env: StreamExecutionEnvironment) -> None:
    data = [
        (json.dumps({"id": number, "country": country}).encode("utf-8"),)
        for number, country in enumerate(COUNTRIES, 1)
    ]
    ds = env.from_collection(data, tuple[bytes])
    ds.map(lambda row: row[0], output_type=bytes).sink_to(KafkaSink("test_bytearray_topic", Formats.raw()))
    env.execute()


def read_from_kafka(env: StreamExecutionEnvironment) -> None:
    kafka_source = KafkaSource(
        "test_bytearray_topic",
        Formats.raw(),
        starting=StartingOffsets.earliest(),
        group_id="test_group_1",
    )
    ds = env.from_source(kafka_source, name="kafka source")
    ds.map(lambda data: data.decode("utf-8")).print()
    env.execute()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    write_to_kafka(env)
    read_from_kafka(env)
