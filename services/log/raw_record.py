"""Records of the log that are not decoded, and the tail that decodes them.

Every way to read a log gives raw records: Kafka, the log in memory, a relay. One class decodes them, so that all
readers skip, refuse and report the same records.

A reader of some events selects them by the addresses in the keys of Kafka's messages, without decoding the others. So
these addresses must be those of the event. Otherwise it could be hidden from its recipient, or shown to another one,
while masters fold it. No reader folds an event that contradicts the key of its message: it counts as unreadable. An
event without such a key, from a foreign writer or an earlier release, is decoded by all readers.

The addresses are in the key and not in headers because confluent-kafka makes a list of tuples of a message's headers,
which takes more than a tenth of the time that a master needs for an event (docs/notes/event-cost.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from ...schemas.event import Event, Record
from .codec import Codec, Undecodable
from .event_log import SKIPPED, Concerns, OnUnreadable, Unreadable

_LONGEST_SHOWN = 80


_SEPARATOR = ">"


class ContradictoryKey(Undecodable):
    """The addresses in the message's key are not those of the event in it."""

    def __init__(self, addresses: tuple[str, str], event: Event) -> None:
        header = event.header
        super().__init__(
            f"{event.body.AVRO_NAME} is from {_shown(header.sender)} to {_shown(header.recipient)}, but the key of its "
            f"message says from {_shown(addresses[0])} to {_shown(addresses[1])}"
        )


class RawRecord(msgspec.Struct, frozen=True, array_like=True, tag="R"):
    """A record of the log."""

    offset: int
    addresses: tuple[str, str] | None
    """Sender and recipient from the message's key; None if it has another key, or none."""
    key: bytes | None
    """The message's key if `addresses` do not have its content."""
    value: bytes | None


def key_of(event: Event) -> bytes | None:
    """Returns the key of the event's message in Kafka. None for a sender that cannot be in a key; every reader decodes
    its events."""
    sender = event.header.sender
    return None if _SEPARATOR in sender else f"{sender}{_SEPARATOR}{event.header.recipient}".encode()


def addresses_in(key: object) -> tuple[str, str] | None:
    """Returns sender and recipient from the key of a message; None for the key of a foreign writer, or none."""
    if not isinstance(key, bytes):
        return None
    sender, separator, recipient = key.decode("utf-8", "replace").partition(_SEPARATOR)
    return (sender, recipient) if separator else None


class RawTail(Protocol):
    """Like Tail, for raw records. Records whose addresses do not concern the reader are skipped; those without
    addresses are returned."""

    @property
    def position(self) -> int:
        """As in Tail."""
        ...

    @property
    def bytes_read(self) -> int:
        """As in Tail."""
        ...

    def poll(self, timeout_s: float) -> list[RawRecord]:
        """Returns the available records, in order; waits up to `timeout_s` seconds for the first. Raises
        LogUnavailable, LogTruncated."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class DecodingTail:
    """A Tail of the events of raw records. `skipped` returns the offsets that it reports as unreadable."""

    def __init__(
        self,
        source: RawTail,
        codec: Codec,
        topic: str,
        skipped: Callable[[], Collection[int]],
        concerns: Concerns | None,
        on_unreadable: OnUnreadable | None,
    ) -> None:
        self._source = source
        self._codec = codec
        self._topic = topic
        self._skipped = skipped
        self._concerns = concerns
        self._on_unreadable = on_unreadable

    @property
    def position(self) -> int:
        return self._source.position

    @property
    def bytes_read(self) -> int:
        return self._source.bytes_read

    def poll(self, timeout_s: float) -> list[Record]:
        records: list[Record] = []
        concerns, skipped, decode = self._concerns, self._skipped(), self._codec.decode
        for raw in self._source.poll(timeout_s):
            try:
                if raw.offset in skipped:
                    raise Undecodable(SKIPPED)
                event = decode(raw.value)
                header, addresses = event.header, raw.addresses
                if addresses is not None and addresses != (header.sender, header.recipient):
                    raise ContradictoryKey(addresses, event)
            except Undecodable as reason:
                self._report(raw, reason)
                continue
            if concerns is None or addresses is not None or concerns(header.sender, header.recipient):
                records.append(Record(raw.offset, header, event.body))
        return records

    def _report(self, raw: RawRecord, reason: Undecodable) -> None:
        if self._on_unreadable is not None:
            self._on_unreadable(
                Unreadable(
                    self._topic,
                    0,
                    raw.offset,
                    str(reason),
                    raw.key if raw.addresses is None else _SEPARATOR.join(raw.addresses).encode(),
                    raw.value,
                    reason.header,
                    reason.release,
                    isinstance(reason, ContradictoryKey),
                )
            )

    def close(self) -> None:
        self._source.close()


def _shown(address: str) -> str:
    return repr(address[:_LONGEST_SHOWN])
