"""async_map: order, watermarks, capacity, timeouts, retries and failures of requests, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines.runtime.harness import Collected, no_sink

from tailrace.pipelines.api import (
    AsyncFunction,
    AsyncRetryStrategy,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    RuntimeContext,
)
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.pending_records import PendingRecords
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.state_backend.stateful import Origin
from tailrace.pipelines.testing.memory.virtual_async import VirtualAsyncCalls
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import OperatorConfig

NUMBERS = RecordType.of(int)


@dataclass
class Job:
    """One subtask of the operator, and what it has emitted."""

    function: Any
    retry: AsyncRetryStrategy | None = None
    capacity: int = 100
    ordered: bool = True
    timeout_ms: int | None = None
    subtask: int = 0
    parallelism: int = 1
    calls: VirtualAsyncCalls = field(default_factory=VirtualAsyncCalls)
    output: Collected = field(default_factory=Collected)

    def __post_init__(self) -> None:
        config = OperatorConfig(
            operator_id="o", name="Fetch", kind="async_map", location="program.py:7",
            parameters=json.dumps(
                {"capacity": self.capacity, "ordered": self.ordered, "timeout_ms": self.timeout_ms}
            ),
            code=cloudpickle.dumps((self.function, self.retry)),
        )  # fmt: skip
        self.context = TaskContext(subtask_index=self.subtask, parallelism=self.parallelism)
        setup = OperatorSetup(
            config=config,
            context=self.context,
            cluster="c",
            job_id="j",
            send=no_sink,
            input_types=(NUMBERS,),
            async_calls=self.calls,
        )
        self.operator: Operator = build_operator(setup)
        self.operator.output = self.output

    def opened(self) -> Job:
        self.operator.open()
        return self

    def take(self, *values: int) -> Job:
        self.operator.process(Batch(list(values), list(values)))
        return self

    def finished(self) -> Job:
        self.operator.finish()
        return self.close()

    def close(self) -> Job:
        self.operator.close()
        self.calls.close()
        return self

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.output.records]

    @property
    def metrics(self) -> Any:
        return self.context.metrics.values()


async def slow(value: int) -> int:
    """The greater the value, the sooner comes its result."""
    await asyncio.sleep(100 - value)
    return value


class Failing(AsyncFunction[int, int]):
    """Fails so many times for each value, or returns a negative number."""

    def __init__(
        self, times: int, error: type[Exception] = ConnectionError, result: int | None = None
    ) -> None:
        self.times, self.error, self.result = times, error, result
        self.at: list[float] = []

    def open(self, context: RuntimeContext) -> None:
        self.left = self.times
        SEEN.clear()

    async def async_invoke(self, value: int) -> list[int]:
        SEEN.append(asyncio.get_running_loop().time())
        self.left -= 1
        if self.left >= 0:
            if self.result is not None:
                return [self.result]
            raise self.error("not now")
        return [value]


SEEN: list[float] = []
"""When the function was called."""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=20), st.integers(1, 5), st.booleans(), st.data())
def test_results_are_those_of_all_records_and_never_overtake_watermark(
    values: list[int], capacity: int, ordered: bool, data: st.DataObject
) -> None:
    """Each value comes between the watermarks that it came between; ordered: in its place."""

    class Watched(AsyncFunction[int, tuple[int, int]]):
        running = most = 0

        async def async_invoke(self, value: int) -> list[tuple[int, int]]:
            cls = type(self)
            cls.running += 1
            cls.most = max(cls.most, cls.running)
            await asyncio.sleep(100 - value)
            cls.running -= 1
            return [(value, cls.most)]

    job = Job(Watched(), capacity=capacity, ordered=ordered).opened()
    events: list[Any] = []
    emit, emit_watermark = job.output.emit, job.output.emit_watermark
    job.output.emit = lambda batch: (events.extend(value for value, _ in batch.values), emit(batch))  # type: ignore[assignment, method-assign]
    job.output.emit_watermark = lambda time: (events.append(f"w{time}"), emit_watermark(time))  # type: ignore[assignment, method-assign]
    came: list[Any] = []
    for time, value in enumerate(values):
        job.take(value)
        came.append(value)
        if data.draw(st.booleans()):
            job.operator.advance_watermark(time)
            came.append(f"w{time}")
        if data.draw(st.booleans()):
            job.calls.loop.turn()
            job.operator.on_woken()
    job.finished()
    assert max(most for _, most in job.values) <= capacity
    if ordered:
        assert [each for each in events if isinstance(each, int)] == values
    assert _segments(events) == _segments(came)


def _segments(events: Iterable[Any]) -> list[list[int]]:
    """Returns the sorted values up to each watermark, and those behind the last one. Watermarks that came together are
    one."""
    segments: list[list[int]] = [[]]
    for event in events:
        if isinstance(event, int):
            segments[-1].append(event)
        elif segments[-1]:
            segments.append([])
    return [sorted(segment) for segment in segments]


def test_unordered_results_come_as_they_arrive() -> None:
    assert Job(slow, ordered=False).opened().take(1, 3, 2).finished().values == [3, 2, 1]


def test_full_operator_has_no_room_until_results_are_emitted() -> None:
    job = Job(slow, capacity=2).opened().take(1, 2, 3, 4, 5)
    job.calls.loop.turn()
    assert job.operator.room == -1
    assert job.metrics["requestsInFlight"] == 2
    assert job.finished().values == [1, 2, 3, 4, 5]
    assert job.operator.room == 4


def test_idleness_waits_for_results() -> None:
    job = Job(slow).opened().take(1)
    job.operator.set_idle(True)
    assert job.output.idle == []
    job.finished()
    assert job.output.idle == [True]


def test_timeout_fails_with_operator_record_and_line_of_program() -> None:
    job = Job(slow, timeout_ms=2_000).opened().take(1)
    with pytest.raises(UserCodeError) as failure:
        job.operator.finish()
    assert describe_failure(failure.value).splitlines()[0] == (
        "TimeoutError: the function has returned no result in 2 s at program.py:7, in operator 'Fetch', at record 1"
    )
    assert job.calls.loop.now == 2
    job.close()


def test_timeout_of_function_gives_results() -> None:
    class Late(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(value)
            return [value]

        def timeout(self, value: int) -> list[int]:
            return [-value]

    job = Job(Late(), timeout_ms=5_000).opened().take(1, 7, 3).finished()
    assert job.values == [1, -7, 3]
    assert job.metrics["requestTimeouts"] == 1


def test_timeout_error_of_function_itself_is_no_timeout() -> None:
    async def fails(value: int) -> int:
        raise TimeoutError("the server said so")

    job = Job(fails, timeout_ms=1_000).opened().take(1)
    with pytest.raises(UserCodeError) as failure:
        job.operator.finish()
    assert "the server said so" in describe_failure(failure.value).splitlines()[0]
    assert job.metrics["requestTimeouts"] == 0
    job.close()


def test_exception_fails_with_operator_record_and_cause() -> None:
    async def fails(value: int) -> int:
        await asyncio.sleep(0)
        raise LookupError(f"no customer {value}")

    job = Job(fails).opened().take(5)
    with pytest.raises(UserCodeError) as failure:
        job.operator.finish()
    line = describe_failure(failure.value).splitlines()[0]
    assert line.startswith(f"LookupError: no customer 5 at {__file__}:")
    assert line.endswith(", in operator 'Fetch', at record 5")
    job.close()


@pytest.mark.parametrize(
    ("retry", "times"),
    [
        (FixedDelayRetryStrategy(max_attempts=3, delay=timedelta(seconds=2)), [0, 2, 4]),
        (
            ExponentialBackoffDelayRetryStrategy(
                max_attempts=5, initial_delay=timedelta(seconds=1), max_delay=timedelta(seconds=3)
            ),
            [0, 1, 3, 6, 9],
        ),
    ],
)
def test_call_is_repeated_after_delay_of_strategy(retry: AsyncRetryStrategy, times: list[float]) -> None:
    job = Job(Failing(len(times) - 1), retry).opened().take(8).finished()
    assert job.values == [8]
    assert times == SEEN
    assert job.metrics["requestRetries"] == len(times) - 1


def test_last_attempt_that_fails_fails_job() -> None:
    job = Job(Failing(3), FixedDelayRetryStrategy(max_attempts=3)).opened().take(8)
    with pytest.raises(UserCodeError):
        job.operator.finish()
    assert len(SEEN) == 3
    job.close()


def test_exception_that_predicate_excludes_fails_at_once() -> None:
    retry = FixedDelayRetryStrategy(exception_predicate=lambda error: isinstance(error, ConnectionError))
    job = Job(Failing(1, ValueError), retry).opened().take(8)
    with pytest.raises(UserCodeError):
        job.operator.finish()
    assert len(SEEN) == 1
    job.close()


def test_result_that_predicate_selects_is_requested_again() -> None:
    retry = FixedDelayRetryStrategy(max_attempts=3, result_predicate=lambda results: results == [-1])
    assert Job(Failing(2, result=-1), retry).opened().take(8).finished().values == [8]
    assert Job(Failing(9, result=-1), retry).opened().take(8).finished().values == [-1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"max_attempts": 0}, "max_attempts of a retry strategy is 0, not an integer of 1 or more"),
        ({"max_attempts": 2.5}, "max_attempts of a retry strategy is 2.5"),
        ({"max_delay": 5}, "the max_delay of a retry strategy is 5: give a timedelta"),
        (
            {"initial_delay": timedelta(-1)},
            "the initial_delay of a retry strategy is .*: give a timedelta of 0",
        ),
        ({"multiplier": 0}, "the multiplier of a retry strategy is 0, not a number above 0"),
        (
            {"exception_predicate": OSError},
            "the exception_predicate of a retry strategy is .*: give a function",
        ),
        ({"result_predicate": 5}, "the result_predicate of a retry strategy is 5: give a function"),
    ],
)
def test_wrong_strategy_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ExponentialBackoffDelayRetryStrategy(**arguments)


def test_timeout_is_for_all_attempts_together() -> None:
    retry = FixedDelayRetryStrategy(max_attempts=99, delay=timedelta(seconds=1))
    job = Job(Failing(99), retry, timeout_ms=3_500).opened().take(8)
    with pytest.raises(UserCodeError) as failure:
        job.operator.finish()
    assert "TimeoutError" in describe_failure(failure.value).splitlines()[0]
    assert SEEN == [0, 1, 2, 3]
    job.close()


def test_functions_open_and_close_may_be_async_and_closing_cancels_requests() -> None:
    done: list[str] = []

    class Client(AsyncFunction[int, int]):
        async def open(self, context: RuntimeContext) -> None:
            await asyncio.sleep(1)
            done.append("opened")

        async def async_invoke(self, value: int) -> list[int]:
            try:
                await asyncio.sleep(1000)
            finally:
                done.append("canceled")
            return []

        async def close(self) -> None:
            done.append("closed")

    function: Any = Client()
    job = Job(None)
    job.operator._function = job.operator._runner._function = function  # type: ignore[attr-defined]
    job.opened().take(1)
    job.calls.loop.turn()
    job.close()
    assert done == ["opened", "canceled", "closed"]


def commit(job: Job) -> list[bytes]:
    job.operator.before_commit()
    return list(job.operator.take_changes())


def let_pass(job: Job, until: Callable[[], object]) -> None:
    while not until():
        job.calls.loop.turn()
        job.operator.on_woken()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6), st.booleans(), st.data())
def test_restored_records_are_requested_again(
    batches: list[list[int]], ordered: bool, data: st.DataObject
) -> None:
    """Whatever is committed, each record has one result in the end."""
    job, changelog, emitted = Job(slow, capacity=3, ordered=ordered).opened(), list[bytes](), list[int]()
    for batch in batches:
        if batch:
            job.take(*batch)
        for _ in range(data.draw(st.integers(0, 3))):
            job.calls.loop.turn()
            job.operator.on_woken()
        changelog += commit(job)
        emitted += job.values
        job.output.records.clear()
        match data.draw(st.sampled_from(["go on", "crash", "crash behind a snapshot"])):
            case "crash behind a snapshot":
                changelog = [message for _, message in job.operator.full([range(128)])]
            case "go on":
                continue
        job.close()
        job = Job(slow, capacity=3, ordered=ordered)
        for message in changelog:
            job.operator.restore(message)
        job.opened()
    emitted += job.finished().values
    came = [value for batch in batches for value in batch]
    assert (emitted if ordered else sorted(emitted)) == (came if ordered else sorted(came))
    assert not job.operator.has_pending


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_records_are_divided_at_another_parallelism(parallelism: int) -> None:
    written = []
    for subtask in range(3):
        job = Job(slow, subtask=subtask, parallelism=3).opened().take(*range(10 * subtask, 10 * subtask + 4))
        commit(job)
        written.append([message for _, message in job.operator.full([range(128)])])
        job.close()
    found: list[int] = []
    for subtask in range(parallelism):
        changes: list[bytes] = []
        for _ in range(2):  # the second attempt restores the changes of the first, too
            job = Job(slow, subtask=subtask, parallelism=parallelism)
            for index, messages in enumerate(written):
                job.operator.restore_from(Origin(index, 3, 128))
                for message in messages:
                    job.operator.restore(message)
            job.operator.restore_from(None)
            for message in changes:
                job.operator.restore(message)
            job.opened()
            if not changes:
                job.take(50)
                let_pass(job, lambda job=job: job.values)  # type: ignore[misc]
                changes = commit(job)
                found += job.values
                job.close()
        found += job.finished().values
    expected = [10 * subtask + i for subtask in range(3) for i in range(4)] + [50] * parallelism
    assert sorted(found) == sorted(expected)


def older_rows() -> Any:
    class Row(NamedTuple):
        number: int

    return Row


def newer_rows() -> Any:
    class Row(NamedTuple):
        number: int
        note: str = "none"

    return Row


def restored(record_type: Any, messages: Iterable[bytes]) -> tuple[PendingRecords, list[Any]]:
    pending = PendingRecords(RecordType.of(record_type), 0, 1, "Fetch")
    for message in messages:
        pending.restore(message)
    return pending, [request.value for request in pending.take_restored()]


def test_restored_records_of_older_type_are_written_with_new_ones() -> None:
    old, new = older_rows(), newer_rows()
    before, _ = restored(old, ())
    before.add([1, 2], [old(1), old(2)])
    messages = list(before.take_changes())
    after, values = restored(new, messages)
    assert values == [new(1), new(2)]
    after.add([3], [new(3, "new")])
    changes = list(after.take_changes())
    for found in (restored(new, messages + changes), restored(new, after.full())):
        assert found[1] == [new(1), new(2), new(3, "new")]
