"""A source of the user's: each record once with any crash, found splits, waiting, and errors in one line.

test_rescaled_sources.py has the law for other parallelisms.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from connectors import Clock, Step, committed_records, open_source, operator_config
from custom_connectors import ListReader, Lists
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.functions import Source, SourceReader, SourceReaderContext, SourceRecords, SourceSplit
from tailrace.pipelines.runtime.common.failures import TaskError, UserCodeError
from tailrace.schemas.types import OperatorConfig

steps = st.lists(st.integers(1, 9) | st.sampled_from(["commit", "crash"]), max_size=20)
sizes = st.lists(st.integers(0, 20), max_size=5)


def config_of(source: object) -> OperatorConfig:
    return operator_config("custom_source", source)


@given(sizes, st.integers(1, 3), steps)
@settings(deadline=None)
def test_each_record_is_read_once_in_order_of_its_split(
    lengths: list[int], parallelism: int, taken: list[Step]
) -> None:
    lists = [[f"{number}.{i}" for i in range(length)] for number, length in enumerate(lengths)]
    read = [
        committed_records(config_of(Lists(*lists)), taken, subtask=subtask, parallelism=parallelism)
        for subtask in range(parallelism)
    ]
    by_split = [
        [record for records in read for record in records if record.startswith(f"{number}.")]
        for number in range(len(lists))
    ]
    assert by_split == lists


class Growing(Lists):
    """Finds one more split each time."""

    discovery_interval = timedelta(seconds=1)
    calls = 0

    def splits(self) -> Iterable[SourceSplit]:
        self.calls += 1
        return list(super().splits())[: self.calls]


def test_new_splits_are_found_at_interval_and_source_does_not_end() -> None:
    clock, config = Clock(), config_of(Growing(["a"], ["b"], ["c"]))
    source = open_source(config, clock=clock)
    assert read(source) == ["a"]
    polled = source.poll(10)
    assert (polled.batch, polled.wait_s, polled.has_ended) == (None, 1, False)
    clock.now += 1_000
    assert read(source) == ["b"]
    again = open_source(config, list(source.take_changes()), clock=clock)
    assert read(again) == []  # it finds only the first split again, which has ended
    clock.now += 2_000
    assert read(again) == []
    clock.now += 1_000
    assert read(again) == ["c"]


def read(source: Any) -> list[Any]:
    batch = source.poll(10).batch
    return [] if batch is None else batch.values


class Endless(Lists):
    bounded = False


def test_unbounded_source_takes_splits_in_turn_and_says_when_to_ask_again() -> None:
    clock = Clock()
    source = open_source(config_of(Endless(["a"] * 3, ["b"], has_ended=False, wait_s=7.0)), clock=clock)
    assert [batch.values[0] for _ in range(4) if (batch := source.poll(1).batch)] == ["a", "b", "a", "a"]
    polled = source.poll(1)
    assert polled.batch is None
    assert polled.wait_s == 7
    clock.now += 2_000
    assert source.poll(1).wait_s == 5


class Pushed(Source[int], SourceReader[int]):
    bounded = False
    context: SourceReaderContext
    arrived = 0

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[int]:
        Pushed.context = context
        return self

    def poll(self, position: int | None, limit: int) -> SourceRecords[int]:
        return SourceRecords(list(range(position or 0, Pushed.arrived)), Pushed.arrived, wait_s=3600)


def test_reader_that_has_records_wakes_task_and_is_polled() -> None:
    Pushed.arrived, woken = 0, []
    source = open_source(config_of(Pushed()), wake=lambda: woken.append(True))
    assert source.poll(5).wait_s == 3600
    Pushed.arrived = 2
    assert source.poll(5).batch is None
    Pushed.context.wake()
    assert woken == [True]
    assert read(source) == [0, 1]


def test_records_have_timestamps_of_source() -> None:
    batch = open_source(config_of(Lists(["a", "b"], timestamps=[5, 7]))).poll(5).batch
    assert batch is not None
    assert batch.timestamps == [5, 7]


class Unpicklable(Lists):
    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[str]:
        return ListReader(["a"], position=(number for number in [1]))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            Lists("ab", position=None),
            "records, and the position None from which it was called: after a failure",
        ),
        (Unpicklable(""), "position or value <generator .* of split 'list 0' cannot be pickled: "),
        (Lists("ab", timestamps=[1]), "poll of split 'list 0' returned 2 records and 1 timestamps"),
        *(
            (
                Lists("ab", timestamps=[1, wrong]),
                rf"of split 'list 0' returned the timestamp {wrong!r}: a timestamp is",
            )
            for wrong in (1.5, 1.0, None, "noon", 2**63)
        ),
        (Lists("", has_ended=False, wait_s=0), "no records and wait_s=0: give a number of seconds above 0"),
    ],
)
def test_poll_that_breaks_contract_fails_task(source: Lists, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        committed_records(config_of(source))


class Failing(Lists):
    closed: list[str] = []

    def create_reader(self, split: SourceSplit, context: SourceReaderContext) -> SourceReader[str]:
        return FailingReader([])

    def close(self) -> None:
        Failing.closed.append("source")


class FailingReader(ListReader):
    def poll(self, position: int | None, limit: int) -> SourceRecords[str]:
        raise OSError("gone")

    def close(self) -> None:
        Failing.closed.append("reader")


def test_error_of_reader_names_split_and_everything_is_closed() -> None:
    source = open_source(config_of(Failing("a")))
    with pytest.raises(UserCodeError) as raised:
        source.poll(1)
    source.close()
    assert raised.value.place == "split 'list 0'"
    assert Failing.closed == ["reader", "source"]


class Wrong(Lists):
    def splits(self) -> Any:
        return self.lists[0]


@pytest.mark.parametrize("value", [[SourceSplit("a"), SourceSplit("a")], ["a"]])
def test_wrong_splits_fail(value: list[Any]) -> None:
    with pytest.raises(TaskError, match=r"two splits with the same id|'a', not a SourceSplit"):
        open_source(config_of(Wrong(value)))
