"""Writes payments with the features of the model to a topic.

tailrace run examples/ml_inference/make_features.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr


def payment(number: int) -> dict[str, float]:
    """Returns a payment, always the same for a number."""
    draw = random.Random(number)
    return {
        "number": number,
        "amount": draw.randrange(1, 100_000) / 100,
        "hour": float(draw.randrange(24)),
        "distance_km": float(draw.randrange(300)),
        "is_abroad": float(draw.random() < 0.2),
    }


def main() -> None:
    parser = ArgumentParser("make_features", description="Writes payments to a topic.")
    parser.add_argument("--payments", default="scored-payments", help="a topic")
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    payments = env.generate(payment, count=options.count, output_type=dict)
    payments.sink_to(tr.KafkaSink(options.payments, tr.Formats.json()))
    env.execute("Make features")


if __name__ == "__main__":
    main()
