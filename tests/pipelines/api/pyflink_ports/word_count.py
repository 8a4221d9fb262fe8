"""PyFlink's datastream/word_count.py."""

import argparse
from collections.abc import Iterator

from tailrace import (
    FileSink,
    FileSource,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WatermarkStrategy,
)

LINES = ["a rose is a rose", "is a rose", "and a river is no rose"]


def split(line: str) -> Iterator[str]:
    yield from line.split()


def word_count(input_path: str | None, output_path: str | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)

    if input_path is not None:
        ds = env.from_source(
            FileSource(input_path), WatermarkStrategy.for_monotonous_timestamps(), "file_source"
        )
    else:
        ds = env.from_collection(LINES)

    counts = (
        ds.flat_map(split)
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
    parser.add_argument("--input")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    word_count(arguments.input, arguments.output)
