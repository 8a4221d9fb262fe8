"""Records of the log that are not decoded, and the tail that decodes them.

Every way to read a log gives raw records: Kafka, the log in memory, a relay. One class decodes them, so that all
readers skip, refuse and report the same records.

A reader of some events selects them by the addresses in the headers of Kafka's messages, without decoding the others.
So these addresses must be those of the event. Otherwise it could be hidden from its recipient, or shown to another one,
while masters fold it. No reader folds an event whose message headers contradict it: it counts as unreadable. An event
without them, from a foreign writer, is decoded by all readers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from ...schemas.event import Event, Record
from .codec import Codec, Undecodable
from .event_log import SKIPPED, Concerns, OnUnreadable, Unreadable

_LONGEST_SHOWN = 80


class ContradictoryHeaders(Undecodable):
    """The addresses in the message's headers are not those of the event in it."""

    def __init__(self, addresses: tuple[str, str], event: Event) -> None:
        header = event.header
        super().__init__(
            f"{event.body.AVRO_NAME} is from {_shown(header.sender)} to {_shown(header.recipient)}, but the headers of "
            f"its message say from {_shown(addresses[0])} to {_shown(addresses[1])}"
        )


class RawRecord(msgspec.Struct, frozen=True, array_like=True, tag="R"):
    """A record of the log."""

    offset: int
    addresses: tuple[str, str] | None
    """Sender and recipient from the message's headers; None if a foreign writer omitted one of them."""
    key: bytes | None
    value: bytes | None


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
                    raise ContradictoryHeaders(addresses, event)
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
                    raw.key,
                    raw.value,
                    reason.header,
                    reason.release,
                    isinstance(reason, ContradictoryHeaders),
                )
            )

    def close(self) -> None:
        self._source.close()


def _shown(address: str) -> str:
    return repr(address[:_LONGEST_SHOWN])
