"""Counts the words of each ten seconds: text is divided by a function, and the rest is a query in SQL.

tailrace run examples/sql_word_count/sql_word_count.py
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass

import tailrace as tr

QUERY = """
    SELECT word, window.start AS begin, count(*) AS times
    FROM words
    WHERE length(word) > {least}
    GROUP BY window(event_time, '10 seconds'), word
    HAVING count(*) >= {often}
"""


@dataclass(frozen=True)
class Word:
    word: str


def words(line: str) -> Iterator[Word]:
    """Yields the words of a line, in lower case and without punctuation."""
    for word in line.lower().split():
        if stripped := word.strip(".,;:!?"):
            yield Word(stripped)


def main() -> None:
    parser = ArgumentParser("sql_word_count", description="Counts words by a query in SQL.")
    parser.add_argument(
        "--lines", default="lines", help="a topic of text; the time of a line is the message's"
    )
    parser.add_argument("--counts", default="word-counts", help="a topic")
    parser.add_argument("--least", type=int, default=1, help="count words that have more characters")
    parser.add_argument("--often", type=int, default=2, help="tell of words that come so often")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.lines, tr.Formats.text(), bounded=options.bounded)
    in_order = tr.WatermarkStrategy.for_bounded_out_of_orderness(seconds=5)
    env.create_temporary_view("words", env.from_source(source, in_order, "Lines").flat_map(words))
    counts = env.sql(QUERY.format(least=options.least, often=options.often))
    counts.sink_to(tr.KafkaSink(options.counts, tr.Formats.json(), key="word"))
    env.execute("Word count in SQL")


if __name__ == "__main__":
    main()
