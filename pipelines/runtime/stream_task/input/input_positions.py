"""The position of each partition of each input: everything below it is processed and is ignored if it arrives again.

Spark may forward a range of offsets twice. A range lies below the position, or begins at or above it. A range that
crosses the position cannot occur: its first delivery would have ended at another offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...common.failures import TaskError


class InputPositions:
    """The next offsets by (input, partition), starting with the committed ones."""

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
            f"offsets {first} to {following - 1} of partition {partition} of input {input_index} were forwarded, of"
            f" which those below {position} were already taken: restart the job from a checkpoint"
        )

    def advance(self, input_index: int, partition: int, following: int) -> None:
        """Records that everything below `following` is taken."""
        self._next[input_index, partition] = following
        self._moved = True

    def get(self, input_index: int, partition: int) -> int | None:
        """Returns the next offset to take; None if nothing was committed or taken."""
        return self._next.get((input_index, partition))

    @property
    def moved(self) -> bool:
        """Whether any has moved since `settle`."""
        return self._moved

    def settle(self) -> None:
        """Records that all positions are committed."""
        self._moved = False

    def to_positions_by_input(self) -> dict[int, dict[int, int]]:
        """Returns input -> partition -> next offset."""
        found: dict[int, dict[int, int]] = {}
        for (input_index, partition), offset in self._next.items():
            found.setdefault(input_index, {})[partition] = offset
        return found

    def to_positions_by_topic(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Returns topic -> partition (in digits) -> next offset. `topics` are the topics of the inputs, in their
        order."""
        return {
            topics[i]: {str(partition): offset for partition, offset in those.items()}
            for i, those in self.to_positions_by_input().items()
        }
