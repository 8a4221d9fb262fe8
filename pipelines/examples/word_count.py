"""Counts the words of text files: emits the count so far for each word.

    tailrace run pipelines/examples/word_count.py --input 'books/*.txt'

With `-D execution.mini-batch=true` it emits only the last count of each word at each commit.
"""

import re
from argparse import ArgumentParser
from collections.abc import Iterator

import tailrace as tr

parser = ArgumentParser("word_count", description="Counts the words of text files.")
parser.add_argument("--input", required=True, nargs="+", help="files, directories or patterns")
options = parser.parse_args()


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in re.findall(r"[a-z']+", line.lower()):
        yield word, 1


env = tr.StreamExecutionEnvironment.get_execution_environment()
env.read_text_file(*options.input).flat_map(words).key_by(0).sum(1).print()
env.execute("Word count")
