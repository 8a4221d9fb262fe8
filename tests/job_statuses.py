"""Runs examples/read-log-from-java, which prints the status history of all jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from java_programs import run_java

from tailrace.infra.jars import pyspark_jars_dir
from tailrace.schemas.types import JobStatus

PROGRAM = Path(__file__).parents[1] / "examples" / "read-log-from-java" / "JobStatuses.java"
JARS = ("avro-1*.jar", "jackson-*.jar", "slf4j-api-*.jar", "commons-compress-*.jar")

History = Mapping[str, Sequence[tuple[int, JobStatus]]]
"""Job id -> (offset, status) of each change."""


def read_statuses(*logs: Path) -> list[History]:
    """Returns the history in each exported log, as the program in Java reads it."""
    jars = [jar for pattern in JARS for jar in pyspark_jars_dir().glob(pattern)]
    lines = run_java(PROGRAM, jars, *map(str, logs)).splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith("==> ")]
    assert len(heads) == (len(logs) if len(logs) > 1 else 0)
    ends = [*heads[1:], len(lines)]
    parts = [lines[begin + 1 : end] for begin, end in zip(heads, ends, strict=True)] if heads else [lines]
    return [_history(part) for part in parts]


def _history(lines: Sequence[str]) -> History:
    found: dict[str, list[tuple[int, JobStatus]]] = defaultdict(list)
    for line in lines:
        offset, _, job_id, status = line.split(" ")
        found[job_id].append((int(offset), JobStatus(status)))
    return found
