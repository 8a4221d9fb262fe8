"""Samples of the main thread: where it is, and whether it uses the CPU."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from tailrace.pipelines.runtime.common.protocol import SampledStack, SampleStacks, StacksSampled
from tailrace.pipelines.runtime.stream_task.loop.stack_sampler import describe_calls, sample_stacks
from tailrace.pipelines.runtime.task_runtime.stack_requests import StackRequests


def spin(is_over: Callable[[], bool]) -> None:
    while not is_over():
        pass


def wait(is_over: Callable[[], bool]) -> None:
    while not is_over():
        time.sleep(0.05)


def sampled(work: Callable[[Callable[[], bool]], None]) -> list[SampledStack]:
    """Returns the samples taken by another thread while this one works."""
    found: list[SampledStack] = []
    sampler = threading.Thread(target=lambda: found.extend(sample_stacks(20, 0.01)))
    sampler.start()
    work(lambda: not sampler.is_alive())
    return found


def test_all_samples_are_counted_with_calls_from_outermost_to_innermost() -> None:
    found = sampled(spin)
    assert sum(each.count for each in found) == 20
    stacks = [[call.rpartition(":")[0].rpartition(".")[2] for call in each.calls] for each in found]
    working = [names for names in stacks if "spin" in names]
    assert working
    assert all(names.index("sampled") < names.index("spin") for names in working)


def test_thread_that_waits_is_not_on_cpu() -> None:
    assert sum(each.count for each in sampled(wait) if not each.is_on_cpu) > 10
    assert sum(each.count for each in sampled(spin) if each.is_on_cpu) > 0


def test_deep_stack_keeps_innermost_calls() -> None:
    def descend(depth: int) -> tuple[str, ...]:
        return describe_calls(sys._getframe()) if depth == 0 else descend(depth - 1)

    calls = descend(400)
    assert len(calls) == 200
    assert calls[-1].rpartition(":")[0].endswith("descend")


def test_answers_of_all_attempts_end_the_wait_and_late_ones_are_dropped() -> None:
    requests, stack = StackRequests(), SampledStack(("a",), True, 1)
    numbers: list[int] = []

    def answer(command: SampleStacks) -> None:
        numbers.append(command.request)
        for attempt in ("x", "y"):
            requests.on_sampled(attempt, StacksSampled(command.request, (stack,)))

    assert requests.sample(["x", "y"], SampleStacks(0, 1_000, 1.0), answer) == {"x": (stack,), "y": (stack,)}
    requests.on_sampled("x", StacksSampled(numbers[0], (stack,)))
    assert requests.sample([], SampleStacks(0, 1, 1.0), answer) == {}
    assert len(numbers) == 1
