"""PyFlink's datastream/streaming_word_count.py: its table of random numbers is a generator here."""

import argparse
from random import Random

from tailrace import FileSink, StreamExecutionEnvironment

WORDS = ["flink", "window", "timer", "state", "watermark", "broadcast"]


def word_id(index: int) -> int:
    return Random(index).randrange(len(WORDS))  # the same one if it is called again after a failure


def id_to_word(number: int) -> str:
    return WORDS[number]


def word_count(output_path: str | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    ds = env.generate(word_id, rate_per_second=5)

    counts = (
        ds.map(id_to_word)
        .map(lambda word: (word, 1), output_type=tuple[str, int])
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )

    if output_path is not None:
        counts.sink_to(FileSink(output_path, prefix="prefix"))
    else:
        counts.print()

    env.execute()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    word_count(parser.parse_args().output)
