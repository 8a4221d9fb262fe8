"""Reports a contradiction only when two reports in a row contain it: an event in flight may explain a single one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RepeatFilter(Generic[K]):
    """What the last report of each peer said against the log."""

    def __init__(self) -> None:
        self._last: dict[K, frozenset[str]] = {}

    def repeated(self, peer: K, claims: frozenset[str]) -> frozenset[str]:
        """What this report and the one before claim alike; after that it has to be claimed twice again."""
        before = self._last.get(peer, frozenset())
        both = claims & before
        left = claims - both
        if left:
            self._last[peer] = left
        else:
            self._last.pop(peer, None)
        return both

    def forget(self, peer: K) -> None:
        """The peer is gone, or another by the same name."""
        self._last.pop(peer, None)
