"""Counts the words of a Kafka topic into another, with Arrow only: no Python code handles a single word.

    tailrace run pipelines/examples/vectorised_word_count.py --input lines --output counts

Lines and words travel as record batches. With mini-batches, words are counted before the shuffle, and each commit
writes only the last count of each word.
"""

from argparse import ArgumentParser
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import tailrace as tr

parser = ArgumentParser("vectorised_word_count", description="Counts the words of a Kafka topic.")
parser.add_argument("--input", required=True, help="a topic of lines")
parser.add_argument("--output", required=True, help="a topic of counts; the key of a message is the word")
parser.add_argument("--bounded", action="store_true", help="end where the input ends now")
options = parser.parse_args()


@dataclass(frozen=True)
class WordCount:
    word: str
    count: int


def words(lines: pa.RecordBatch) -> pa.RecordBatch:
    found = pc.list_flatten(pc.utf8_split_whitespace(lines.column("value")))
    return pa.RecordBatch.from_arrays([found, pa.repeat(1, len(found))], ["word", "count"])


env = tr.StreamExecutionEnvironment.get_execution_environment({"execution.mini-batch": "true"})
counts = env.from_source(tr.KafkaSource(options.input, bounded=options.bounded)).map_batches(words, WordCount)
counts.key_by("word").sum("count").sink_to(tr.KafkaSink(options.output, key="word"))
env.execute("Vectorised word count")
