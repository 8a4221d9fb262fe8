"""reduce, sum, min, ... compared with a plain fold, as rows and columns, record by record and in mini-batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.harness import (
    Clock,
    Collected,
    Commit,
    Item,
    Record,
    Records,
    Subject,
    Watermark,
    batches,
    feed,
    run,
)

from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.types import RecordType, Types

FUNCTIONS = ["sum", "min", "max", "min_by", "max_by"]
TRIPLE = Types.TUPLE([str, int, str])


class Named(NamedTuple):
    word: str
    count: int
    first: str


@dataclass(frozen=True)
class Counted:
    word: str
    count: int
    first: str


def naive(function: str, a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Aggregates (key, number, rest) by the definition of Flink."""
    match function:
        case "sum":
            return (a[0], a[1] + b[1], a[2])
        case "min":
            return (a[0], min(a[1], b[1]), a[2])
        case "max":
            return (a[0], max(a[1], b[1]), a[2])
        case "min_by":
            return min(a, b, key=lambda record: record[1])
        case _:
            return max(a, b, key=lambda record: record[1])


def subject(
    function: str, *, mini_batch: bool = False, columnar: bool = False, of: RecordType = TRIPLE, field: str = "f1",
    key_field: str | None = "f0", kind: str = "aggregate",
) -> Subject:  # fmt: skip
    parameters = {
        "function": function, "field": field, "key_type": "str", "key_field": key_field, "mini_batch": mini_batch,
        "output_type": of.to_json(),
    }  # fmt: skip
    return Subject(kind, (lambda record: record[0],), parameters, (of,), columnar)


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.tuples(
            st.sampled_from("abc"),
            st.integers(-3, 3) | st.integers(-(1 << 61), 1 << 61),
            st.sampled_from(["x", "y"]),
        ),
    ),
    max_size=50,
)
SMALL_RECORD = st.tuples(
    st.sampled_from("abc"), st.integers(-(1 << 40), 1 << 40), st.sampled_from(["x", "y"])
)
CUTS = st.lists(st.integers(0, 50), max_size=4)


def running(function: str, records: list[Record]) -> list[Record]:
    held: dict[str, tuple[Any, ...]] = {}
    given_out = []
    for timestamp, record in records:
        known = held.get(record[0])
        held[record[0]] = record if known is None else naive(function, known, record)
        given_out.append((timestamp, held[record[0]]))
    return given_out


def in_range(records: list[Record]) -> bool:
    return all(abs(record[1]) < 1 << 63 for _, record in records)


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=example_count(10))
@given(records=RECORDS, cuts=CUTS)
def test_one_record_out_per_record_in(
    function: str, columnar: bool, records: list[Record], cuts: list[int]
) -> None:
    expected = running(function, records)
    if in_range(expected):
        assert run(subject(function, columnar=columnar), batches(records, cuts)).records == expected


@given(
    pool=st.lists(st.tuples(st.integers(0, 20), SMALL_RECORD), min_size=1, max_size=12),
    length=st.integers(33, 80),
    more=st.integers(33, 80),
)
def test_long_batches_are_summed_by_columns_with_same_result(
    pool: list[Record], length: int, more: int
) -> None:
    first, second = ((pool * n)[:n] for n in (length, more))
    results = run(subject("sum", columnar=True), [Records(first), Records(second)]).records
    assert results == running("sum", first + second)


def test_sums_of_long_column_batches_are_columns() -> None:
    given_out: list[Batch] = []

    class Keeps(Collected):
        def emit(self, batch: Batch) -> None:
            given_out.append(batch)

    target = subject("sum", columnar=True)
    operator = target.make(Keeps())
    operator.open()
    feed(operator, target, Records([(0, ("a", 1, "x"))] * 40))
    feed(operator, target, Records([(0, ("a", 1, "x"))] * 2))
    assert [batch.is_columnar for batch in given_out] == [True, False]


@pytest.mark.parametrize(
    "numbers", [[1 << 62, 1, 1 << 61], [-(1 << 62), -5, -(1 << 61)], [(1 << 63) - 1, -1, 0]]
)
def test_sums_near_64_bit_limit_are_correct(numbers: list[int]) -> None:
    first = [(0, ("a", number, "x")) for number in numbers]
    zeros = [(0, ("a", 0, "x"))] * 40
    expected = running("sum", first + zeros)
    for cut in (0, 1, 3):
        results = run(subject("sum", columnar=True), batches(first + zeros, [cut])).records
        assert results == expected


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=example_count(10))
@given(commits=st.lists(RECORDS, max_size=4))
def test_mini_batch_emits_last_value_of_each_changed_key_once_per_commit(
    function: str, columnar: bool, commits: list[list[Record]]
) -> None:
    everything = running(function, [record for some in commits for record in some])
    expected: list[Record] = []
    place = 0
    for some in commits:
        given_out = everything[place : place + len(some)]
        place += len(some)
        last: dict[str, Record] = {}
        for timestamp, record in given_out:
            earlier = last.get(record[0])
            last[record[0]] = (max(timestamp, earlier[0]) if earlier else timestamp, record)
        expected += sorted(last.values())
    program: list[Item] = [item for some in commits for item in (Records(some), Commit())]
    if in_range(everything):
        results = run(subject(function, mini_batch=True, columnar=columnar), program, ends=False).records
        assert len(results) == len(expected)
        assert sorted(results) == sorted(expected)


