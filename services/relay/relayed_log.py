"""The log of a process that reads by a relay; it appends to Kafka itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...schemas.event import Event
from ..core.leadership import LeadershipState
from ..log.event_log import AddressFilter, Concerns, EventLog, OnUnreadable, Tail
from ..log.raw_record import RawTail
from .connection import RelayConnection
from .tail import ProbedLog, RelayedTail, RelayTimeouts


class DirectLog(EventLog, ProbedLog, Protocol):
    """The log in Kafka."""

    def decode(self, source: RawTail, concerns: Concerns | None, on_unreadable: OnUnreadable | None) -> Tail:
        """As KafkaEventLog.decode."""
        ...


class RelayedEventLog:
    """An EventLog. Tails with an AddressFilter read by a relay; all others read the log. `find_relay` and `connect`: as
    in RelayedTail."""

    def __init__(
        self,
        log: DirectLog,
        find_relay: Callable[[], str | None],
        connect: Callable[[str, int, frozenset[str]], RelayConnection],
        timeouts: RelayTimeouts | None = None,
    ) -> None:
        self._log = log
        self._find_relay = find_relay
        self._connect = connect
        self._timeouts = timeouts or RelayTimeouts()
        self._tail: RelayedTail | None = None

    @property
    def topic(self) -> str:
        return self._log.topic

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        offsets = self._log.append(events, most_bytes)
        if self._tail is not None:
            self._tail.note_appended(offsets)
        return offsets

    def end(self) -> int:
        return self._log.end()

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        """The last tail that was created by a relay expects the events that `append` appends."""
        if not isinstance(concerns, AddressFilter):
            return self._log.tail(start, concerns=concerns, on_unreadable=on_unreadable)
        addresses = concerns.addresses
        self._tail = RelayedTail(
            self._log,
            start,
            concerns,
            self._find_relay,
            lambda relay, first: self._connect(relay, first, addresses),
            self._timeouts,
        )
        return self._log.decode(self._tail, concerns, on_unreadable)

    def follow(self, leadership: LeadershipState) -> None:
        self._log.follow(leadership)

    def close(self) -> None:
        self._log.close()
