"""Converts readings in degrees Celsius to Fahrenheit: one Kafka topic of Avro records into another.

    tailrace run pipelines/examples/avro_to_avro.py --input celsius --output fahrenheit

The schemas are derived from the classes. With --registry values have Confluent's wire format, and the registry has the
schemas. Without, each value begins with its schema's fingerprint (Avro's single-object encoding).
"""

from argparse import ArgumentParser
from dataclasses import dataclass

import tailrace as tr

parser = ArgumentParser("avro_to_avro", description="Celsius to Fahrenheit.")
parser.add_argument("--input", required=True, help="a topic")
parser.add_argument("--output", required=True, help="a topic")
parser.add_argument("--registry", help="URL of a schema registry")
options = parser.parse_args()


@dataclass(frozen=True)
class Reading:
    sensor: str
    degrees: float


def fahrenheit(reading: Reading) -> Reading:
    return Reading(reading.sensor, round(reading.degrees * 9 / 5 + 32, 1))


avro = tr.Formats.avro(registry=options.registry)
env = tr.StreamExecutionEnvironment.get_execution_environment()
readings = env.from_source(tr.KafkaSource(options.input, avro, output_type=Reading))
readings.map(fahrenheit).sink_to(tr.KafkaSink(options.output, avro, key="sensor"))
env.execute("Avro to Avro")
