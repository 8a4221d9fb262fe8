"""Routes transfers to a topic for each country, with a key, and with a header that says where each came from.

    tailrace run pipelines/examples/route.py --input transfers --prefix transfers-

A KafkaRecord is a whole message: key, value, headers, topic, partition, offset and timestamp.
"""

from argparse import ArgumentParser
from dataclasses import dataclass

import tailrace as tr

parser = ArgumentParser("route", description="Transfers to a topic for each country.")
parser.add_argument("--input", required=True, help="a topic of JSON objects")
parser.add_argument("--prefix", required=True, help="what the names of the topics begin with")
options = parser.parse_args()


@dataclass(frozen=True)
class Transfer:
    account: str
    country: str
    amount: int


def with_origin(message: tr.KafkaRecord[str | None, Transfer]) -> tr.KafkaRecord[str, Transfer]:
    origin = f"{message.topic} [{message.partition}] {message.offset}"
    return tr.KafkaRecord(message.value.account, message.value, [("origin", origin.encode())])


env = tr.StreamExecutionEnvironment.get_execution_environment()
messages = tr.KafkaSource(options.input, tr.Formats.json(), output_type=tr.KafkaRecord[str | None, Transfer])
prefix = options.prefix
by_country = tr.KafkaSink(lambda message: prefix + message.value.country)
env.from_source(messages).map(with_origin).sink_to(by_country)
env.execute("Route")
