"""Writes lines of text to a topic, ten for each second of the messages' time.

tailrace run examples/sql_word_count/make_lines.py --count 10000
"""

import random
from argparse import ArgumentParser

import tailrace as tr

TEXT = "to be or not that is the question whether nobler in mind suffer slings and arrows"
WORDS = TEXT.split()
START_MS = 1_700_000_000_000


def line(number: int) -> str:
    """Returns a line, always the same for a number."""
    draw = random.Random(number)
    return " ".join(draw.choices(WORDS, range(len(WORDS), 0, -1), k=draw.randrange(1, 8))).capitalize() + "."


def time_of(number: int) -> int:
    """Returns the time of a line in milliseconds since the epoch."""
    return START_MS + number * 100


def main() -> None:
    parser = ArgumentParser("make_lines", description="Writes lines of text to a topic.")
    parser.add_argument("--lines", default="lines", help="a topic")
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    timed = tr.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    numbers = env.generate(lambda number: number, count=options.count, output_type=int)
    lines = numbers.assign_timestamps_and_watermarks(timed).map(line)
    lines.sink_to(tr.KafkaSink(options.lines, tr.Formats.text()))
    env.execute("Make lines")


if __name__ == "__main__":
    main()
