"""Windowed totals against a plain count; state restored from the changelog against state that lived on."""

from __future__ import annotations

import json
from collections import Counter

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.runtime.buffers import END_OF_TIME, Batch
from tailrace.pipelines.runtime.failures import UserCodeError, describe
from tailrace.pipelines.runtime.operators.window_reduce import WindowReduce
from tailrace.pipelines.runtime.operators.window_state import WindowState
from tailrace.pipelines.types import Types
from tailrace.schemas.types import OperatorConfig

SIZE = 10
PAIR = Types.TUPLE([str, int])

Pair = tuple[str, int]


def operator(offset: int = 0, reduce: object = None) -> WindowReduce:
    parameters = {
        "assigner": "tumbling_processing_time", "size_ms": SIZE, "offset_ms": offset,
        "key_type": Types.STRING().to_json(), "output_type": PAIR.to_json(),
    }  # fmt: skip
    functions = (lambda pair: pair[0], reduce or (lambda a, b: (a[0], a[1] + b[1])))
    config = OperatorConfig(
        operator_id="w", name="Window", kind="window_reduce", parameters=json.dumps(parameters),
        code=cloudpickle.dumps(functions), location="program.py:7",
    )  # fmt: skip
    return WindowReduce(config, 128)


@st.composite
def streams(draw: st.DrawFn) -> list[Batch | int]:
    """Batches and watermarks, in order; no record is older than the watermark before it."""
    now, stream = 0, list[Batch | int]()
    for step in draw(st.lists(st.tuples(st.integers(0, 15), st.lists(st.sampled_from("abcd"), max_size=6)))):
        now += step[0]
        if step[1]:
            stream.append(Batch([now] * len(step[1]), [(key, 1) for key in step[1]]))
        else:
            stream.append(now - 1)
    return stream


def run(target: WindowReduce, stream: list[Batch | int]) -> Counter[tuple[int, str]]:
    """(timestamp, key) -> the total given for it."""
    given_out: Counter[tuple[int, str]] = Counter()
    for item in stream:
        if isinstance(item, Batch):
            assert not target.process(item).values
        else:
            out = target.advance(item)
            for timestamp, (key, total) in zip(out.timestamps, out.values, strict=True):
                assert (timestamp, key) not in given_out, "a window fires once"
                given_out[timestamp, key] = total
    return given_out


def expected(stream: list[Batch | int], offset: int = 0) -> Counter[tuple[int, str]]:
    counts: Counter[tuple[int, str]] = Counter()
    for item in stream:
        if isinstance(item, Batch):
            for timestamp, (key, count) in zip(item.timestamps, item.values, strict=True):
                start = (timestamp - offset) // SIZE * SIZE + offset
                counts[start + SIZE - 1, key] += count
    return counts


@given(streams(), st.integers(0, SIZE - 1))
def test_totals_are_those_of_a_plain_count(stream: list[Batch | int], offset: int) -> None:
    assert run(operator(offset), [*stream, END_OF_TIME]) == expected(stream, offset)


@given(streams())
def test_a_window_fires_when_the_watermark_passes_its_end_and_not_before(stream: list[Batch | int]) -> None:
    target = operator()
    reached = -1
    for item in stream:
        run(target, [item])
        reached = reached if isinstance(item, Batch) else max(reached, item)
        assert all(start + SIZE - 1 > reached for start in target.state.windows())


@given(st.lists(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab")), min_size=1)))
def test_no_record_is_lost_however_late(batches: list[list[tuple[int, str]]]) -> None:
    target = operator()
    total = 0
    for batch in batches:
        target.process(Batch([at for at, _ in batch], [(key, 1) for _, key in batch]))
        total += sum(value for _, value in target.advance(max(at for at, _ in batch)).values)
    total += sum(value for _, value in target.advance(END_OF_TIME).values)
    assert total == sum(map(len, batches))


@given(streams(), st.sets(st.integers(0, 20)))
def test_the_changelog_restores_the_state(stream: list[Batch | int], commits: set[int]) -> None:
    lived, changelog = operator(), list[bytes]()
    for number, item in enumerate(stream):
        run(lived, [item])
        if number in commits:
            changelog += lived.state.take_changes()
    changelog += lived.state.take_changes()
    restored = operator()
    for message in changelog:
        restored.state.restore(message)
    assert restored.state.snapshot() == lived.state.snapshot()
    assert restored.state.take_changes() == [], "what was restored is not written again"


def test_large_changes_are_cut_into_several_messages() -> None:
    state = WindowState(Types.STRING(), PAIR, 128)
    keys = [f"{i:06}" for i in range(40_000)]
    state.open_window(0).update({key: (key, i) for i, key in enumerate(keys)})
    state.touch(0, keys)
    messages = state.take_changes()
    assert len(messages) > 1
    assert max(map(len, messages)) < 1 << 20
    restored = WindowState(Types.STRING(), PAIR, 128)
    for message in messages:
        restored.restore(message)
    assert restored.snapshot() == state.snapshot()


def test_an_unknown_changelog_message_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        WindowState(Types.STRING(), PAIR, 128).restore(b"?")


def test_an_error_in_the_reduce_function_names_the_operator_and_the_line() -> None:
    def reduce(a: Pair, b: Pair) -> Pair:
        raise ZeroDivisionError("no totals today")

    with pytest.raises(UserCodeError) as raised:
        operator(reduce=reduce).process(Batch([1, 1], [("a", 1), ("a", 2)]))
    first, *rest = describe(raised.value).splitlines()
    assert first.startswith("ZeroDivisionError: no totals today at ")
    assert "test_window_reduce.py:" in first
    assert first.endswith(", in operator 'Window'")
    assert rest[0].startswith("Traceback")
