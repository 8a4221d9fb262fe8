"""A subtask's progress as its consumer group keeps it: committed offsets, with who has ended beside them.

The senders that have ended travel in the metadata string that an offset commit may carry: a sender says so
once, and a successor that starts behind it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from .input_gate import InputGate
from .positions import InputPositions
from .transaction import ConsumedOffset

_PREFIX: Final = "ended="


class Progress(msgspec.Struct, frozen=True):
    """The offset of what comes next, by (input, partition); and per input the senders that have ended."""

    positions: Mapping[tuple[int, int], int]
    ended: tuple[frozenset[int], ...]

    @classmethod
    def read(cls, topics: Sequence[str], committed: Iterable[ConsumedOffset]) -> Progress:
        """From what the group has committed; `topics` are those of the inputs, in their order."""
        positions: dict[tuple[int, int], int] = {}
        ended: list[frozenset[int]] = [frozenset()] * len(topics)
        index = {topic: i for i, topic in enumerate(topics)}
        for each in committed:
            if each.offset >= 0 and (i := index.get(each.topic)) is not None:
                positions[i, each.partition] = each.offset
                ended[i] |= read_ended(each.metadata)
        return cls(positions, tuple(ended))


def moved_offsets(
    topics: Sequence[str], positions: InputPositions, gate: InputGate | None
) -> list[ConsumedOffset]:
    """What is to be committed of the positions that have moved."""
    return [
        ConsumedOffset(
            topics[i], partition, offset, "" if gate is None else write_ended(gate.ended_senders(i))
        )
        for i, partition, offset in positions.moved()
    ]


def write_ended(senders: frozenset[int]) -> str:
    """A set of subtasks as metadata: a bit for each, in hexadecimal."""
    return f"{_PREFIX}{sum(1 << sender for sender in senders):x}" if senders else ""


def read_ended(metadata: str | None) -> frozenset[int]:
    """What `write_ended` wrote."""
    if not metadata or not metadata.startswith(_PREFIX):
        return frozenset()
    bits = int(metadata.removeprefix(_PREFIX), 16)
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)
