"""A reader of the log that prefers a relay, and reads the log itself while it has none.

Its position is an offset of the log in both cases, so it may change at any time: what it has already is skipped. The
log is the truth, and a relay is left

- if it is silent for `silence_s`: it sends its progress also if the log does not grow;
- if it does not move for `stall_s` although the log has more: the end of the log is requested from Kafka every
  `probe_s`, and the reader's own events are in it;
- if it has not reached the end that was requested `probe_s` ago;
- if it passes over an event that the reader itself has appended.

Meanwhile it tries the relay again, first after `retry_s`, and then more and more rarely.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Final, NamedTuple, Protocol

from ...infra import threads
from ...infra.logging_setup import logger
from ..log.event_log import AddressFilter, LogUnavailable
from ..log.raw_record import RawRecord, RawTail
from .connection import RelayConnection, RelayLost
from .protocol import Message, Progress

_log = logger(__name__)
_PREFETCHED: Final = 200
"""Messages that the Kafka client fetches ahead: the reader may leave it for a relay at any time."""
_OPEN_TIMEOUT_S: Final = 5.0


class RelayTimeouts(NamedTuple):
    """In seconds; see the head of the module."""

    connect_s: float = 2.0
    silence_s: float = 6.0
    stall_s: float = 3.0
    probe_s: float = 20.0
    retry_s: float = 1.0
    longest_retry_s: float = 30.0


class ProbedLog(Protocol):
    """The log that is read without a relay."""

    @property
    def topic(self) -> str:
        """As in EventLog."""
        ...

    def raw_tail(
        self, start: int, *, concerns: AddressFilter, prefetched: int, timeout_s: float | None = None
    ) -> RawTail:
        """As KafkaEventLog.raw_tail."""
        ...

    def probe_end(self, timeout_s: float) -> Future[int]:
        """As KafkaEventLog.probe_end."""
        ...


Connect = Callable[[str, int], RelayConnection]
"""(host:port of a relay, first offset) -> a subscription; it blocks. Raises RelayLost."""


class RelayedTail:
    """A RawTail. Only `note_appended` is thread-safe.

    `find_relay` returns host:port of a relay, or None if none is known. Raises LogTruncated, LogUnavailable.
    """

    def __init__(
        self,
        log: ProbedLog,
        start: int,
        concerns: AddressFilter,
        find_relay: Callable[[], str | None],
        connect: Connect,
        timeouts: RelayTimeouts,
    ) -> None:
        self._raw_log = log
        self._concerns = concerns
        self._find_relay = find_relay
        self._connect = connect
        self._timeouts = timeouts
        self._position = start
        self._bytes_read = 0
        self._direct: RawTail | None = None
        self._relay: RelayConnection | None = None
        self._attempt: Future[RelayConnection] | None = None
        self._tried = ""
        """The address of the last attempt."""
        self._retry_at = 0.0
        self._failures = 0
        """Consecutive failures of the relay."""
        self._lock = threading.Lock()
        self._own: set[int] = set()
        """The offsets of own events that the relay has to send."""
        self._target = 0
        """The log has at least the offsets below it."""
        self._received_at = self._moved_at = self._joined_at = 0.0
        self._probe_at = 0.0
        self._probe: Future[int] | None = None
        self._probed_end = 0
        self._try_relay()
        if self._attempt is None:
            self._direct = log.raw_tail(start, concerns=concerns, prefetched=_PREFETCHED)

    @property
    def position(self) -> int:
        return self._position

    @property
    def bytes_read(self) -> int:
        return self._bytes_read + (0 if self._direct is None else self._direct.bytes_read)

    @property
    def relay(self) -> str | None:
        """host:port of the relay that it reads from; None: it reads the log."""
        return None if self._relay is None else self._relay.address

    def note_appended(self, offsets: Sequence[int]) -> None:
        """Notes that the log has own events at these offsets. Thread-safe."""
        with self._lock:
            if self._relay is not None and offsets and self._position <= offsets[0]:
                self._own.update(offsets)
                self._expect(offsets[-1] + 1)

    def poll(self, timeout_s: float) -> list[RawRecord]:
        self._adopt_relay()
        if self._relay is not None:
            return self._poll_relay(self._relay, timeout_s)
        self._try_relay()
        if self._attempt is not None and not self._failures:
            # Reading the log now would cost what the relay saves.
            wait([self._attempt], timeout_s)
            return []
        if self._direct is None and not self._open_direct():
            time.sleep(timeout_s)
            return []
        assert self._direct is not None
        records = self._direct.poll(timeout_s)
        self._position = self._direct.position
        return records

    def close(self) -> None:
        if self._attempt is not None:
            self._attempt.add_done_callback(_close_result)
        if self._relay is not None:
            self._relay.close()
        self._close_direct()

    def _poll_relay(self, relay: RelayConnection, timeout_s: float) -> list[RawRecord]:
        records: list[RawRecord] = []
        try:
            messages = relay.poll(timeout_s)
            with self._lock:
                self._take(messages, records)
                self._check_progress(bool(messages))
        except RelayLost as error:
            self._leave_relay(str(error))
        return records

    def _take(self, messages: Sequence[Message], records: list[RawRecord]) -> None:
        before = self._position
        for message in messages:
            match message:
                case RawRecord(offset=offset):
                    if offset < self._position:
                        # It was read from the log while the relay was being connected.
                        continue
                    self._own.discard(offset)
                    self._advance(offset)
                    self._position = offset + 1
                    self._bytes_read += len(message.value or b"")
                    if message.addresses is None or self._concerns(*message.addresses):
                        records.append(message)
                case Progress(position=position):
                    self._advance(position)
                    self._position = max(self._position, position)
                case _:
                    raise RelayLost(f"the relay sends {type(message).__name__} after its subscription")
        if self._position > before:
            self._moved_at = time.monotonic()

    def _advance(self, position: int) -> None:
        """Checks that no own event lies below `position`."""
        if self._own and (first := min(self._own)) < position:
            raise RelayLost(f"the relay does not send the own event at offset {first}: it is faulty")

    def _check_progress(self, is_heard: bool) -> None:
        now, timeouts = time.monotonic(), self._timeouts
        if is_heard:
            self._received_at = now
        elif now - self._received_at > timeouts.silence_s:
            raise RelayLost(f"the relay is silent for {timeouts.silence_s:g} s")
        if self._probe is None and now >= self._probe_at:
            self._probe_at = now + timeouts.probe_s * random.uniform(0.9, 1.1)
            self._probe = self._raw_log.probe_end(timeouts.probe_s / 2)
        elif self._probe is not None and self._probe.done():
            # Kafka may not answer; then nobody knows more than the relay.
            end = self._probe.result() if self._probe.exception() is None else 0
            self._probe = None
            if self._position < self._probed_end:
                raise RelayLost(f"the relay is at offset {self._position}, far behind {self._probed_end}")
            self._probed_end = end
            self._expect(end)
        if self._position < self._target and now - self._moved_at > timeouts.stall_s:
            raise RelayLost(f"the relay stays at offset {self._position}, but the log has {self._target}")

    def _expect(self, end: int) -> None:
        if self._target <= self._position:
            # It had everything until now.
            self._moved_at = time.monotonic()
        self._target = max(self._target, end)

    def _leave_relay(self, reason: str) -> None:
        now = time.monotonic()
        with self._lock:
            relay, self._relay = self._relay, None
        assert relay is not None
        relay.close()
        if now - self._joined_at > self._timeouts.longest_retry_s:
            self._failures = 0
        self._delay_retry(now)
        _log.warning("reads the log without a relay", relay=relay.address, reason=reason, at=self._position)

    def _delay_retry(self, now: float) -> None:
        delay_s = min(self._timeouts.longest_retry_s, self._timeouts.retry_s * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._retry_at = now + delay_s * random.uniform(0.5, 1.0)

    def _try_relay(self) -> None:
        """Starts an attempt if a relay is known and none was tried for long enough."""
        if self._attempt is not None:
            return
        address = self._find_relay()
        if address is None or (address == self._tried and time.monotonic() < self._retry_at):
            return
        self._tried = address
        attempt: Future[RelayConnection] = Future()
        self._attempt = attempt
        start = self._position

        def run() -> None:
            try:
                attempt.set_result(self._connect(address, start))
            except RelayLost as error:
                attempt.set_exception(error)

        threads.Thread(target=run, name="relay attempt").start()

    def _adopt_relay(self) -> None:
        attempt = self._attempt
        if attempt is None or not attempt.done():
            return
        self._attempt, now = None, time.monotonic()
        error = attempt.exception()
        if error is not None:
            if not self._failures:
                _log.warning("reads the log without a relay", reason=str(error), at=self._position)
            self._delay_retry(now)
            return
        with self._lock:
            self._relay = attempt.result()
            self._own.clear()
            self._target = self._probed_end = 0
            self._received_at = self._moved_at = self._joined_at = now
            self._probe, self._probe_at = None, now + self._timeouts.probe_s * random.uniform(0.5, 1.0)
        self._close_direct()
        _log.info("reads the log from a relay", relay=self._relay.address, at=self._position)

    def _open_direct(self) -> bool:
        try:
            self._direct = self._raw_log.raw_tail(
                self._position, concerns=self._concerns, prefetched=_PREFETCHED, timeout_s=_OPEN_TIMEOUT_S
            )
        except LogUnavailable as error:
            # Kafka will come back: a reader of the log waits for it as well.
            _log.warning("reading is interrupted; retries", topic=self._raw_log.topic, error=str(error))
            return False
        return True

    def _close_direct(self) -> None:
        if self._direct is not None:
            self._bytes_read += self._direct.bytes_read
            self._direct.close()
            self._direct = None


def _close_result(attempt: Future[RelayConnection]) -> None:
    if attempt.exception() is None:
        attempt.result().close()
