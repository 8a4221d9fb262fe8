"""StreamHarness: functions of every kind, driven by elements, times and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tailrace import (
    BroadcastContext,
    Context,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedReadOnlyBroadcastContext,
    MapFunction,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    ValueStateDescriptor,
    WindowContext,
)
from tailrace.testing import JobFailedError, StreamHarness

SHORT = OutputTag("short", str)
LATE = OutputTag("late", tuple[str, int])
RULES = MapStateDescriptor("rules", str, int)


class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: str, context: KeyedContext[str]) -> Iterator[tuple[str, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        context.timer_service.register_event_time_timer(context.timestamp + 1_000)
        context.timer_service.register_processing_time_timer(
            context.timer_service.current_processing_time() + 5_000
        )
        yield value, count

    def on_timer(self, timestamp: int, context: OnTimerContext[str]) -> Iterator[tuple[str, int]]:
        yield f"{context.current_key} {context.time_domain}", self.count.value() or 0


def counting(words: DataStream[str]) -> DataStream[tuple[str, int]]:
    return words.key_by(lambda word: word).process(Count())


def itself(word: str) -> str:
    return word


class Split(ProcessFunction[str, str]):
    def process_element(self, value: str, context: Context) -> Iterator[str]:
        if len(value) < 3:
            context.output(SHORT, value)
        else:
            yield value.upper()


class Total(ProcessWindowFunction[tuple[str, int], tuple[str, int, int], str]):
    def process(
        self, key: str, context: WindowContext, elements: Iterable[tuple[str, int]]
    ) -> Iterator[tuple[str, int, int]]:
        yield key, context.window.start, sum(number for _, number in elements)


class Latest(KeyedCoProcessFunction[str, str, str, str]):
    """Words with the last text of their key on the other input."""

    def open(self, context: RuntimeContext) -> None:
        self.text = context.get_state(ValueStateDescriptor("text", str))

    def process_element1(self, value: str, context: KeyedContext[str]) -> Iterator[str]:
        yield f"{value}: {self.text.value()}"

    def process_element2(self, value: str, context: KeyedContext[str]) -> None:
        self.text.update(value)


class AboveRule(KeyedBroadcastProcessFunction[str, tuple[str, int], tuple[str, int], str]):
    def process_element(
        self, value: tuple[str, int], context: KeyedReadOnlyBroadcastContext[str]
    ) -> Iterator[str]:
        limit = context.get_broadcast_state(RULES).get(value[0])
        if limit is not None and value[1] > limit:
            yield f"{value[0]} is above {limit}"

    def process_broadcast_element(self, value: tuple[str, int], context: BroadcastContext) -> None:
        context.get_broadcast_state(RULES)[value[0]] = value[1]


class Prefix(MapFunction[str, str]):
    def open(self, context: RuntimeContext) -> None:
        self.prefix = f"{context.subtask_index}/{context.parallelism} "
        self.counter = context.accumulator("words")

    def map(self, value: str) -> str:
        self.counter.inc()
        return self.prefix + value


def test_keyed_process_function_has_state_and_timers_of_both_times() -> None:
    with StreamHarness(counting, now_ms=100_000) as harness:
        harness.process_element("a", timestamp=1_000)
        harness.process_element("a", timestamp=1_500)
        assert harness.extract_output() == [(("a", 1), 1_000), (("a", 2), 1_500)]
        harness.process_watermark(1_999)
        assert len(harness.extract_output()) == 2, "the first timer is at 2,000"
        harness.process_watermark(2_000)
        assert harness.extract_output_values()[2:] == [("a event-time", 2)]
        harness.set_processing_time(104_999)
        assert len(harness.extract_output()) == 3
        harness.advance(milliseconds=2)
        assert harness.extract_output_values()[3:] == [("a processing-time", 2)]


def test_rich_map_function_has_context_and_counters() -> None:
    harness = StreamHarness(lambda words: words.map(Prefix()))
    harness.process_elements([("a", None), ("b", None)])
    assert harness.extract_output_values() == ["0/1 a", "0/1 b"]
    assert harness.accumulators() == {"words": 2}
    harness.close()


def test_side_output_is_recorded() -> None:
    with StreamHarness(lambda words: words.process(Split()), side_outputs=[SHORT]) as harness:
        harness.process_elements([("to", None), ("question", None)])
        assert harness.extract_output_values() == ["QUESTION"]
        assert harness.side_output(SHORT) == ["to"]
        with pytest.raises(ValueError, match="'late' is not recorded"):
            harness.side_output(LATE)


def test_window_function_fires_at_watermark_and_late_elements_are_apart() -> None:
    def totals(pairs: DataStream[tuple[str, int]]) -> DataStream[tuple[str, int, int]]:
        windows = pairs.key_by(0).window(TumblingEventTimeWindows.of(seconds=10))
        return windows.side_output_late_data(LATE).process(Total())

    with StreamHarness(totals, types=[tuple[str, int]], side_outputs=[LATE]) as harness:
        harness.process_elements([(("a", 1), 1_000), (("a", 2), 9_999), (("a", 4), 10_000)])
        harness.process_watermark(9_998)
        assert harness.extract_output_values() == []
        harness.process_watermark(9_999)
        assert harness.extract_output() == [(("a", 0, 3), 9_999)]
        harness.process_element(("a", 8), timestamp=2_000)
        assert harness.side_output(LATE) == [("a", 8)]
        harness.end_input()
        assert harness.extract_output_values()[1:] == [("a", 10_000, 4)]


def test_window_of_processing_time_fires_at_its_time() -> None:
    def sums(pairs: DataStream[tuple[str, int]]) -> DataStream[tuple[str, int]]:
        return pairs.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=1)).sum(1)

    with StreamHarness(sums, types=[tuple[str, int]], now_ms=5_000) as harness:
        harness.process_elements([(("a", 1), None), (("a", 2), None)])
        harness.set_processing_time(5_999)
        assert harness.extract_output_values() == []
        harness.set_processing_time(6_000)
        assert harness.extract_output_values() == [("a", 3)]


def test_co_process_function_has_two_inputs_and_their_least_watermark() -> None:
    def latest(words: DataStream[str], texts: DataStream[str]) -> DataStream[str]:
        def first(text: str) -> str:
            return text[0]

        return words.key_by(first).connect(texts.key_by(first)).process(Latest())

    with StreamHarness(latest) as harness:
        harness.process_element("a", timestamp=1)
        harness.process_element("a text", timestamp=2, input=1)
        harness.process_element("a", timestamp=3)
        assert harness.extract_output_values() == ["a: None", "a: a text"]


def test_event_time_is_that_of_slower_input() -> None:
    def both(one: DataStream[str], other: DataStream[str]) -> DataStream[tuple[str, int]]:
        return counting(one.union(other))

    with StreamHarness(both) as harness:
        harness.process_element("a", timestamp=0)
        harness.process_watermark(5_000, input=0)
        assert len(harness.extract_output()) == 1
        harness.process_watermark(1_000, input=1)
        assert harness.extract_output_values()[1:] == [("a event-time", 1)]


def test_broadcast_process_function_sees_rules() -> None:
    def above(values: DataStream[tuple[str, int]], rules: DataStream[tuple[str, int]]) -> DataStream[str]:
        return values.key_by(0).connect(rules.broadcast(RULES)).process(AboveRule())

    pair = tuple[str, int]
    with StreamHarness(above, types=[pair, pair], parallelism=2) as harness:
        harness.process_element(("cpu", 90))
        harness.process_element(("cpu", 80), input=1)
        harness.process_element(("cpu", 90))
        harness.process_element(("cpu", 70))
        assert harness.extract_output_values() == ["cpu is above 80"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_and_timers_continue_from_snapshot_at_any_parallelism(parallelism: int) -> None:
    with StreamHarness(counting, parallelism=2) as harness:
        harness.process_elements([(word, 1_000) for word in "abcab"])
        snapshot = harness.snapshot()
    with StreamHarness(counting, parallelism=parallelism, snapshot=snapshot) as harness:
        harness.process_element("a", timestamp=1_000)
        assert harness.extract_output_values() == [("a", 3)]
        harness.process_watermark(2_000)
        assert sorted(harness.extract_output_values()[1:]) == [
            ("a event-time", 3), ("b event-time", 2), ("c event-time", 1),
        ]  # fmt: skip


def test_failure_keeps_state_and_watermark() -> None:
    with StreamHarness(counting) as harness:
        harness.process_element("a", timestamp=1_000)
        harness.process_watermark(1_500)
        harness.fail()
        harness.process_element("a", timestamp=1_600)
        harness.process_watermark(2_000)
        assert harness.extract_output_values() == [("a", 1), ("a", 2), ("a event-time", 2)]


def test_failure_of_function_is_raised_by_its_element() -> None:
    with StreamHarness(lambda words: words.map(int)) as harness:
        with pytest.raises(JobFailedError, match="ValueError: invalid literal"):
            harness.process_element("no number")


def test_wrong_timestamps_and_inputs_are_refused() -> None:
    with StreamHarness(lambda words: words.map(str.upper)) as harness:
        with pytest.raises(TypeError, match=r"an element has the timestamp 1\.5: a timestamp is an int"):
            harness.process_element("a", timestamp=1.5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="there is no input 1: the steps have 1, from 0"):
            harness.process_element("a", input=1)
