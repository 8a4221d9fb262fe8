"""A source and a sink as users write them, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tailrace.pipelines.functions import (
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    TransactionalSink,
)


class Lists(Source[str]):
    """A split for each list. `how`: other fields of each poll's result."""

    def __init__(self, *lists: Sequence[str], **how: Any) -> None:
        self.lists = lists
        self.how = how

    def splits(self) -> Iterable[SourceSplit]:
        return [SourceSplit(f"list {number}", number) for number in range(len(self.lists))]

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[str]:
        return ListReader(self.lists[split.value], **self.how)


class ListReader(SourceReader[str]):
    """A position is a number of records."""

    def __init__(self, records: Sequence[str], **how: Any) -> None:
        self.records = records
        self.how = how

    def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
        start = position or 0
        records = self.records[start : start + limit]
        stop = start + len(records)
        result = {"position": stop, "has_ended": stop == len(self.records), **self.how}
        return SourceRecords(records, **result)


class FilePerTransaction(TransactionalSink[Any]):
    """Writes a file for each transaction, by the name of its id. A file that exists has to be the same."""

    def __init__(self, directory: Path, roll_records: int = 10) -> None:
        self.directory = directory
        self.roll_records = roll_records

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        path, text = self.directory / transaction_id, "".join(f"{json.dumps(record)}\n" for record in records)
        if path.exists():
            assert path.read_text() == text, f"{transaction_id} has other records now"
        path.write_text(text)

    def records(self) -> list[Any]:
        """Returns all records of all transactions."""
        lines = [line for path in self.directory.iterdir() for line in path.read_text().splitlines()]
        return list(map(json.loads, lines))
