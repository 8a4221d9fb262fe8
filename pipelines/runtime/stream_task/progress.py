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
_END: Final = "end="
SETTLED: Final = "settled"
"""Metadata of a subtask that has settled that it reads nothing, at a partition that is not its own."""


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
    topics: Sequence[str],
    positions: InputPositions,
    gate: InputGate | None,
    ends: Mapping[tuple[int, int], int] | None = None,
) -> list[ConsumedOffset]:
    """What is to be committed of the positions that have moved; `ends` are those of a bounded Kafka source."""

    def metadata(input_index: int, partition: int) -> str:
        if gate is not None:
            return write_ended(gate.ended_senders(input_index))
        return "" if ends is None else write_end(ends[input_index, partition])

    return [
        ConsumedOffset(topics[i], partition, offset, metadata(i, partition))
        for i, partition, offset in positions.moved()
    ]


def write_end(end: int) -> str:
    """The end of a bounded partition as metadata."""
    return f"{_END}{end}"


def read_end(metadata: str) -> int | None:
    """What `write_end` wrote; None for what it did not."""
    text = metadata.removeprefix(_END)
    return int(text) if metadata.startswith(_END) and text.isdecimal() else None


def write_ended(senders: frozenset[int]) -> str:
    """A set of subtasks as metadata: a bit for each, in hexadecimal."""
    return f"{_PREFIX}{sum(1 << sender for sender in senders):x}" if senders else ""


def read_ended(metadata: str | None) -> frozenset[int]:
    """What `write_ended` wrote."""
    if not metadata or not metadata.startswith(_PREFIX):
        return frozenset()
    bits = int(metadata.removeprefix(_PREFIX), 16)
    return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)
