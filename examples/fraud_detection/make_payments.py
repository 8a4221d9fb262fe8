"""Writes payments of some cards to a topic: most are ordinary, a few are small with a large one behind them.

tailrace run examples/fraud_detection/make_payments.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

CARDS = 50
START_MS = 1_700_000_000_000


def payment(number: int) -> tuple[str, float, int]:
    """Returns card, amount and time of a payment, always the same for a number."""
    draw = random.Random(number)
    # Two numbers belong together: a card is tried, and then used or not.
    card = f"card-{random.Random(number // 2 * 2).randrange(CARDS)}"
    amounts = ([0.5], [20.0, 80.0]) if number % 2 == 0 else ([900.0], [30.0, 0.7, 600.0])
    amount = draw.choice(amounts[draw.random() > 0.3])
    return card, amount, START_MS + number * 1_000 + draw.randrange(40_000 if number % 7 == 1 else 900)


def main() -> None:
    parser = ArgumentParser("make_payments", description="Writes payments to a topic.")
    parser.add_argument("--payments", default="payments", help="a topic")
    parser.add_argument("--count", type=int, default=1_000)
    options = parser.parse_args()
    # One subtask: the payments of a card are in order.
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    numbers = env.generate(payment, count=options.count, output_type=tuple[str, float, int])
    made = numbers.map(lambda p: {"card": p[0], "amount": p[1], "at": p[2]}, output_type=dict)
    made.sink_to(tr.KafkaSink(options.payments, tr.Formats.json(), key=lambda of: of["card"]))
    env.execute("Make payments")


if __name__ == "__main__":
    main()
