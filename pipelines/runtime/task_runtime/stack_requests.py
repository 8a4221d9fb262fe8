"""Requests for samples of StreamTasks' stacks, and their answers, which come as notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ..common.protocol import SampledStack, SampleStacks, StacksSampled

_GRACE_S = 2.0
"""How long an answer may take beyond its samples."""


class _Request:
    __slots__ = ("arrived", "found", "wanted")

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        self.found: dict[str, Sequence[SampledStack]] = {}
        self.arrived = threading.Event()


class StackRequests:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._open: dict[int, _Request] = {}

    def sample(
        self, attempts: Sequence[str], command: SampleStacks, send: Callable[[SampleStacks], None]
    ) -> Mapping[str, Sequence[SampledStack]]:
        """Sends a command to attempts by `send`, and returns attempt -> its samples, for those that answer."""
        request = _Request(frozenset(attempts))
        if not request.wanted:
            return {}
        with self._lock:
            self._number += 1
            number = self._number
            self._open[number] = request
        try:
            send(SampleStacks(number, command.count, command.interval_s))
            request.arrived.wait(command.count * command.interval_s + _GRACE_S)
        finally:
            with self._lock:
                del self._open[number]
        return dict(request.found)

    def on_sampled(self, attempt: str, notice: StacksSampled) -> None:
        """Takes an answer; one that comes too late is dropped."""
        with self._lock:
            request = self._open.get(notice.request)
            if request is None:
                return
            request.found[attempt] = notice.stacks
            if request.wanted <= request.found.keys():
                request.arrived.set()
