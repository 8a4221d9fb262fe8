"""The statistics of librdkafka's clients in this process, by the role of the client.

A user switches them on with the property `statistics.interval.ms`. librdkafka then queues a JSON document per interval,
which a client takes when it is polled. Only clients with a role get them: in a client that nobody polls, the documents
would fill the memory. A producer that is idle for long registers itself, and is polled here.

Several clients of one role are one: counters and queues are added, times are the largest. What a closed client has
counted stays in the sum, so counters never fall.

Fields: https://github.com/confluentinc/librdkafka/blob/master/STATISTICS.md
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from . import threads

INTERVAL_PROPERTY: Final = "statistics.interval.ms"
_SERVE_S: Final = 1.0
_EXPIRY_INTERVALS: Final = 3
_MOST_SILENT: Final = 256
_MILLISECOND_S: Final = 1e-3
_MICROSECOND_S: Final = 1e-6


class ClientRole(StrEnum):
    """What a client of a service does."""

    LOG_READER = "log-reader"
    LOG_WRITER = "log-writer"
    HEARTBEAT_READER = "heartbeat-reader"
    HEARTBEAT_WRITER = "heartbeat-writer"
    SUBMISSIONS_READER = "submissions-reader"
    ANSWERS_WRITER = "answers-writer"


class ClientStatistics(msgspec.Struct, frozen=True):
    """The statistics of the clients of one role. The first four count since the process started."""

    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    errors: int = 0
    """Requests that failed or were not answered in time."""
    queued_messages: int = 0
    """Messages that a producer has not sent, or that a consumer has fetched and not returned yet."""
    rtt_average_s: float = 0.0
    """The average time to the answer of a request, in the last interval."""
    rtt_p99_s: float = 0.0
    throttle_s: float = 0.0
    """The longest time for which a broker made the client wait, in the last interval."""
    lag: int = 0
    """Messages after the position of a consumer."""

    def counters(self) -> ClientStatistics:
        """Returns what stays when a client is closed."""
        return ClientStatistics(self.requests, self.bytes_sent, self.bytes_received, self.errors)

    def add(self, other: ClientStatistics) -> ClientStatistics:
        """Returns the statistics of both as one client."""
        return ClientStatistics(
            self.requests + other.requests,
            self.bytes_sent + other.bytes_sent,
            self.bytes_received + other.bytes_received,
            self.errors + other.errors,
            self.queued_messages + other.queued_messages,
            max(self.rtt_average_s, other.rtt_average_s),
            max(self.rtt_p99_s, other.rtt_p99_s),
            max(self.throttle_s, other.throttle_s),
            self.lag + other.lag,
        )


def parse_statistics(document: str | bytes) -> tuple[str, ClientStatistics]:
    """Returns the name of a client and its statistics from librdkafka's JSON. Raises msgspec.DecodeError."""
    found = msgspec.json.decode(document)
    brokers = list(_members(found, "brokers"))
    partitions = [
        partition
        for topic in _members(found, "topics")
        for partition in _members(topic, "partitions")
        # librdkafka's own partition of messages that have none yet.
        if partition.get("partition", -1) >= 0
    ]
    return str(found.get("name", "")), ClientStatistics(
        requests=found.get("tx", 0),
        bytes_sent=found.get("tx_bytes", 0),
        bytes_received=found.get("rx_bytes", 0),
        errors=sum(
            broker.get(name, 0) for broker in brokers for name in ("txerrs", "rxerrs", "req_timeouts")
        ),
        queued_messages=found.get("msg_cnt", 0) + sum(each.get("fetchq_cnt", 0) for each in partitions),
        rtt_average_s=_largest(brokers, "rtt", "avg") * _MICROSECOND_S,
        rtt_p99_s=_largest(brokers, "rtt", "p99") * _MICROSECOND_S,
        throttle_s=_largest(brokers, "throttle", "max") * _MILLISECOND_S,
        lag=sum(max(0, each.get("consumer_lag", 0)) for each in partitions),
    )


class StatisticsRegistry:
    """The last statistics of all clients. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._live: dict[tuple[ClientRole, str], tuple[float, ClientStatistics]] = {}
        """Role and name of a client -> when its next statistics are overdue, and the last ones."""
        self._silent: dict[tuple[ClientRole, str], ClientStatistics] = {}
        """The counters of clients that are closed, or hang: they may report again."""
        self._closed: dict[ClientRole, ClientStatistics] = {}
        """The counters of older ones."""
        self._idle: weakref.WeakSet[Any] = weakref.WeakSet()
        self._thread: threads.Thread | None = None

    def settings(self, properties: Mapping[str, str], role: ClientRole) -> dict[str, Any]:
        """Returns the settings with which a client reports its statistics here; none if they are off."""
        text = properties.get(INTERVAL_PROPERTY, "0")
        if not text.isdecimal() or int(text) == 0:
            # librdkafka refuses what is no number.
            return {} if text == "0" else {INTERVAL_PROPERTY: text}
        interval_s = int(text) * _MILLISECOND_S
        return {
            INTERVAL_PROPERTY: int(text),
            "stats_cb": lambda document: self._note(role, interval_s, document),
        }

    def read(self) -> Mapping[ClientRole, ClientStatistics]:
        """Returns the statistics of all roles that have reported."""
        now = self._clock()
        with self._lock:
            for key in [key for key, (overdue, _) in self._live.items() if now > overdue]:
                self._silent[key] = self._live.pop(key)[1].counters()
            while len(self._silent) > _MOST_SILENT:
                role, name = next(iter(self._silent))
                self._closed[role] = self._closed.get(role, ClientStatistics()).add(
                    self._silent.pop((role, name))
                )
            found = dict(self._closed)
            for (role, _), last in (
                *self._silent.items(),
                *((key, each[1]) for key, each in self._live.items()),
            ):
                found[role] = found.get(role, ClientStatistics()).add(last)
        return found

    @property
    def remembered(self) -> int:
        """The number of clients that it remembers by name; it is bounded."""
        return len(self._live) + len(self._silent)

    def serve(self, client: Any) -> None:
        """Calls `client.serve_statistics()` each second while the client exists: it may not be polled otherwise."""
        with self._lock:
            self._idle.add(client)
            if self._thread is None:
                self._thread = threads.Thread(target=self._serve, name="kafka statistics")
                self._thread.start()

    def _serve(self) -> None:
        while True:
            time.sleep(_SERVE_S)
            for client in list(self._idle):
                client.serve_statistics()

    def _note(self, role: ClientRole, interval_s: float, document: str) -> None:
        name, statistics = parse_statistics(document)
        overdue = self._clock() + _EXPIRY_INTERVALS * interval_s + _SERVE_S
        with self._lock:
            self._silent.pop((role, name), None)
            self._live[role, name] = overdue, statistics


STATISTICS: Final = StatisticsRegistry()
"""Those of this process."""


def _members(of: Any, name: str) -> list[Any]:
    return list(of.get(name, {}).values())


def _largest(brokers: list[Any], window: str, value: str) -> float:
    return float(max((broker.get(window, {}).get(value, 0) for broker in brokers), default=0))
