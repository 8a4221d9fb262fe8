"""How far each partition of each input has been read; below that, nothing counts again.

Spark may hand over twice. What it hands over lies below the position, or begins at or above it: a range that begins
below and ends above would have been cut somewhere else the first time, which nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...common.failures import TaskError


class InputPositions:
    """Next offsets by (input, partition). Takes the committed ones."""

    def __init__(self, committed: Mapping[tuple[int, int], int]) -> None:
        self._next = dict(committed)
        self._moved = False

    def admits(self, input_index: int, partition: int, first: int, following: int) -> bool:
        """Whether the offsets from `first` to before `following` have not been taken yet. Raises TaskError."""
        position = self._next.get((input_index, partition), 0)
        if first >= position:
            return True
        if following <= position:
            return False
        raise TaskError(
            f"offsets {first} to {following - 1} of partition {partition} of input {input_index} were handed over, of"
            f" which those below {position} have been taken already: restart the job from a checkpoint"
        )

    def advance(self, input_index: int, partition: int, following: int) -> None:
        """Everything below `following` has been taken."""
        self._next[input_index, partition] = following
        self._moved = True

    def get(self, input_index: int, partition: int) -> int | None:
        """The next offset that counts; None where nothing was committed or taken."""
        return self._next.get((input_index, partition))

    @property
    def moved(self) -> bool:
        """Whether any has moved since `settle`."""
        return self._moved

    def settle(self) -> None:
        """All are committed."""
        self._moved = False

    def to_positions_by_input(self) -> dict[int, dict[int, int]]:
        """Input -> partition -> next offset."""
        found: dict[int, dict[int, int]] = {}
        for (input_index, partition), offset in self._next.items():
            found.setdefault(input_index, {})[partition] = offset
        return found

    def to_positions_by_topic(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Topic -> partition, in digits -> next offset; `topics` are those of the inputs, in their order."""
        return {
            topics[i]: {str(partition): offset for partition, offset in those.items()}
            for i, those in self.to_positions_by_input().items()
        }
