"""Writes readings of sensors to a topic: one a second for each sensor. Some come late, and a few very late.

tailrace run examples/iot_late_data/make_readings.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

SENSORS = 4
START_MS = 1_700_000_040_000


def reading(number: int) -> tuple[str, float, int]:
    """Returns sensor, temperature and time of a reading, always the same for a number."""
    draw = random.Random(number)
    late_ms = draw.choice([0] * 40 + [1_000] * 8 + [15_000, 15_000, 120_000])
    at = START_MS + number // SENSORS * 1_000 - late_ms
    return f"sensor-{number % SENSORS}", round(20 + draw.uniform(-2, 2), 1), at


def main() -> None:
    parser = ArgumentParser("make_readings", description="Writes readings to a topic.")
    parser.add_argument("--readings", default="readings", help="a topic")
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    # One subtask: the readings are in the order in which they come.
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    numbers = env.generate(reading, count=options.count, output_type=tuple[str, float, int])
    made = numbers.map(lambda r: {"sensor": r[0], "celsius": r[1], "at": r[2]}, output_type=dict)
    made.sink_to(tr.KafkaSink(options.readings, tr.Formats.json(), key=lambda of: of["sensor"]))
    env.execute("Make readings")


if __name__ == "__main__":
    main()
