"""Runs many request sequences over one connection in one thread: while one waits for an answer, the others send.

A sequence is a generator: it yields each request after sending it, and receives the answer or the exception. The code
reads as if it ran alone, and a thousand sequences do not cost a thousand round trips.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K")
RequestSteps = Generator[Any, Any, T]

MAX_IN_FLIGHT = 64
"""The maximum number of sequences in flight."""


def run_pipelined(
    next_one: Callable[[], tuple[K, RequestSteps[None]] | None],
    settle: Callable[[Any], Any],
    done: Callable[[K, Exception | None], None],
) -> None:
    """Runs until no sequence is in flight and `next_one`, which starts the next, returns None.

    `settle` waits for the answer to a yielded request; `done` is called for each sequence that has ended or failed.
    """
    under_way: deque[tuple[K, RequestSteps[None], Any]] = deque()

    def go_on(key: K, steps: RequestSteps[None], proceed: Callable[[], Any]) -> None:
        try:
            under_way.append((key, steps, proceed()))
        except StopIteration:
            done(key, None)
        except Exception as error:
            done(key, error)

    while True:
        while len(under_way) < MAX_IN_FLIGHT and (begun := next_one()) is not None:
            go_on(*begun, partial(next, begun[1]))
        if not under_way:
            return
        key, steps, asked = under_way.popleft()
        try:
            answer = settle(asked)
        except Exception as error:
            go_on(key, steps, partial(steps.throw, error))
        else:
            go_on(key, steps, partial(steps.send, answer))
