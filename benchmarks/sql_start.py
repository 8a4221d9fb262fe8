"""Seconds from `tailrace sql QUERY` to its answer, including the start of Spark, compared with a bare PySpark.

The log is that of `story`: an exported Avro file. `answer_s`: the whole command. `bare_s`: a Python process that starts
a SparkSession with the defaults and counts to nine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from _report import conditions, median, report
from _scale import scaled
from time_travel import exported

EVENTS = scaled(20_000)
ROUNDS = scaled(5)
QUESTION = "SELECT type, count(*) FROM log GROUP BY 1"
BARE = "from pyspark.sql import SparkSession; print(SparkSession.builder.getOrCreate().range(9).count())"


def taken_s(arguments: Sequence[str]) -> float:
    """Returns the seconds of a whole Python process. Raises CalledProcessError."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    file = exported(EVENTS)
    ours, bare = [], []
    for _ in range(ROUNDS):
        ours.append(taken_s(["-m", "tailrace.services.cli", "sql", "--file", str(file), QUESTION]))
        bare.append(taken_s(["-c", BARE]))
    notes = {
        "answer_s": "the whole command; aim: below 10",
        "bare_s": "peer: PySpark with the defaults, `range(9).count()`",
    }
    report(
        "sql_start",
        {"answer_s": median(ours), "bare_s": median(bare)},
        conditions(events=EVENTS, rounds=ROUNDS),
        notes,
    )


if __name__ == "__main__":
    main()
