"""Counts the words of a text stream in windows of five seconds.

    tailrace run pipelines/examples/window_word_count.py --port 9999

`nc -lk 9999` starts a text server. As an entry point: tailrace.pipelines.examples.window_word_count:main.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.pipelines.api import StreamExecutionEnvironment, TumblingProcessingTimeWindows


@dataclass(frozen=True, slots=True)
class WordWithCount:
    word: str
    count: int

    def __str__(self) -> str:
        return f"{self.word} : {self.count}"


def split(line: str) -> Iterator[WordWithCount]:
    return (WordWithCount(word, 1) for word in line.split())


def add(a: WordWithCount, b: WordWithCount) -> WordWithCount:
    return WordWithCount(a.word, a.count + b.count)


def main(*arguments: str) -> None:
    parser = ArgumentParser("window_word_count", description="Counts the words of a text stream in windows.")
    parser.add_argument("--hostname", default="localhost", help="where the text server is")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--window-seconds", type=float, default=5)
    parser.add_argument("--flat-map-parallelism", type=int)
    parser.add_argument("--window-parallelism", type=int)
    options = parser.parse_args(arguments)

    env = StreamExecutionEnvironment.get_execution_environment()
    text = env.socket_text_stream(options.hostname, options.port)
    words = text.flat_map(split).set_parallelism(options.flat_map_parallelism or env.parallelism)
    counts = (
        words.key_by("word")
        .window(TumblingProcessingTimeWindows.of(seconds=options.window_seconds))
        .reduce(add)
        .set_parallelism(options.window_parallelism or env.parallelism)
    )
    counts.print().set_parallelism(options.window_parallelism or env.parallelism)
    env.execute("WindowWordCount")


if __name__ == "__main__":
    main(*sys.argv[1:])
