"""Which reader gets which record, and when.

A record to or from a reader's address is sent at once. A record to everyone may wait LINGER_S for more of them, because
a thousand sends cost as much as the reading of a hundred records. The order stays that of the log. A reader that does
not take its records is dropped: it continues elsewhere from its offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ...schemas.event import EVERYONE
from ..log.raw_record import RawRecord
from .protocol import KEEPALIVE_S, Progress, encode
from .recent_records import RecentRecords, keys_of
from .subscriber import Stage, Subscriber

LINGER_S: Final = 0.05
PROGRESS_S: Final = 1.0
MOST_PENDING_BYTES: Final = 8 << 20
"""Of one reader, besides a single larger record."""
MOST_TOTAL_BYTES: Final = 256 << 20
"""Of all readers: above it, the reader with the most is dropped."""


class Router:
    """Not thread-safe. `send` flushes a subscriber; `drop` ends it with a reason, and then calls `remove`."""

    def __init__(
        self,
        position: int,
        memory_bytes: int,
        send: Callable[[Subscriber], None],
        drop: Callable[[Subscriber, str], None],
    ) -> None:
        self.position = position
        """The next offset that the relay reads."""
        self.recent: Final = RecentRecords(position, memory_bytes)
        self._send = send
        self._drop = drop
        self._live: dict[Subscriber, None] = {}
        self._by_address: dict[str, list[Subscriber]] = {}
        self._unsent: dict[Subscriber, None] = {}
        self._unsent_since = 0.0
        self._looked_at = 0.0

    @property
    def has_unsent(self) -> bool:
        """Whether frames wait for LINGER_S."""
        return bool(self._unsent)

    def join(self, subscriber: Subscriber, now: float) -> bool:
        """Sends a subscriber its records from its position on, and all later ones; returns False, and does nothing, if
        the first are not in memory any more."""
        if subscriber.position < self.recent.first:
            return False
        for record in self.recent.find(subscriber.addresses, subscriber.position):
            subscriber.queue(encode(record))
        subscriber.stage = Stage.LIVE
        self._live[subscriber] = None
        for address in subscriber.addresses:
            self._by_address.setdefault(address, []).append(subscriber)
        self.send_progress(subscriber, now)
        return True

    def remove(self, subscriber: Subscriber) -> None:
        """Forgets a subscriber."""
        self._unsent.pop(subscriber, None)
        if self._live.pop(subscriber, self) is self:
            return
        for address in subscriber.addresses:
            self._by_address[address].remove(subscriber)
            if not self._by_address[address]:
                del self._by_address[address]

    def route(self, records: Iterable[RawRecord], position: int, now: float) -> None:
        """Sends the next records of the log, which end before `position`."""
        urgent: dict[Subscriber, None] = {}
        for record in records:
            self.recent.add(record)
            direct = self._direct(record)
            targets = self._live if EVERYONE in keys_of(record) else direct
            if not targets:
                continue
            frame = encode(record)
            for subscriber in targets:
                if record.offset >= subscriber.position:
                    subscriber.queue(frame)
                    (urgent if subscriber in direct else self._unsent)[subscriber] = None
        self.position = position
        for subscriber in urgent:
            self._unsent.pop(subscriber, None)
            self._send(subscriber)
        self.flush(now)

    def flush(self, now: float) -> None:
        """Sends what waits for long enough, and progress that is due. Call it every LINGER_S if `has_unsent`."""
        if self._unsent and not self._unsent_since:
            self._unsent_since = now
        if self._unsent_since and now - self._unsent_since >= LINGER_S:
            waiting, self._unsent, self._unsent_since = self._unsent, {}, 0.0
            for subscriber in waiting:
                self._send(subscriber)
        if now - self._looked_at >= PROGRESS_S:
            self._looked_at = now
            for subscriber in list(self._live):
                if (
                    subscriber.progress_sent < self.position
                    or now - subscriber.progress_sent_at >= KEEPALIVE_S
                ):
                    self.send_progress(subscriber, now)
            self._limit_total()

    def send_progress(self, subscriber: Subscriber, now: float) -> None:
        """Sends a subscriber its progress."""
        if subscriber.stage is Stage.LIVE:
            subscriber.position = max(subscriber.position, self.position)
        subscriber.progress_sent, subscriber.progress_sent_at = subscriber.position, now
        subscriber.queue(encode(Progress(subscriber.position)))
        self._unsent.pop(subscriber, None)
        self._send(subscriber)

    def _direct(self, record: RawRecord) -> dict[Subscriber, None]:
        if record.addresses is None:
            return {}
        of = self._by_address
        return dict.fromkeys(each for address in record.addresses for each in of.get(address, ()))

    def _limit_total(self) -> None:
        pending = sorted(self._live, key=lambda each: each.pending_bytes)
        total = sum(each.pending_bytes for each in pending)
        while total > MOST_TOTAL_BYTES and pending:
            most = pending.pop()
            total -= most.pending_bytes
            self._drop(most, "all readers together are too slow")
