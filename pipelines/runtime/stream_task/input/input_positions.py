"""The position of each partition of each input: what is below it is processed, and is ignored if it arrives again.

Spark may forward a range of offsets twice. A range lies below the position, or begins at or above it. A range that
crosses the position cannot occur: its first delivery would have ended at another offset. Only a range without records
may, because another reader may have divided it.

A buffer that is held back for a barrier is below the position and not processed. Its offset is *held*: it is committed
with the position, so commits go on during an alignment. A new attempt reads from the first held offset, and takes those
offsets only; until they arrive they are *missing*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...common.failures import TaskError


class InputPositions:
    """The next offsets by (input, partition), starting with the committed ones. `held`: the offsets below that an
    earlier attempt has held back."""

    def __init__(
        self,
        committed: Mapping[tuple[int, int], int],
        held: Mapping[tuple[int, int], Iterable[int]] | None = None,
    ) -> None:
        self._next = dict(committed)
        self._missing = {place: set(offsets) for place, offsets in (held or {}).items()}
        self._held: dict[tuple[int, int], set[int]] = {}
        self._moved = False

    def admits(self, input_index: int, partition: int, first: int, following: int) -> bool:
        """Whether the offsets from `first` to before `following` have not been taken yet. Raises TaskError."""
        position = self._next.get((input_index, partition), 0)
        if first >= position:
            return True
        if following <= position:
            return first in self._missing.get((input_index, partition), ())
        raise TaskError(
            f"offsets {first} to {following - 1} of partition {partition} of input {input_index} were forwarded, of"
            f" which those below {position} were already taken: restart the job from a checkpoint"
        )

    def first_left(self, input_index: int, partition: int, first: int, following: int) -> int:
        """Returns the first of these offsets to take. They have no records, so they may cross the position."""
        position = self._next.get((input_index, partition), 0)
        return position if first < position < following else first

    def advance(self, input_index: int, partition: int, following: int) -> None:
        """Records that everything below `following` is taken, or the missing buffer before it."""
        place = input_index, partition
        if following > self._next.get(place, -1):
            self._next[place] = following
        else:
            self._missing.get(place, set()).discard(following - 1)
        self._moved = True

    def hold(self, input_index: int, partition: int, offset: int) -> None:
        """Records that a buffer that was just taken is held back."""
        self._held.setdefault((input_index, partition), set()).add(offset)

    def release(self, input_index: int, partition: int, offset: int) -> None:
        """Records that a buffer is held back no more."""
        self._held[input_index, partition].discard(offset)
        self._moved = True

    def get(self, input_index: int, partition: int) -> int | None:
        """Returns the next offset to take; None if nothing was committed or taken."""
        return self._next.get((input_index, partition))

    def note_moved(self) -> None:
        """Records that the progress besides the positions has changed."""
        self._moved = True

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

    def to_offsets_to_read(self) -> dict[int, dict[int, int]]:
        """Returns input -> partition -> the offset to read from: the first missing one, or the next."""
        found = self.to_positions_by_input()
        for (input_index, partition), offsets in self._missing.items():
            found[input_index][partition] = min(offsets, default=found[input_index][partition])
        return found

    def held(self, input_index: int) -> dict[int, list[int]]:
        """Returns partition -> the offsets below its position that are held back or missing, in order."""
        found: dict[int, list[int]] = {}
        for which in (self._missing, self._held):
            for (index, partition), offsets in which.items():
                if index == input_index and offsets:
                    found[partition] = sorted({*found.get(partition, ()), *offsets})
        return found

    def to_positions_by_topic(self, topics: Sequence[str]) -> dict[str, dict[str, int]]:
        """Returns topic -> partition (in digits) -> next offset. `topics` are the topics of the inputs, in their
        order."""
        return {
            topics[i]: {str(partition): offset for partition, offset in those.items()}
            for i, those in self.to_positions_by_input().items()
        }
