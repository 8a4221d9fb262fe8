"""The checks of sources and sinks accept right ones, and name each planted fault in one line."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from custom_connectors import FilePerTransaction, ListReader, Lists

from tailrace.pipelines.functions import (
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    TransactionalSink,
)
from tailrace.testing import ContractBroken, check_sink, check_source

LETTERS = [f"letter {letter}" for letter in "abcdefghijkl"]


def test_right_sources_pass() -> None:
    assert check_source(Lists(LETTERS, [], LETTERS[:3])) == LETTERS + LETTERS[:3]
    assert check_source(Endless([], LETTERS, has_ended=False)) == LETTERS


class Endless(Lists):
    bounded = False


class OwnReader(Lists):
    """A source whose reader is the class `reader`."""

    reader: type[ListReader]

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[str]:
        return self.reader(self.lists[split.value])


class ForgetsPosition(OwnReader):
    class reader(ListReader):
        def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
            self.at = getattr(self, "at", 0)
            polled = super().poll(self.at, limit)
            self.at = polled.position
            return polled


class SkipsOne(OwnReader):
    class reader(ListReader):
        """Its position is one too far, and the reader itself goes on rightly."""

        def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
            self.at = getattr(self, "at", position or 0)
            polled = super().poll(self.at, limit)
            self.at = polled.position
            return SourceRecords(polled.records, self.at + 1, has_ended=polled.has_ended)


class Unpicklable(OwnReader):
    class reader(ListReader):
        def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
            return SourceRecords(self.records, position=threading.Lock())


class Blocks(OwnReader):
    class reader(ListReader):
        def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
            threading.Event().wait()
            raise AssertionError


class BlocksOnClose(OwnReader):
    class reader(ListReader):
        def close(self) -> None:
            threading.Event().wait()


class Raises(OwnReader):
    class reader(ListReader):
        def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
            raise OSError("no such\nhost")


class FindsOthers(Lists):
    found = itertools.count()

    def splits(self) -> Iterable[SourceSplit]:
        return [SourceSplit(f"list {next(FindsOthers.found)}", 0)]


class HoldsLock(Lists):
    def __init__(self, *lists: list[str]) -> None:
        super().__init__(*lists)
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            Lists(LETTERS, position=None),
            "the position of split 'list 0' does not advance: poll returned 12 records, and",
        ),
        (
            ForgetsPosition(LETTERS),
            "the position of split 'list 0' does not advance: poll returned 12 records, and the position 12",
        ),
        (
            SkipsOne(LETTERS),
            "lost after a restart at position 2, behind record 1 (split 'list 0', polls with limit 1)",
        ),
        (Unpicklable(LETTERS), "poll of split 'list 0' returned the position <unlocked"),
        (Blocks(LETTERS), "poll of split 'list 0' did not return within 0.5 s"),
        (BlocksOnClose(LETTERS), "close of the reader of split 'list 0' did not return within 0.5 s"),
        (Raises(LETTERS), "poll of split 'list 0' raised OSError: no such host"),
        (FindsOthers(LETTERS), "and in another subtask ['list 1']: all subtasks have to find the same"),
        (
            HoldsLock(LETTERS),
            "HoldsLock: it cannot be pickled: TypeError: cannot pickle '_thread.lock' object",
        ),
        (
            Lists([], wait_s=0, has_ended=False),
            "returned no records and wait_s=0: the task would ask again and again",
        ),
        (Lists(LETTERS, timestamps=[1]), "returned 12 records and 1 timestamps"),
        (Lists(LETTERS, timestamps=[1.5] * 12), "returned the timestamp 1.5: a timestamp is an int"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Lists) else "",
)
def test_fault_of_source_is_found(source: Lists, reason: str) -> None:
    with pytest.raises(ContractBroken) as raised:
        check_source(source, timeout_s=0.5)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_right_sink_passes(tmp_path: Path) -> None:
    sink = FilePerTransaction(tmp_path)
    check_sink(sink, sink.records, LETTERS)


class Appends(FilePerTransaction):
    """Writes again what it is given again."""

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        with (self.directory / "all").open("a") as file:
            file.writelines(f'"{record}"\n' for record in records)


class Loses(FilePerTransaction):
    """Writes the last transaction only."""

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        super().commit(transaction_id.rpartition("-")[0], records)


class ForgetsIds(Appends):
    """Remembers ids in memory only."""

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        self.known = getattr(self, "known", set())
        if transaction_id not in self.known:
            super().commit(transaction_id, records)
        self.known.add(transaction_id)


class RemembersLast(Appends):
    """Remembers the last id only."""

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        last = self.directory / "last"
        if not last.exists() or json.loads(last.read_text()) != transaction_id:
            super().commit(transaction_id, records)
        last.write_text(json.dumps(transaction_id))


class SinkThatBlocks(TransactionalSink[str]):
    def commit(self, transaction_id: str, records: Sequence[str]) -> None:
        pass

    def close(self) -> None:
        threading.Event().wait()


class Overwrites(FilePerTransaction):
    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        super().commit("one file", records)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            Appends,
            "are double after a failure between the commit of transaction 1 of 4 and its acknowledgement",
        ),
        (
            ForgetsIds,
            "are double after a failure between the commit of transaction 1 of 4 and its acknowledgement",
        ),
        (
            RemembersLast,
            "are double after a replaced task has committed transaction 1 of 4 once more, at the end",
        ),
        (Overwrites, "commit raised AssertionError: one file has other records now (without a failure)"),
        (Loses, "commit raised AssertionError"),
    ],
)
def test_fault_of_sink_is_found(kind: type[FilePerTransaction], reason: str, tmp_path: Path) -> None:
    sink = kind(tmp_path)

    def read_back() -> list[Any]:
        return [record for record in sink.records() if record in LETTERS]

    with pytest.raises(ContractBroken) as raised:
        check_sink(sink, read_back, LETTERS)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_sink_that_blocks_or_loses_is_found() -> None:
    with pytest.raises(ContractBroken, match="SinkThatBlocks: close did not return within"):
        check_sink(SinkThatBlocks(), list, [], timeout_s=0.5)
    with pytest.raises(
        ContractBroken, match=r"12 of 12 records, such as 'letter a', are lost without a failure"
    ):
        check_sink(Quiet(), list, LETTERS)


class Quiet(TransactionalSink[str]):
    def commit(self, transaction_id: str, records: Sequence[str]) -> None:
        pass