def test_held_results_are_emitted_before_watermark_and_at_end() -> None:
    mini = subject("sum", mini_batch=True)
    program: list[Item] = [Records([(5, ("a", 1, "")), (3, ("a", 1, ""))]), Watermark(5)]
    assert run(mini, program, ends=False).records == [(5, ("a", 2, ""))]
    assert run(mini, program[:1]).records == [(5, ("a", 2, ""))]


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
@settings(max_examples=example_count(10))
@given(records=RECORDS, cuts=CUTS)
def test_aggregation_before_shuffle_changes_no_total(
    function: str, columnar: bool, records: list[Record], cuts: list[int]
) -> None:
    program = batches(records, cuts)
    expected = running(function, records)
    if not in_range(expected):
        return
    by_key = {record[0]: record for _, record in expected}
    totals: dict[str, tuple[Any, ...]] = {}
    for item in program:
        assert isinstance(item, Records)
        early = run(subject(function, kind="pre_aggregate", columnar=columnar), [item]).records
        assert [record[0] for _, record in early] == list(dict.fromkeys(r[0] for _, r in item.records))
        for timestamp, record in early:
            assert timestamp == max(at for at, element in item.records if element[0] == record[0])
            known = totals.get(record[0])
            totals[record[0]] = record if known is None else naive(function, known, record)
    assert totals == by_key


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize(("cls", "form"), [(Named, Types.POJO(Named)), (Counted, Types.POJO(Counted))])
def test_classes_keep_their_class(cls: type, form: RecordType, columnar: bool) -> None:
    records = [(1, cls("a", 1, "x")), (2, cls("a", 2, "y"))] * 20
    named = subject("sum", of=form, field="count", key_field="word", columnar=columnar)
    results = run(named, [Records(records)]).records
    assert results[:2] == [(1, cls("a", 1, "x")), (2, cls("a", 3, "x"))]
    assert type(results[-1][1]) is cls


@pytest.mark.parametrize("columnar", [False, True])
def test_record_itself_is_aggregated_without_field(columnar: bool) -> None:
    parameters = {
        "function": "max",
        "field": None,
        "key_type": "int",
        "mini_batch": False,
        "output_type": "int",
    }
    numbers = Subject("aggregate", (lambda number: number % 2,), parameters, (Types.LONG(),), columnar)
    assert run(numbers, [Records([(0, 3), (1, 2), (2, 1), (3, 4)])]).records == [
        (0, 3),
        (1, 2),
        (2, 3),
        (3, 4),
    ]


def test_field_without_number_is_folded_by_rows() -> None:
    floats = Types.TUPLE([str, float, str])
    records = [(0, ("a", float("nan"), "x")), (1, ("a", 1.0, "y"))] * 20
    assert (
        run(subject("min_by", columnar=True, of=floats, kind="pre_aggregate"), [Records(records)]).records[0][
            0
        ]
        == 1
    )


def reducing(mini_batch: bool = False) -> Subject:
    parameters = {"key_type": "str", "mini_batch": mini_batch, "output_type": TRIPLE.to_json()}
    functions = (lambda record: record[0], lambda a, b: (a[0], a[1] + b[1], a[2]))
    return Subject("reduce", functions, parameters, (TRIPLE,))


PROGRAMS = st.lists(
    st.one_of(
        st.builds(Commit), st.builds(Records, RECORDS), st.builds(Watermark, st.integers(0, 9)),
        st.builds(Clock, st.just(1)),
    ),
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [subject("sum"), subject("min_by", mini_batch=True), subject("sum", columnar=True), reducing(), reducing(True)],
    ids=["sum", "min_by in mini-batches", "sum of columns", "reduce", "reduce in mini-batches"],
)  # fmt: skip
@given(program=PROGRAMS)
def test_crash_at_any_commit_changes_nothing(target: Subject, program: list[Item]) -> None:
    small = [
        Records([(at, (r[0], r[1] % 100, r[2])) for at, r in item.records])
        if isinstance(item, Records)
        else item
        for item in program
    ]
    lived, crashed = run(target, small), run(target, small, crash=True)
    assert crashed.records == lived.records
    assert crashed.watermarks == lived.watermarks


def test_error_in_function_is_error_of_operator() -> None:
    broken = Subject("reduce", (len, lambda a, b: a / 0), {"key_type": "int"})
    with pytest.raises(UserCodeError, match="Subject"):
        run(broken, [Records([(0, "a"), (1, "b")])])
