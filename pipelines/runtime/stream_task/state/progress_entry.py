"""A progress entry: the message of a changelog that says how far its subtask has come.

Every transaction of a subtask ends with one, so output, changes of state and positions are committed together, and the
last committed entry is at the end of the changelog. An entry is complete: a new attempt needs no older one. Nothing
else says how far a subtask has come. The offsets of its consumer group are a copy for tools (commit_followup.py).

An entry is MessagePack, its version first. A release that adds a field adds it at the end, with a default; one that
changes a meaning raises the version, and older releases refuse the entry.
"""

from __future__ import annotations

from typing import Final

import msgspec

KEY: Final = b"~progress"
"""In the place of an operator id."""
VERSION: Final = 1


class InputProgress(msgspec.Struct, frozen=True, array_like=True):
    """Of one input: a channel, or a topic of a Kafka source."""

    topic: str
    topic_id: str | None = None
    """Kafka's id of the channel, where it is known. Of a user's topic none is written."""
    positions: dict[int, int] = {}
    """Partition -> the next offset."""
    ends: dict[int, int] = {}
    """Partition -> where a bounded Kafka source ends."""
    ended: bytes = b""
    """A bit for each sender that has ended, the lowest first: a sender says so once."""

    @property
    def ended_senders(self) -> frozenset[int]:
        """Subtasks of the sending vertex that send nothing any more."""
        bits = int.from_bytes(self.ended, "little")
        return frozenset(i for i in range(bits.bit_length()) if bits >> i & 1)


class ProgressEntry(msgspec.Struct, frozen=True, array_like=True):
    """Of one subtask, as of the end of the transaction that the entry is in."""

    generation: int
    """How often the job was rolled back. Positions of an older generation only say where a newer one may begin."""
    changelog_id: str | None
    """Kafka's id of the changelog as the writer knew it: one that was made anew has another."""
    changelog_from: int
    """Where the generation begins in the changelog: no older message counts."""
    inputs: tuple[InputProgress, ...] = ()

    def find_input(self, topic: str) -> InputProgress | None:
        """The input that this topic is; None where there is none."""
        return next((each for each in self.inputs if each.topic == topic), None)


class _Versioned(msgspec.Struct, frozen=True, array_like=True):
    version: int
    entry: msgspec.Raw


_encoder = msgspec.msgpack.Encoder()
_versioned = msgspec.msgpack.Decoder(_Versioned)
_entries = msgspec.msgpack.Decoder(ProgressEntry)


def encode_progress(entry: ProgressEntry) -> bytes:
    """The entry as a message's value."""
    return _encoder.encode((VERSION, entry))


def decode_progress(data: bytes) -> ProgressEntry:
    """What `encode` gave. Raises ValueError, also for an entry of a later version."""
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
            f"the changelog holds {len(data)} bytes that are no progress entry: {error}"
        ) from error


def to_bitmap(senders: frozenset[int]) -> bytes:
    """As InputProgress.ended."""
    bits = sum(1 << sender for sender in senders)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
