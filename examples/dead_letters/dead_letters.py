"""Orders of many writers: a message that cannot be read as an order does not stop the job. It goes to a topic of its
own, as it was, with the reason and its place in headers, so that somebody can mend it and send it again.

tailrace run examples/dead_letters/dead_letters.py
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass

import tailrace as tr

Message = tr.KafkaRecord[bytes | None, bytes]


@dataclass(frozen=True)
class Order:
    number: int
    user: str
    amount: int


DEAD = tr.OutputTag[Message]("dead", Message)


def parse(value: bytes) -> Order:
    """Returns the order in a message. Raises ValueError that says what is wrong with it."""
    try:
        fields = json.loads(value)
        order = Order(fields["number"], fields["user"], fields["amount"])
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"it is no JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(f"a field is missing: {error}") from error
    if type(order.amount) is not int or order.amount <= 0:
        raise ValueError(f"the amount is {order.amount!r}, not a number above 0")
    return order


class Reader(tr.ProcessFunction[Message, Order]):
    def open(self, context: tr.RuntimeContext) -> None:
        self.dead = context.accumulator("dead letters")

    def process_element(self, value: Message, context: tr.Context) -> Iterable[Order]:
        try:
            yield parse(value.value)
        except ValueError as error:
            self.dead.inc()
            place = f"{value.topic}-{value.partition}, offset {value.offset}"
            added = [("error", str(error).encode()), ("place", place.encode())]
            context.output(DEAD, tr.KafkaRecord(value.key, value.value, [*value.headers, *added]))


def main() -> None:
    parser = ArgumentParser("dead_letters", description="The total of each user's orders.")
    parser.add_argument(
        "--orders", default="raw-orders", help="a topic of orders as JSON, and of what is none"
    )
    parser.add_argument("--totals", default="order-totals", help="a topic; the last message of a key counts")
    parser.add_argument("--dead", default="dead-orders", help="a topic of messages that are no orders")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.orders, tr.Formats.raw(), bounded=options.bounded, output_type=Message)
    orders = env.from_source(source, name="Orders").process(Reader()).name("Reader")
    totals = orders.key_by("user").sum("amount").uid("totals")
    totals.sink_to(tr.KafkaSink(options.totals, tr.Formats.json(), key="user"))
    orders.get_side_output(DEAD).sink_to(tr.KafkaSink(options.dead, tr.Formats.raw()))
    env.execute("Orders with dead letters")


if __name__ == "__main__":
    main()
