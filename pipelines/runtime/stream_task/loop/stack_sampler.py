"""Samples what the task thread of a StreamTask does, for flame graphs (Flink's ThreadInfoSample).

The samples are taken by another thread of the process, and only while somebody asks. The task does not stop for them.
A call is on the CPU if its thread has used CPU time since the sample before: a state in /proc would not tell, because
the thread waits for Python's interpreter lock while the other one looks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Final

from ...common.protocol import SampledStack

_ON_CPU_ABOVE: Final = 0.1
"""The part of the time."""
_DEEPEST: Final = 200
"""The most calls of a stack; the innermost ones are kept."""


def sample_stacks(
    count: int, interval_s: float, pause: Callable[[float], None] = time.sleep
) -> list[SampledStack]:
    """Returns the different stacks of the main thread in `count` samples, with their numbers."""
    thread = threading.main_thread()
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    found: Counter[tuple[tuple[str, ...], bool]] = Counter()
    before, used = time.monotonic(), time.clock_gettime(clock)
    for _ in range(count):
        pause(interval_s)
        frame = sys._current_frames().get(thread.ident)
        now, now_used = time.monotonic(), time.clock_gettime(clock)
        is_on_cpu = now_used - used > _ON_CPU_ABOVE * (now - before)
        before, used = now, now_used
        found[describe_calls(frame), is_on_cpu] += 1
    return [SampledStack(calls, is_on_cpu, number) for (calls, is_on_cpu), number in found.items()]


def describe_calls(frame: FrameType | None) -> tuple[str, ...]:
    """Returns the calls of a stack, the outermost first: module.function:line."""
    calls: list[str] = []
    while frame is not None and len(calls) < _DEEPEST:
        code = frame.f_code
        calls.append(f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(calls))
