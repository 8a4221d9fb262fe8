"""A progress entry: the message of a changelog with the progress of its subtask.

Every transaction of a subtask ends with one, so output, changes of state and positions are committed together, and the
last committed entry is at the end of the changelog. An entry is complete: a new attempt needs no older one. It is the
only source of a subtask's progress. The offsets of its consumer group are a copy for tools (commit_followup.py).

An entry is MessagePack, its version first. A release that adds a field adds it at the end, with a default; one that
changes a meaning raises the version, and older releases refuse the entry.
"""

from __future__ import annotations

from typing import Final

import msgspec

KEY: Final = b"~progress"
"""In place of an operator id."""
VERSION: Final = 1


class InputProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of one input: a channel, or a topic of a Kafka source."""

    topic: str
    topic_id: str | None = None
    """Kafka's id of the channel, if known. Empty for a user's topic."""
    positions: dict[int, int] = {}
    """Partition -> the next offset."""
    ends: dict[int, int] = {}
    """Partition -> the end offset of a bounded Kafka source."""
    ended: bytes = b""
    """One bit for each sender that has ended, the lowest first: a sender reports its end once."""
    held: dict[int, list[int]] = {}
    """Partition -> the offsets below its position that are not processed: they were held back for a barrier."""

    @property
    def ended_senders(self) -> frozenset[int]:
        """The subtasks of the sending vertex that have ended."""
        bits = int.from_bytes(self.ended, "little")
        return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)

    def first_unprocessed(self, partition: int) -> int:
        """Returns the offset of a partition below which everything is processed."""
        offsets = [self.positions.get(partition, 0), *self.held.get(partition, [])]
        return min(offsets)


class ProgressEntry(msgspec.Struct, frozen=True, array_like=True):
    """The progress of one subtask at the end of the transaction that has the entry."""

    generation: int
    """The number of rollbacks of the job. Positions of an older generation only define where a newer one may begin."""
    changelog_id: str | None
    """Kafka's id of the changelog when the entry was written: a topic that was created again has another one."""
    changelog_from: int
    """The offset in the changelog at which the generation begins: older messages are ignored."""
    inputs: tuple[InputProgress, ...] = ()
    reset_id: int = -1
    """The last reset of offsets that the positions of a Kafka source include; -1: none."""

    def find_input(self, topic: str) -> InputProgress | None:
        """Returns the input of this topic, or None."""
        return next((input_ for input_ in self.inputs if input_.topic == topic), None)


class _Versioned(msgspec.Struct, frozen=True, array_like=True):
    version: int
    entry: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_versioned = msgspec.msgpack.Decoder(_Versioned)
_entries = msgspec.msgpack.Decoder(ProgressEntry)


def encode_progress(entry: ProgressEntry) -> bytes:
    """Returns the entry as the value of a message."""
    return _encoder.encode((VERSION, entry))


def decode_progress(data: bytes) -> ProgressEntry:
    """Decodes the result of `encode_progress`. Raises ValueError, also for an entry of a later version."""
    try:
        versioned = _versioned.decode(data)
        if versioned.version != VERSION:
            raise ValueError(
                f"a progress entry has version {versioned.version}, and this release reads version {VERSION}:"
                " it was written by another release"
            )
        return _entries.decode(versioned.entry)
    except msgspec.MsgspecError as error:
        raise ValueError(
            f"the changelog holds {len(data)} bytes that are not a progress entry: {error}"
        ) from error


def to_bitmap(senders: frozenset[int]) -> bytes:
    """Returns the bits of InputProgress.ended."""
    bits = sum(1 << sender for sender in senders)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
