"""PyFlink's table/word_count.py: a step of the stream counts, since aggregates of SQL need a window here."""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from tailrace import FileSink, StreamExecutionEnvironment

LINES = ["a rose is a rose", "is a rose", "and a river is no rose"]


class Word(NamedTuple):
    word: str
    count: int


def split(line: str) -> Iterator[Word]:
    for word in line.split():
        yield Word(word, 1)


def word_count(input_path: str | None, output_path: str | None) -> None:
    t_env = StreamExecutionEnvironment.get_execution_environment()
    t_env.set_parallelism(1)

    if input_path is not None:
        tab = t_env.read_text_file(input_path)
    else:
        tab = t_env.from_collection(LINES)

    counts = tab.flat_map(split).key_by("word").sum("count")

    if output_path is not None:
        counts.sink_to(FileSink(output_path, format="json"))
    else:
        counts.print()

    t_env.execute()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    word_count(arguments.input, arguments.output)
