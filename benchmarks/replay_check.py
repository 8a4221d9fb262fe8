"""Decisions recomputed and compared per second, compared with folding the same log alone.

The log is one of the simulation (`replay.py`), exported to a file and read from there, as `tailrace replay --check
FILE` does.

REPLAY_CHECK_JOBS: the number of jobs, for short runs.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import replay
from _report import conditions, median, report
from _scale import scaled
from replay import conversation, timed

from tailrace.schemas.event import Event, Record
from tailrace.services.core.replica import tune_gc_for_replay
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.replay import DecisionCheck, ReplayCounts
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.snapshots.builder import all_roles

ROUNDS = scaled(5)
BATCH = 10_000


def written(records: list[Record], path: Path) -> FileLog:
    """Writes the log to a file."""
    log = MemoryEventLog()
    events = [Event(record.header, record.body) for record in records]
    for start in range(0, len(events), BATCH):
        log.append(events[start : start + BATCH])
    export(log, "bench", EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return FileLog.open(path)


def folded(log: FileLog) -> None:
    """Returns the state of all roles."""
    replica = all_roles()
    for batch in read_to_end(log):
        for record in batch:
            replica.apply(record)


def checked(log: FileLog) -> ReplayCounts:
    """Returns the same with a check of every decision. Raises AssertionError for a difference."""
    check = DecisionCheck()
    for batch in read_to_end(log):
        differences = check.check_all(batch)
        assert not differences, differences[0].line()
    check.finish()
    return check.counts


def main() -> None:
    replay.JOBS = int(os.environ.get("REPLAY_CHECK_JOBS", "1000"))
    records = conversation()
    tune_gc_for_replay()
    with tempfile.TemporaryDirectory() as folder:
        log = written(records, Path(folder) / "log.avro")
        counts: list[ReplayCounts] = []
        runs: dict[str, Any] = {
            "fold": lambda: folded(log),
            "check": lambda: counts.append(checked(log)),
        }
        # One after the other in each round: the machine is not the same all the time.
        rounds = [{name: timed(run) for name, run in runs.items()} for _ in range(ROUNDS)]
        log.close()
    seconds = {name: median([row[name].clock for row in rounds]) for name in runs}
    replay_counts = counts[0]
    figures = {
        "decisions_per_s": replay_counts.decided / seconds["check"],
        "events_per_s": replay_counts.events / seconds["fold"],
        "ratio": median(
            [
                replay_counts.decided / entry["check"].clock / (replay_counts.events / entry["fold"].clock)
                for entry in rounds
            ]
        ),
        "checked_events_per_s": replay_counts.events / seconds["check"],
        "decided_share": replay_counts.decided / replay_counts.events,
        "turns": replay_counts.turns,
    }
    notes = {
        "decisions_per_s": "events that a role decided, decided again and compared",
        "events_per_s": "the same log, read and folded alone",
        "ratio": "aim: a third",
        "checked_events_per_s": "events read, folded and checked",
    }
    report("replay_check", figures, conditions(events=replay_counts.events, rounds=ROUNDS), notes)


if __name__ == "__main__":
    main()
