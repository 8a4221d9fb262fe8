"""Writes orders of customers to a topic.

tailrace run examples/http_enrichment/make_customer_orders.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

CUSTOMERS = 30


def order(number: int) -> dict[str, object]:
    """Returns an order, always the same for a number."""
    draw = random.Random(number)
    return {"number": number, "customer": f"c{draw.randrange(CUSTOMERS)}", "amount": draw.randrange(1, 100)}


def main() -> None:
    parser = ArgumentParser("make_customer_orders", description="Writes orders to a topic.")
    parser.add_argument("--orders", default="customer-orders", help="a topic")
    parser.add_argument("--count", type=int, default=1_000)
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    orders = env.generate(order, count=options.count, output_type=dict)
    orders.sink_to(tr.KafkaSink(options.orders, tr.Formats.json()))
    env.execute("Make orders")


if __name__ == "__main__":
    main()
