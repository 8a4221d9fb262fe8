"""Events per second of traces, compared with a fold of the same log.

The log is that of `time_travel`, as an exported file. `fold_per_s`: the states of the roles of a master, the raw limit.
`observed_per_s`: the same with the reporter of a running master, whose queue drops what nobody takes: what traces cost
the thread that folds. `spans_per_s`: the spans of `tailrace traces export`, not sent. `encoded_per_s`: with their
encoding in protobuf. Decoding the file is part of each.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _report import conditions, median, report
from _scale import scaled
from time_travel import exported

from tailrace.services.core.observed_replica import ObservedReplica
from tailrace.services.core.replica import Replica, tune_gc_for_replay
from tailrace.services.history.log_source import open_log_source
from tailrace.services.log.event_log import read_to_end
from tailrace.services.roles import master_roles
from tailrace.services.traces.otlp import encode_protobuf
from tailrace.services.traces.reader import read_spans
from tailrace.services.traces.reporter import TraceReporter
from tailrace.services.traces.span import Span

_BATCH = 1_000


class NoExporter:
    """Sends nothing."""

    def export(self, _: Sequence[Span]) -> int:
        return 0


def fold(file: Path, *, observed: bool) -> None:
    """Folds the log as a jobmanager does."""
    with open_log_source(file) as source:
        replica = Replica(master_roles)
        if observed:
            reporter = TraceReporter(NoExporter(), source.log, is_live=lambda: True, leads=lambda: True)
            replica = ObservedReplica(master_roles, [reporter])
        replica.telling = False
        for batch in read_to_end(source.log):
            for record in batch:
                replica.apply(record)


def make_spans(file: Path, *, encode: bool) -> None:
    """Makes the spans of the log, and encodes them."""
    with open_log_source(file) as source:
        found = read_spans(source.log)
        while batch := list(itertools.islice(found, _BATCH)):
            if encode:
                encode_protobuf(batch, source.cluster)


def timed(run: Callable[[], object]) -> float:
    """Returns the seconds of wall clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(200_000))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    file = exported(arguments.events)
    tune_gc_for_replay()
    asked: dict[str, Callable[[], None]] = {
        "fold_per_s": lambda: fold(file, observed=False),
        "observed_per_s": lambda: fold(file, observed=True),
        "spans_per_s": lambda: make_spans(file, encode=False),
        "encoded_per_s": lambda: make_spans(file, encode=True),
    }
    taken: dict[str, list[float]] = {figure: [] for figure in asked}
    for _ in range(arguments.rounds):
        for figure, run in asked.items():
            taken[figure].append(timed(run))
    figures = {figure: arguments.events / median(seconds) for figure, seconds in taken.items()}
    notes = {
        "fold_per_s": "the states of the roles of a master: the raw limit",
        "observed_per_s": "the same with the reporter of a running master",
        "spans_per_s": "the spans of the log, with the states",
        "encoded_per_s": "the same, and their protobuf",
    }
    report("trace_export", figures, conditions(events=arguments.events, rounds=arguments.rounds), notes)


if __name__ == "__main__":
    main()
