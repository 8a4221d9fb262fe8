"""Writes orders to a topic; every tenth message is broken in one of several ways.

tailrace run examples/dead_letters/make_orders.py --count 10000
"""

import json
import random
from argparse import ArgumentParser

import tailrace as tr

USERS = ["ann", "bob", "eve", "joe"]
BROKEN = [b"{", b"\xff\xfe", b'{"number": 1}', b'{"number": 1, "user": "ann", "amount": -3}', b"[]"]


def message(number: int) -> bytes:
    """Returns a message, always the same for a number."""
    draw = random.Random(number)
    if number % 10 == 7:
        return draw.choice(BROKEN)
    order = {"number": number, "user": draw.choice(USERS), "amount": draw.randrange(1, 100)}
    return json.dumps(order).encode()


def main() -> None:
    parser = ArgumentParser("make_orders", description="Writes orders to a topic.")
    parser.add_argument("--orders", default="raw-orders", help="a topic")
    parser.add_argument("--count", type=int, default=1_000)
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    messages = env.generate(message, count=options.count, output_type=bytes)
    messages.sink_to(tr.KafkaSink(options.orders, tr.Formats.raw()))
    env.execute("Make orders")


if __name__ == "__main__":
    main()
