"""A transactional sink of random programs. What it commits is output of the job in memory, as that of a print sink is.

A commit is repeated after a failure. The law: it has the same id then, and the same records.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from tailrace.pipelines.functions import RuntimeContext, TransactionalSink
from tailrace.pipelines.graph.physical_plan import output_topic
from tailrace.pipelines.testing.memory.cluster import CLUSTER, MemoryCluster, Message

Row = Mapping[str, Any]
_jobs: list[MemoryCluster] = []
"""The job that runs."""


class Journal(TransactionalSink[Any]):
    """`identifier`: as that of a print sink."""

    def __init__(self, identifier: str, roll_records: int, roll_ms: int) -> None:
        self.identifier = identifier
        self.roll_records = roll_records
        self.roll_interval = timedelta(milliseconds=roll_ms)

    def open(self, context: RuntimeContext) -> None:
        self._subtask = context.subtask_index

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        assert 0 < len(records) <= self.roll_records
        job = _jobs[-1]
        (vertex_id,) = (
            vertex.vertex_id
            for vertex in job.graph.vertices
            if any(operator.name == self.name for operator in vertex.operators)
        )
        for place, record in enumerate(records):
            row = {
                "identifier": self.identifier, "text": str(record), "transaction": transaction_id, "place": place,
            }  # fmt: skip
            topic, message = output_topic(CLUSTER, job.job_id), Message(json.dumps(row).encode())
            job.kafka.append(topic, 0, message)
            job.kafka.sent.setdefault((vertex_id, self._subtask), []).append((topic, 0, message))

    @property
    def name(self) -> str:
        """Of its operator."""
        return f"Journal {self.identifier}"


@contextmanager
def journal_of(job: MemoryCluster) -> Iterator[None]:
    """Lets the sinks write into the output of this job."""
    _jobs.append(job)
    try:
        yield
    finally:
        _jobs.remove(job)


def output_of(rows: Iterable[Row]) -> Counter[tuple[str | None, str]]:
    """Returns (identifier, text) of printed records, and of committed ones, each once."""
    found: list[Row] = []
    committed: dict[tuple[str, int], Row] = {}
    for row in rows:
        if "transaction" not in row:
            found.append(row)
            continue
        first = committed.setdefault((row["transaction"], row["place"]), row)
        assert first == row, "a transaction is committed again with other records"
    return Counter((row["identifier"], row["text"]) for row in (*found, *committed.values()))


def printed(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows of print sinks."""
    return [row for row in rows if "transaction" not in row]
