"""The relay of a master: it reads the log once, without decoding it, and sends each reader its records.

Two threads share one lock. One reads the log and sends; the other accepts connections, and sends what a slow
connection could not take at once. Readers that begin below the records in memory are served by a third thread, which
reads the log once for all that wait. The relay holds nothing that is not in the log: if it fails, readers read the log.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from ...infra import threads
from ...infra.closing import Closeable
from ...infra.logging_setup import logger
from ...infra.server_socket import listen
from ...infra.tls import ServerTls, UnusableTlsFile
from ..blobs.shared_secret_auth import SharedSecret, Side
from ..configuration.options.blob import BLOB_SECRET_FILE
from ..log.event_log import LogTruncated, LogUnavailable
from ..log.raw_record import RawTail
from .history import HistoryReader
from .protocol import ENDPOINT, Accepted, Greeting, LogName, ProtocolError, Refused, Subscribe, encode
from .router import LINGER_S, MOST_PENDING_BYTES, Router
from .subscriber import Stage, Subscriber

_log = logger(__name__)
_POLL_S: Final = 0.1
_WAIT_S: Final = 0.5
_RETRY_S: Final = 1.0
_SUBSCRIBE_TIMEOUT_S: Final = 10.0
_BACKLOG: Final = 1_000
_MOST_UNSUBSCRIBED: Final = 1_000
"""Each may send LARGEST_REQUEST_BYTES before it has proved anything."""
_PRELOADED: Final = 20_000
"""The offsets before the end of the log that a new relay reads into its memory."""


class RawLog(Protocol):
    """The log that is relayed."""

    def end(self) -> int:
        """As in EventLog."""
        ...

    def raw_tail(self, start: int) -> RawTail:
        """As KafkaEventLog.raw_tail."""
        ...


class RelayLimits(NamedTuple):
    """The limits of one relay."""

    connections: int = 10_000
    memory_bytes: int = 32 << 20
    """Of the last records of the log."""


class RelayServer(Closeable):
    """Listens from its construction, and relays from `start` to `close`. Raises OSError if the address is not
    available."""

    def __init__(
        self,
        log: RawLog,
        name: LogName,
        *,
        host: str = "127.0.0.1",
        ports: Iterable[int] = (0,),
        limits: RelayLimits | None = None,
        secret: SharedSecret | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """Listens on the first free port of `ports`; 0: any. Serves readers that know the `secret`; None: all
        readers."""
        self._raw_log = log
        self._name = name
        self._limits = limits or RelayLimits()
        self._secret = secret
        self._tls = tls
        self._socket = listen(host, ports, _BACKLOG)
        self._socket.setblocking(False)
        self.address: Final = f"{host}:{self._socket.getsockname()[1]}"
        """host:port."""
        self.endpoints: Final[Mapping[str, str]] = {ENDPOINT: self.address}
        """In the form of LeaderElected."""
        self._lock = threading.Lock()
        self._router: Router | None = None
        """None while the log cannot be read; then there are no subscribers either."""
        self._connections: dict[Subscriber, None] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._waker, wakened = socket.socketpair()
        self._wakened = wakened
        self._selector.register(wakened, selectors.EVENT_READ)
        self._closed = threading.Event()
        self._history = HistoryReader(log, self._lock, self._send, self._drop, lambda: self._router)
        self._threads = [
            threads.Thread(target=self._read, name="relay"),
            threads.Thread(target=self._serve, name="relay connections"),
        ]

    def start(self) -> None:
        """Starts to relay; call it once."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Closes all connections; does not wait for Kafka."""
        self._closed.set()
        with suppress(OSError):
            self._waker.send(b"x")
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2 * _WAIT_S)
        self._drop_all("the relay ends")
        self._history.close(2 * _WAIT_S)
        for each in (self._socket, self._waker, self._wakened, self._selector):
            each.close()

    def _read(self) -> None:
        while not self._closed.is_set():
            try:
                self._relay()
            except (LogTruncated, LogUnavailable) as error:
                _log.warning("the relay cannot read the log; retries", error=str(error))
            self._drop_all("the log cannot be read")
            self._closed.wait(_RETRY_S)

    def _relay(self) -> None:
        tail = self._open_tail()
        try:
            router = Router(tail.position, self._limits.memory_bytes, self._send, self._drop)
            with self._lock:
                self._router = router
            while not self._closed.is_set():
                records = tail.poll(LINGER_S if router.has_unsent else _POLL_S)
                with self._lock:
                    router.route(records, tail.position, time.monotonic())
        finally:
            tail.close()

    def _open_tail(self) -> RawTail:
        start = max(0, self._raw_log.end() - _PRELOADED)
        try:
            return self._raw_log.raw_tail(start)
        except LogTruncated as error:
            return self._raw_log.raw_tail(error.first)

    def _serve(self) -> None:
        while not self._closed.is_set():
            for key, events in self._selector.select(_WAIT_S):
                if key.fileobj is self._socket:
                    self._accept()
                elif isinstance(key.data, Subscriber):
                    with self._lock:
                        # Another thread may have dropped it since.
                        if key.data in self._connections:
                            self._on_ready(key.data, events)
            self._end_unsubscribed()

    def _accept(self) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                # For example too many open files.
                _log.warning("the relay cannot accept a connection", error=str(error))
                self._closed.wait(LINGER_S)
            return
        with self._lock:
            if self._is_full():
                # The reader reads the log, and comes again.
                accepted.close()
                return
            try:
                if self._tls is not None:
                    accepted = self._tls.wrap(accepted)
                subscriber = Subscriber(accepted)
            except (OSError, UnusableTlsFile) as error:
                _log.warning("the relay cannot serve a connection", error=str(error))
                accepted.close()
                return
            self._connections[subscriber] = None
            self._selector.register(accepted, selectors.EVENT_READ, subscriber)
            if subscriber.has_handshake:
                self._greet(subscriber)

    def _greet(self, subscriber: Subscriber) -> None:
        subscriber.queue(encode(Greeting(subscriber.challenge)))
        self._send(subscriber)

    def _is_full(self) -> bool:
        count = len(self._connections)
        return (
            self._router is None
            or count >= self._limits.connections
            or (
                count >= _MOST_UNSUBSCRIBED
                and sum(each.stage is Stage.NEW for each in self._connections) >= _MOST_UNSUBSCRIBED
            )
        )

    def _on_ready(self, subscriber: Subscriber, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._send(subscriber)
        if not events & selectors.EVENT_READ or subscriber not in self._connections:
            return
        try:
            if not subscriber.has_handshake:
                if subscriber.handshake():
                    self._greet(subscriber)
                return
            received = subscriber.receive()
        except OSError as error:
            self._drop(subscriber, str(error))
            return
        if received is None:
            return
        if not received:
            self._drop(subscriber, "it has closed the connection")
            return
        try:
            subscriber.received.feed(received)
            for message in subscriber.received.messages():
                if not isinstance(message, Subscribe) or subscriber.stage is not Stage.NEW:
                    raise ProtocolError("this is not a subscription")
                self._subscribe(subscriber, message)
        except ProtocolError as error:
            self._drop(subscriber, str(error))

    def _subscribe(self, subscriber: Subscriber, request: Subscribe) -> None:
        reason = self._find_refusal(subscriber, request)
        if reason is not None:
            _log.warning("the relay refuses a reader", reason=reason)
            subscriber.queue(encode(Refused(reason)))
            subscriber.is_closing = True
            self._send(subscriber)
            return
        proof = (
            b""
            if self._secret is None
            else self._secret.proof(Side.SERVER, subscriber.challenge, request.nonce)
        )
        subscriber.queue(encode(Accepted(proof)))
        subscriber.addresses, subscriber.position = frozenset(request.addresses), request.start
        if self._router is not None and not self._router.join(subscriber, time.monotonic()):
            subscriber.stage = Stage.HISTORY
            self._send(subscriber)
            self._history.add(subscriber)

    def _find_refusal(self, subscriber: Subscriber, request: Subscribe) -> str | None:
        """Returns the reason in one line, or None. Only a reader that knows the secret learns which log it is."""
        if self._secret is not None and not self._secret.is_valid_proof(
            request.proof, Side.CLIENT, subscriber.challenge, request.nonce
        ):
            return f"the relay serves only readers that know its secret: set {BLOB_SECRET_FILE.key}, as its jobmanager"
        if (request.log, request.log_id) != self._name:
            return f"the relay has the log {' '.join(self._name)}, not {request.log} {request.log_id}"
        if request.start < 0 or not request.addresses:
            return "a subscription needs an offset and an address"
        return None

    def _send(self, subscriber: Subscriber) -> None:
        """Sends what the connection takes, the rest once it takes more. Call it with the lock."""
        if subscriber not in self._connections:
            return
        try:
            is_sent = subscriber.flush()
        except OSError as error:
            self._drop(subscriber, str(error))
            return
        if subscriber.is_closing and is_sent:
            self._drop(subscriber, "it was refused")
        elif (
            subscriber.stage is Stage.LIVE
            and subscriber.pending_bytes > MOST_PENDING_BYTES
            and subscriber.pending_count > 1
        ):
            self._drop(subscriber, "it is too slow")
        elif is_sent is not subscriber.was_sent:
            subscriber.was_sent = is_sent
            # The selector's map is changed under the lock, and `select` only looks keys up in it.
            events = selectors.EVENT_READ | (0 if is_sent else selectors.EVENT_WRITE)
            self._selector.modify(subscriber.socket, events, subscriber)

    def _drop(self, subscriber: Subscriber, reason: str) -> None:
        """Ends a connection. Call it with the lock."""
        if self._connections.pop(subscriber, self) is self:
            return
        _log.debug("the relay drops a reader", readers=sorted(subscriber.addresses)[:3], reason=reason)
        if self._router is not None:
            self._router.remove(subscriber)
        self._history.remove(subscriber)
        self._selector.unregister(subscriber.socket)
        subscriber.socket.close()

    def _drop_all(self, reason: str) -> None:
        with self._lock:
            for subscriber in list(self._connections):
                self._drop(subscriber, reason)
            self._router = None

    def _end_unsubscribed(self) -> None:
        now = time.monotonic()
        with self._lock:
            for subscriber in list(self._connections):
                if subscriber.stage is Stage.NEW and now - subscriber.since > _SUBSCRIBE_TIMEOUT_S:
                    self._drop(subscriber, "it has not subscribed")
