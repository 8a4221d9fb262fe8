"""Writes some rules to a topic, and measurements of machines to another one.

tailrace run examples/rule_alerts/make_measurements.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

MACHINES = 5
START_MS = 1_700_000_000_000
RULES = [
    {"name": "hot", "metric": "celsius", "most": 80.0, "times": 2, "at": START_MS},
    {"name": "very hot", "metric": "celsius", "most": 95.0, "times": 1, "at": START_MS},
    {"name": "loud", "metric": "decibel", "most": 70.0, "times": 3, "at": START_MS},
]


def measurement(number: int) -> tuple[str, str, float, int]:
    """Returns machine, metric, value and time of a measurement, always the same for a number."""
    draw = random.Random(number)
    value = round(draw.uniform(50, 100), 1)
    machine = f"machine-{number // 2 % MACHINES}"
    return machine, ("celsius", "decibel")[number % 2], value, START_MS + 1_000 + number * 100


def main() -> None:
    parser = ArgumentParser("make_measurements", description="Writes rules and measurements.")
    parser.add_argument("--measurements", default="measurements", help="a topic")
    parser.add_argument("--rules", default="rules", help="a topic")
    parser.add_argument("--count", type=int, default=1_000)
    options = parser.parse_args()
    # One subtask: the measurements are in order.
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    env.from_collection(RULES).sink_to(tr.KafkaSink(options.rules, tr.Formats.json()))
    numbers = env.generate(measurement, count=options.count, output_type=tuple[str, str, float, int])
    made = numbers.map(
        lambda m: dict(zip(("machine", "metric", "value", "at"), m, strict=True)), output_type=dict
    )
    made.sink_to(tr.KafkaSink(options.measurements, tr.Formats.json(), key=lambda of: of["machine"]))
    env.execute("Make measurements")


if __name__ == "__main__":
    main()
