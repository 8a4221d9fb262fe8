"""Counts generated words by key, into a topic: `python program.py TOPIC RECORDS RATE`."""

from __future__ import annotations

import sys

from tailrace.pipelines.api import Formats, KafkaSink, StreamExecutionEnvironment

KEYS = 10


def word(index: int) -> tuple[str, int]:
    """Returns record number `index`."""
    return f"k{index % KEYS}", 1


if __name__ == "__main__":
    topic, records, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    env = StreamExecutionEnvironment()
    env.set_parallelism(2)
    (
        env.generate(word, count=records, rate_per_second=rate)
        .key_by(0)
        .sum(1)
        .map(lambda pair: f"{pair[0]} {pair[1]}", str)
        .sink_to(KafkaSink(topic, Formats.text()))
    )
    env.execute("counts")
