"""Events per second of `tailrace story`, compared with a fold of the same log.

The log is that of `time_travel`, as an exported file. `story_per_s`: the history of a job by its id, from the opening
of the file to the lines. `named_per_s`: of the same job, by a prefix of its id. `busy_per_s`: of a TaskExecutor, which
one of three events concerns. `why_per_s`: the causes of the log's last event, after all others; `why_again_s`: seconds
of the same query again. `fold_per_s`: the states of all roles at the end, without an index. Decoding the file is part
of each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from _report import conditions, median, report
from _scale import scaled
from time_travel import exported

from tailrace.services.cli import main as tailrace
from tailrace.services.core.replica import tune_gc_for_replay
from tailrace.services.history.log_source import open_log_source
from tailrace.services.history.time_travel import fold_to


def timed(run: Callable[[], object]) -> float:
    """Returns the seconds of wall clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def story(file: Path, *arguments: str) -> None:
    """Runs the query without Python's start."""
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()):
        code = tailrace(["story", *arguments, "--file", str(file), "-o", "json"])
    assert code == 0
    assert output.getvalue()


def fold(file: Path) -> None:
    """Folds the log into the states of all roles."""
    with open_log_source(file) as source:
        fold_to(source.log)


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(1_000_000))
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    events = arguments.events
    file = exported(events)
    tune_gc_for_replay()
    asked = {
        "story_per_s": ("job-0000006",),
        "named_per_s": ("job-000000", "--job", "job-0000006"),
        "busy_per_s": ("te-1",),
        "why_per_s": ("--why", str(events - 1)),
    }
    taken: dict[str, list[float]] = {}
    again: list[float] = []
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TAILRACE_CACHE_DIR"] = cache
            taken.setdefault("fold_per_s", []).append(timed(lambda: fold(file)))
            for figure, words in asked.items():
                taken.setdefault(figure, []).append(timed(lambda words=words: story(file, *words)))  # type: ignore[misc]
            again.append(timed(lambda: story(file, *asked["why_per_s"])))
    figures = {figure: events / median(seconds) for figure, seconds in taken.items()}
    figures["why_again_s"] = median(again)
    notes = {
        "fold_per_s": "the states of all roles, no index",
        "story_per_s": "of a job, by its id; aim: a million in 30 s",
        "named_per_s": "of a job, by the beginning of its id",
        "busy_per_s": "of a TaskExecutor that a third of all events concerns",
        "why_per_s": "the causes of the last event, leaving an index",
        "why_again_s": "the same, with the index",
    }
    report("story", figures, conditions(events=events, rounds=arguments.rounds), notes)


if __name__ == "__main__":
    main()
