"""Records of the log that are not decoded, and the tail that decodes them.

Every way to read a log gives raw records: Kafka, the log in memory, a relay. One class decodes them, so that all
readers skip, refuse and report the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from ...schemas.event import Record
from .codec import Codec, Undecodable
from .event_log import SKIPPED, Concerns, OnUnreadable, Unreadable


class RawRecord(msgspec.Struct, frozen=True, array_like=True, tag="R"):
    """A record of the log."""

    offset: int
    addresses: tuple[str, str] | None
    """Sender and recipient from the message's headers; None if a foreign writer omitted them, or if they were not
    read."""
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
            except Undecodable as reason:
                self._report(raw, reason)
                continue
            header = event.header
            if concerns is None or raw.addresses is not None or concerns(header.sender, header.recipient):
                records.append(Record(raw.offset, header, event.body))
        return records

    def _report(self, raw: RawRecord, reason: Undecodable) -> None:
        if self._on_unreadable is not None:
            self._on_unreadable(
                Unreadable(
                    self._topic, 0, raw.offset, str(reason), raw.key, raw.value, reason.header, reason.release
                )
            )

    def close(self) -> None:
        self._source.close()
