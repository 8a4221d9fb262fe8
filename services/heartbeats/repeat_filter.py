"""Accepts a contradiction between a report and the log only if two reports in a row contain it: one report may have
crossed the event that explains it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RepeatFilter(Generic[K]):
    """The contradictions in the last report of each peer."""

    def __init__(self) -> None:
        self._last: dict[K, frozenset[str]] = {}

    def repeated(self, peer: K, claims: frozenset[str]) -> frozenset[str]:
        """Returns the claims that this report and the previous one share; each is returned once, and must then be
        repeated again."""
        before = self._last.get(peer, frozenset())
        both = claims & before
        left = claims - both
        if left:
            self._last[peer] = left
        else:
            self._last.pop(peer, None)
        return both

    def forget(self, peer: K) -> None:
        """Forgets a peer that is gone or was replaced by one of the same name."""
        self._last.pop(peer, None)
