"""A window fires once for records that are not late, at any parallelism at which a checkpoint is restored.

Senders emit their watermarks at different times, so an unaligned checkpoint cuts the subtasks of a window operator at
different event times. Windows are kept for the allowed lateness after they have fired. The output of a program is
compared with the definition of its windows. `EXAMPLES` says how many runs of each kind of window are tried.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import (
    EventTimeSessionWindows,
    Formats,
    KafkaSource,
    SlidingEventTimeWindows,
    StartingOffsets,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster, Message, give_uids
from tailrace.schemas.types import JobGraph

from ..checkpoint_storage import storage

EXAMPLES = int(os.environ.get("EXAMPLES", "2"))
SIZE_MS = 100
SLIDE_MS = SIZE_MS // 2
GAP_MS = 35
"""No difference of two times: a record exactly that far behind a session joins it, though it may have fired already."""
LATENESS_MS = 3_000

Record = tuple[str, int]
"""Key and time (ms)."""
Window = tuple[int, list[Record]]
"""The last millisecond, and the records of one key."""
Results = Counter[tuple[str, str]]
"""(identifier, text) of what was printed."""


def tumbling(records: list[Record]) -> Iterator[Window]:
    return of_size(records, lambda time: [time // SIZE_MS * SIZE_MS])


def sliding(records: list[Record]) -> Iterator[Window]:
    return of_size(
        records, lambda time: [time // SLIDE_MS * SLIDE_MS, time // SLIDE_MS * SLIDE_MS - SLIDE_MS]
    )


def of_size(records: list[Record], starts: Callable[[int], list[int]]) -> Iterator[Window]:
    """Returns windows of SIZE_MS."""
    held: dict[tuple[str, int], list[Record]] = {}
    for key, time in records:
        for start in starts(time):
            held.setdefault((key, start), []).append((key, time))
    return ((start + SIZE_MS - 1, those) for (_, start), those in held.items())


def session(records: list[Record]) -> Iterator[Window]:
    for _, those in groupby(sorted(records), lambda record: record[0]):
        held: list[Record] = []
        for record in those:
            if held and record[1] - held[-1][1] > GAP_MS:
                yield held[-1][1] + GAP_MS - 1, held
                held = []
            held.append(record)
        yield held[-1][1] + GAP_MS - 1, held


KINDS: dict[str, tuple[Any, Callable[[list[Record]], Iterator[Window]]]] = {
    "tumbling": (TumblingEventTimeWindows.of(milliseconds=SIZE_MS), tumbling),
    "sliding": (SlidingEventTimeWindows.of(milliseconds=SIZE_MS, slide_milliseconds=SLIDE_MS), sliding),
    "session": (EventTimeSessionWindows.with_gap(milliseconds=GAP_MS), session),
}


def time_of(line: str) -> int:
    return int(line.split()[1])


def counted(line: str) -> tuple[str, int, int]:
    """Returns key, time and 1."""
    key, time = line.split()
    return key, int(time), 1


def added(a: tuple[str, int, int], b: tuple[str, int, int]) -> tuple[str, int, int]:
    return min(a[0], b[0]), min(a[1], b[1]), a[2] + b[2]


def one(item: tuple[str, int, int]) -> tuple[str, int, int]:
    return item[0], 0, 1


def graph_of(kind: str, lateness_ms: int, parallelism: int) -> JobGraph:
    """Returns counts by key and window; windows over all keys; and the number of windows per key that end in a
    period."""
    env = StreamExecutionEnvironment()
    env.set_parallelism(parallelism)
    source = KafkaSource("records", Formats.text(), StartingOffsets.earliest(), bounded=True)
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    records = env.from_source(source, in_order).map(counted)
    assigner, _ = KINDS[kind]
    by_key = records.key_by(0).window(assigner).allowed_lateness(milliseconds=lateness_ms).reduce(added)
    by_key.print("by key")
    records.window_all(assigner).allowed_lateness(milliseconds=lateness_ms).reduce(added).print("together")
    ends = by_key.map(one).key_by(0).window(KINDS["tumbling"][0]).allowed_lateness(milliseconds=lateness_ms)
    ends.reduce(added).print("ends")
    give_uids(env)
    env.configure("execution.checkpointing.interval", "1 s")
    return env.get_job_graph("windows")


def meaning_of(kind: str, records: list[Record]) -> Results:
    _, windows_of = KINDS[kind]
    counts: Results = Counter()
    ends: list[Record] = []
    for last, held in windows_of(records):
        counts["by key", str((held[0][0], min(time for _, time in held), len(held)))] += 1
        ends.append((held[0][0], last))
    for _, held in windows_of([("", time) for _, time in records]):
        times = [time for _, time in held]
        least = min(key for key, time in records if min(times) <= time <= max(times))
        counts["together", str((least, min(times), len(held)))] += 1
    for _, held in tumbling(ends):
        counts["ends", str((held[0][0], 0, len(held)))] += 1
    return counts


def results_of(job: MemoryCluster) -> Results:
    return Counter((row["identifier"], row["text"]) for row in job.given)


STEPS_MS = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0, 10, 20, 40]))
PARTITIONS = st.lists(st.lists(STEPS_MS, min_size=5, max_size=30), min_size=2, max_size=4)


@pytest.mark.parametrize("lateness_ms", [0, LATENESS_MS])
@pytest.mark.parametrize("kind", KINDS)
@given(
    PARTITIONS,
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.integers(0, 1 << 32),
    st.integers(0, 2),
)
@settings(max_examples=EXAMPLES)
def test_windows_fire_once_at_any_parallelism(
    kind: str,
    lateness_ms: int,
    partitions: list[list[tuple[str, int]]],
    parallelisms: list[int],
    seed: int,
    crashes: int,
) -> None:
    records = [
        [(key, time) for (key, _), time in zip(steps, accumulate(step for _, step in steps), strict=True)]
        for steps in partitions
    ]
    logs = {"records": [[Message(f"{key} {time}".encode()) for key, time in some] for some in records]}
    meaning = meaning_of(kind, [record for some in records for record in some])
    rng = random.Random(seed)
    with storage(seed) as directory:
        begins_with: list[MemoryCheckpoint | None] = [None]
        for number, parallelism in enumerate(parallelisms):
            graph = graph_of(kind, lateness_ms, parallelism)
            checkpoints: list[MemoryCheckpoint] = []
            for restored in begins_with:
                job = MemoryCluster(
                    graph,
                    logs,
                    seed + number,
                    job_id=f"job{number}",
                    directory=f"{directory}/{number}-{len(checkpoints)}",
                    plan=Plan(rate=0.2, savepoints=0.1),
                    restored=restored,
                )
                job.run(crashes, rollbacks=crashes)
                assert results_of(job) == meaning
                checkpoints += job.taken
            following = graph_of(kind, lateness_ms, parallelisms[(number + 1) % len(parallelisms)])
            fitting = [
                checkpoint
                for checkpoint in checkpoints
                if not incompatibilities(checkpoint.metadata, following)
            ]
            begins_with = list(rng.sample(fitting, min(4, len(fitting))))
