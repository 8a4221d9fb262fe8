"""The accumulators of a subtask: state, kept in its changelog under a key of its own.

What functions count between two commits is written with the next one, as the totals of what has changed; a new
attempt reads it back and counts on. See graph/accumulators.py for what follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ...functions import Counter
from ...graph import accumulators
from .stateful import Origin

CHANGELOG_KEY: Final = "accumulators"
"""In the place of an operator id, which is 32 digits."""


class _Accumulator(Counter):
    def __init__(self, name: str) -> None:
        self._name = name
        self.before = 0.0
        """What earlier attempts have committed."""
        self.counted = 0.0
        """In this attempt."""

    def inc(self, n: float = 1) -> None:
        counted = self.counted + n
        if not math.isfinite(self.before + counted):
            raise ValueError(
                f"accumulator {self._name!r} can't be {self.before + counted}: it takes finite numbers"
            )
        self.counted = counted

    @property
    def value(self) -> float:
        return self.counted


class Accumulators:
    """Of one attempt; for one thread."""

    def __init__(self) -> None:
        self._counters: dict[str, _Accumulator] = {}
        self._committed: dict[str, float] = {}
        self._earlier: dict[str, float] = {}
        """What the origins counted that have been restored before the last one."""

    def counter(self, name: str) -> Counter:
        """The accumulator of that name; the same one each time. Raises ValueError where there can be none."""
        known = self._counters.get(name)
        if known is not None:
            return known
        if (fault := accumulators.fault(name)) is not None:
            raise ValueError(fault)
        if len(self._counters) >= accumulators.MAX_ACCUMULATORS:
            raise ValueError(
                f"there can be no accumulator {name!r}: the task has {accumulators.MAX_ACCUMULATORS} already"
            )
        made = self._counters[name] = _Accumulator(name)
        return made

    def restore(self, message: bytes) -> None:
        """Takes back what `take_changes` gave, in the order of the changelog."""
        for name, value in msgspec.msgpack.decode(message, type=dict[str, float]).items():
            counter = self.counter(name)
            assert isinstance(counter, _Accumulator)
            counter.before = self._committed[name] = value + self._earlier.get(name, 0.0)

    def restore_from(self, origin: Origin | None) -> None:
        """What follows is another subtask's, and is added to what has been restored so far; None: it is the whole."""
        self._earlier = {} if origin is None else dict(self._committed)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """All totals, as of the last `take_changes`."""
        if self._committed:
            yield None, msgspec.msgpack.encode(self._committed)

    def take_changes(self) -> bytes | None:
        """What is to be written with the next commit; None where nothing was counted since the last call."""
        changed = {
            name: total
            for name, each in self._counters.items()
            if (total := each.before + each.counted) != self._committed.get(name)
        }
        if not changed:
            return None
        self._committed.update(changed)
        return msgspec.msgpack.encode(changed)

    def committed(self) -> dict[str, float]:
        """Name -> what the subtask has counted in all its attempts, up to the last `take_changes`.

        To be told once the transaction that this went into is committed.
        """
        return dict(self._committed)
