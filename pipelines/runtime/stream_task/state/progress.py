"""A subtask's progress in memory: where an attempt continues, and the entry of each commit.

Positions are by (index of the input, partition). They are written by the input's topic (progress_entry.py), so they
survive a change of the inputs' order. Progress only grows: an attempt that would continue from less than the changelog,
a checkpoint or the consumer group proves is refused (progress_evidence.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..input.input_gate import InputGate
from ..input.input_positions import InputPositions
from .progress_entry import InputProgress, ProgressEntry, to_bitmap


class SubtaskProgress(msgspec.Struct, frozen=True):
    """The progress that an attempt continues from."""

    positions: Mapping[tuple[int, int], int] = {}
    """The next offset, by (input, partition)."""
    held: Mapping[tuple[int, int], Sequence[int]] = {}
    """The offsets below that are not processed, by (input, partition)."""
    ended: tuple[frozenset[int], ...] = ()
    """By input: the senders that have ended."""
    topic_ids: tuple[str | None, ...] = ()
    """By input: Kafka's id of its topic, if known."""
    changelog_id: str | None = None
    changelog_from: int = 0
    """The offset in the changelog at which the generation begins."""
    reset_id: int = -1
    """The last reset of offsets that the positions include; -1: none."""

    @classmethod
    def from_entry(
        cls, entry: ProgressEntry | None, topics: Sequence[str], generation: int = 0
    ) -> SubtaskProgress:
        """Returns the progress of an entry. `topics` are the topics of the inputs, in their order.

        Ended senders and held offsets count in the same generation only. Another generation begins at the first offset
        that was held back: an attempt of the old one may have held back what the new one has already sent.
        """
        positions: dict[tuple[int, int], int] = {}
        held: dict[tuple[int, int], Sequence[int]] = {}
        ended: list[frozenset[int]] = [frozenset()] * len(topics)
        for i, topic in enumerate(topics):
            known = None if entry is None else entry.find_input(topic)
            if known is None or entry is None:
                continue
            if entry.generation != generation:
                positions |= {(i, each): known.first_unprocessed(each) for each in known.positions}
            else:
                positions |= {(i, partition): offset for partition, offset in known.positions.items()}
                ended[i] = known.ended_senders
                held |= {(i, partition): offsets for partition, offsets in known.held.items()}
        changelog_from = entry.changelog_from if entry is not None and entry.generation == generation else 0
        return cls(positions, held, tuple(ended), changelog_from=changelog_from)


class ProgressWriter:
    """Writes the progress entries of one attempt."""

    def __init__(
        self,
        progress: SubtaskProgress,
        topics: Sequence[str],
        generation: int,
        positions: InputPositions,
        gate: InputGate | None = None,
        ends: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`progress` is the start of the attempt. `ends` are the ends of a bounded Kafka source."""
        self._progress = progress
        self._topics = topics
        self._generation = generation
        self._positions = positions
        self._gate = gate
        self._ends: dict[int, dict[int, int]] = {}
        for (i, partition), end in (ends or {}).items():
            self._ends.setdefault(i, {})[partition] = end

    def entry(self) -> ProgressEntry:
        """Returns the entry of the current progress."""
        positions, gate, ids = self._positions.to_positions_by_input(), self._gate, self._progress.topic_ids
        return ProgressEntry(
            self._generation,
            self._progress.changelog_id,
            self._progress.changelog_from,
            tuple(
                InputProgress(
                    topic,
                    ids[i] if ids else None,
                    positions.get(i, {}),
                    self._ends.get(i, {}),
                    b"" if gate is None else to_bitmap(gate.ended_senders(i)),
                    self._positions.held(i),
                )
                for i, topic in enumerate(self._topics)
            ),
            self._progress.reset_id,
        )
