"""A subtask's progress as its consumer group keeps it: committed offsets, with who has ended beside them.

The senders that have ended travel in the metadata string that an offset commit may carry: a sender says so
once, and a successor that starts behind it would wait for ever. So does the generation of the job, where it is not the
first: positions of an older one say where a newer one may begin to read, and nothing else. `g2;ended=5` is what both
look like.

A generation that goes back to a checkpoint is begun by one transaction, which commits a position of every input and,
for a subtask that keeps state, the end that its changelog had: what lies before it counts for nothing. An attempt whose
group has no position of its generation finds that it was not begun.

And so do the ids of the topics that a position is worth something in (topic_ids.py): that of the channel, and that of
the changelog, which may have no position of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from .input_gate import InputGate
from .positions import InputPositions
from .transaction import ConsumedOffset

_PREFIX: Final = "ended="
_END: Final = "end="
_GENERATION: Final = "g"
_TOPIC: Final = "topic="
_CHANGELOG: Final = "changelog="
_NEXT: Final = ";"
SETTLED: Final = "settled"
"""Metadata of a subtask that has settled that it reads nothing, at a partition that is not its own."""


class Progress(msgspec.Struct, frozen=True):
    """The offset of what comes next, by (input, partition); and per input the senders that have ended."""

    positions: Mapping[tuple[int, int], int]
    ended: tuple[frozenset[int], ...]
    notes: tuple[str, ...] = ()
    """By input: what is committed beside each position."""

    @classmethod
    def read(
        cls, topics: Sequence[str], committed: Iterable[ConsumedOffset], generation: int = 0
    ) -> Progress:
        """From what the group has committed; `topics` are those of the inputs, in their order."""
        positions: dict[tuple[int, int], int] = {}
        ended: list[frozenset[int]] = [frozenset()] * len(topics)
        index = {topic: i for i, topic in enumerate(topics)}
        for each in committed:
            if each.offset >= 0 and (i := index.get(each.topic)) is not None:
                positions[i, each.partition] = each.offset
                if generation_of(each.metadata) == generation:
                    ended[i] |= read_ended(each.metadata)
        return cls(positions, tuple(ended))


def moved_offsets(
    topics: Sequence[str],
    positions: InputPositions,
    gate: InputGate | None,
    ends: Mapping[tuple[int, int], int] | None = None,
    generation: int = 0,
) -> list[ConsumedOffset]:
    """What is to be committed of the positions that have moved; `ends` are those of a bounded Kafka source."""

    def metadata(input_index: int, partition: int) -> str:
        if gate is not None:
            ends_here = write_ended(gate.ended_senders(input_index))
        else:
            ends_here = "" if ends is None else write_end(ends[input_index, partition])
        return of_generation(generation, _joined(ends_here, positions.note(input_index)))

    return [
        ConsumedOffset(topics[i], partition, offset, metadata(i, partition))
        for i, partition, offset in positions.moved()
    ]


def begun(committed: Iterable[ConsumedOffset], generation: int) -> bool:
    """Whether an attempt of this generation has committed any of these."""
    return any(each.offset >= 0 and generation_of(each.metadata) == generation for each in committed)


def of_generation(generation: int, metadata: str) -> str:
    """Metadata of a generation; of the first one it is as it is."""
    if not generation:
        return metadata
    return f"{_GENERATION}{generation}{_NEXT}{metadata}" if metadata else f"{_GENERATION}{generation}"


def generation_of(metadata: str | None) -> int:
    """The generation that `of_generation` was given."""
    text = (metadata or "").partition(_NEXT)[0].removeprefix(_GENERATION)
    return int(text) if metadata and metadata.startswith(_GENERATION) and text.isdecimal() else 0


def write_ids(topic: str | None, changelog: str | None) -> str:
    """The ids of a position's own topic and of the changelog as metadata; None: not known."""
    of_topic = "" if topic is None else f"{_TOPIC}{topic}"
    return _joined(of_topic, "" if changelog is None else f"{_CHANGELOG}{changelog}")


def topic_id_of(metadata: str) -> str | None:
    """The first of what `write_ids` was given, in any generation."""
    return _note(metadata, _TOPIC)


def changelog_id_of(metadata: str) -> str | None:
    """The second."""
    return _note(metadata, _CHANGELOG)


def write_end(end: int) -> str:
    """The end of a bounded partition as metadata."""
    return f"{_END}{end}"


def read_end(metadata: str) -> int | None:
    """What `write_end` wrote, in any generation; None for what it did not."""
    text = _note(metadata, _END)
    return int(text) if text is not None and text.isdecimal() else None


def write_ended(senders: frozenset[int]) -> str:
    """A set of subtasks as metadata: a bit for each, in hexadecimal."""
    return f"{_PREFIX}{sum(1 << sender for sender in senders):x}" if senders else ""


def read_ended(metadata: str | None) -> frozenset[int]:
    """What `write_ended` wrote, in any generation."""
    text = _note(metadata or "", _PREFIX)
    bits = int(text, 16) if text else 0
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


def _joined(*notes: str) -> str:
    return _NEXT.join(filter(None, notes))


def _note(metadata: str, prefix: str) -> str | None:
    for part in metadata.split(_NEXT):
        if part.startswith(prefix):
            return part.removeprefix(prefix)
    return None
