"""The accumulators of a subtask: state in its changelog under a key of its own.

The next commit writes the new totals of the accumulators that have changed. A new attempt reads the totals and
continues. graph/accumulators.py describes the guarantees.
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
"""In place of an operator id, which has 32 digits."""


class _Accumulator(Counter):
    def __init__(self, name: str) -> None:
        self._name = name
        self.before = 0.0
        """The committed counts of earlier attempts."""
        self.counted = 0.0
        """The counts of this attempt."""

    def inc(self, n: float = 1) -> None:
        counted = self.counted + n
        if not math.isfinite(self.before + counted):
            raise ValueError(
                f"accumulator {self._name!r} cannot be {self.before + counted}: it takes finite numbers"
            )
        self.counted = counted

    @property
    def value(self) -> float:
        return self.counted


class Accumulators:
    """The accumulators of one attempt. For one thread."""

    def __init__(self) -> None:
        self._counters: dict[str, _Accumulator] = {}
        self._committed: dict[str, float] = {}
        self._earlier: dict[str, float] = {}
        """The counts of the origins that were restored before the last one."""

    def counter(self, name: str) -> Counter:
        """Returns the accumulator of that name; the same object each time. Raises ValueError for an invalid name."""
        known = self._counters.get(name)
        if known is not None:
            return known
        if (fault := accumulators.fault(name)) is not None:
            raise ValueError(fault)
        if len(self._counters) >= accumulators.MAX_ACCUMULATORS:
            raise ValueError(
                f"accumulator {name!r} cannot be created: the task already has {accumulators.MAX_ACCUMULATORS}"
            )
        made = self._counters[name] = _Accumulator(name)
        return made

    def restore(self, message: bytes) -> None:
        """Applies the messages of `take_changes`, in the order of the changelog."""
        for name, value in msgspec.msgpack.decode(message, type=dict[str, float]).items():
            counter = self.counter(name)
            assert isinstance(counter, _Accumulator)
            counter.before = self._committed[name] = value + self._earlier.get(name, 0.0)

    def restore_from(self, origin: Origin | None) -> None:
        """Declares that the next totals are of another subtask; they are added to those restored so far. None: the
        restored totals are complete."""
        self._earlier = {} if origin is None else dict(self._committed)

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """Yields all totals, as of the last `take_changes`."""
        if self._committed:
            yield None, msgspec.msgpack.encode(self._committed)

    def take_changes(self) -> bytes | None:
        """Returns the message for the next commit; None if nothing was counted since the last call."""
        changed = {
            name: total
            for name, counter in self._counters.items()
            if (total := counter.before + counter.counted) != self._committed.get(name)
        }
        if not changed:
            return None
        self._committed.update(changed)
        return msgspec.msgpack.encode(changed)

    def committed(self) -> dict[str, float]:
        """Returns the totals of all attempts of the subtask, by name, up to the last `take_changes`.

        Call it after the transaction of those changes is committed.
        """
        return dict(self._committed)
