"""PyFlink's datastream/connectors/kafka_row_field_extractor_example.py: fields of a record as key and value."""

import json

from tailrace import Formats, KafkaRecord, KafkaSink, StreamExecutionEnvironment

EVENTS = [
    ("user-1", {"type": "purchase", "item": "lamp"}),
    ("user-2", {"type": "view", "item": "chair"}),
    ("user-1", {"type": "view", "item": "table"}),
]


def create_sample_data() -> list[tuple[bytes, bytes]]:
    return [(user.encode("utf-8"), json.dumps(event).encode("utf-8")) for user, event in EVENTS]


def message(row: tuple[bytes, bytes]) -> KafkaRecord[bytes, bytes]:
    return KafkaRecord(key=row[0], value=row[1])


def kafka_row_field_extractor_example() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    ds = env.from_collection(create_sample_data(), tuple[bytes, bytes])
    ds.map(message).sink_to(KafkaSink("row-extractor-example", Formats.raw()))
    env.execute("fields as key and value")


if __name__ == "__main__":
    kafka_row_field_extractor_example()
