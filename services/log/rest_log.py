"""The log of a cluster, read by its REST API: an EventLog for a machine that does not reach Kafka.

Events come as JSON from `GET /api/v1/events`, and are the same as in Kafka, except that the server replaces secrets in
texts by `***`. Nothing can be appended.
"""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from ...infra.redaction import redacted
from ...infra.redirects import NoRedirects
from ...infra.tls import client_context
from ...schemas.catalog import EVENTS
from ...schemas.event import Event, Record
from ...schemas.types import Header
from ..configuration import Configuration
from ..configuration.options.rest import REST_TLS_CA, REST_TOKEN_FILE, REST_URL
from ..configuration.secret_file import read_secret
from ..core.leadership import LeadershipState
from .event_log import Concerns, LogTruncated, LogUnavailable, OnUnreadable, Tail

_TIMEOUT_S = 40.0
_PAGE = 1_000
_POLL_S = 0.5
PATIENCE_S = 60.0
"""A reader that has had an answer waits so long for the next one: the server may be restarted."""
_NOT_ALLOWED = frozenset({401, 403})


class RequestRefused(Exception):
    """The server refuses a request; the message is its one sentence."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class RestConnection:
    """Sends requests to one server. Raises LogUnavailable if it does not answer, or is not ready."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises ConfigurationError if the file with the token can't be read, UnusableTlsFile for that of the
        authorities."""
        self.url = configuration.get(REST_URL).rstrip("/")
        # The token is for this server only.
        handlers: list[Any] = [NoRedirects]
        if self.url.startswith("https:"):
            handlers.append(
                urllib.request.HTTPSHandler(context=client_context(configuration.get(REST_TLS_CA)))
            )
        self._opener = urllib.request.build_opener(*handlers)
        token = read_secret(configuration, REST_TOKEN_FILE, "token")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token.decode('latin-1')}"}

    def get(self, path: str, query: Mapping[str, object] | None = None) -> tuple[Any, int]:
        """Returns the answer and the offset that it is true at. Raises RequestRefused."""
        return self.send("GET", f"{path}?{urllib.parse.urlencode(query or {})}")

    def send(
        self, method: str, path: str, body: object = None, timeout_s: float = _TIMEOUT_S
    ) -> tuple[Any, int]:
        """Like `get`, for any request."""
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json", timeout_s)

    def upload(self, path: str, name: str, content: bytes) -> Any:
        """Sends a file as a browser's form does (RFC 7578), and returns the answer. Raises RequestRefused."""
        boundary = secrets.token_hex(16)
        # Names are escaped as in the HTML standard, "multipart form data".
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{quoted}"\r\n\r\n'
        data = b"".join((head.encode(), content, f"\r\n--{boundary}--\r\n".encode()))
        return self._send("POST", path, data, f"multipart/form-data; boundary={boundary}", _TIMEOUT_S)[0]

    def _send(
        self, method: str, path: str, data: bytes | None, content_type: str, timeout_s: float
    ) -> tuple[Any, int]:
        headers = {**self._headers, "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return json.load(answer), int(answer.headers.get("Tailrace-Offset", -1))
        except urllib.error.HTTPError as error:
            message = self._read_message(error)
            if error.code in (429, 503):
                raise LogUnavailable(
                    f"the REST server {redacted(self.url)} is not ready: {message}"
                ) from None
            raise RequestRefused(error.code, message) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise LogUnavailable(
                    f"the certificate of the REST server {redacted(self.url)} is not accepted: "
                    f"{reason.verify_message}; check the certificate, and the authority that --rest-ca names"
                ) from None
            raise LogUnavailable(
                f"the REST server {redacted(self.url)} does not answer: {reason or type(error).__name__}; check "
                "--rest, and that a jobmanager or `tailrace gateway` runs there"
            ) from None

    def _read_message(self, error: urllib.error.HTTPError) -> str:
        try:
            return str(json.load(error)["errors"][0])[:500]
        except (ValueError, LookupError, TypeError, OSError):
            return f"status {error.code}: {redacted(self.url)} is no REST server of tailrace"


class RestEventLog:
    """The log behind a REST server. Who may not read it gets RequestRefused."""

    def __init__(self, connection: RestConnection) -> None:
        self._connection = connection

    @property
    def topic(self) -> str:
        return f"the log at {redacted(self._connection.url)}"

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> NoReturn:
        raise LogUnavailable(f"{self.topic} is read by REST: nothing can be appended to it")

    def follow(self, leadership: LeadershipState) -> None:
        """Has no effect: this log is not written."""

    def end(self) -> int:
        return self._get("/v1/overview", {})[1] + 1

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> Tail:
        del on_unreadable
        first = self.read_page(None, 1)[0]
        if first and start < first[0].offset and self._is_truncated(start):
            raise LogTruncated(self.topic, start, first[0].offset)
        return _RestTail(self, start, concerns)

    def read_page(self, start: int | None, limit: int = _PAGE) -> tuple[list[Record], int]:
        """Returns events from an offset on (None: from the first one), and the offset to continue from."""
        query: dict[str, object] = {"limit": limit} if start is None else {"from": start, "limit": limit}
        try:
            page, _ = self._connection.get("/api/v1/events", query)
        except RequestRefused as error:
            # The offset after the end has no events yet.
            if error.status == 404 and start is not None:
                return [], start
            raise _to_reading_error(error) from None
        return [to_record(event) for event in page["events"]], page["next"]

    def close(self) -> None:
        """Has no effect: each request has its own connection."""

    def _is_truncated(self, start: int) -> bool:
        try:
            self._connection.get("/api/v1/events", {"from": start, "limit": 1})
        except RequestRefused:
            return True
        return False

    def _get(self, path: str, query: Mapping[str, object]) -> tuple[Any, int]:
        try:
            return self._connection.get(path, query)
        except RequestRefused as error:
            raise _to_reading_error(error) from None


def _to_reading_error(error: RequestRefused) -> Exception:
    return error if error.status in _NOT_ALLOWED else LogUnavailable(str(error))


class _RestTail:
    def __init__(self, log: RestEventLog, start: int, concerns: Concerns | None) -> None:
        self._answered_at: float | None = None
        self._log = log
        self.position = start
        self.bytes_read = 0
        self._concerns = concerns

    def poll(self, timeout_s: float) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while True:
            records, following = self._read_page()
            is_current = following <= self.position
            self.position = max(self.position, following)
            if self._concerns is not None:
                wanted = self._concerns
                records = [each for each in records if wanted(each.header.sender, each.header.recipient)]
            left = deadline - time.monotonic()
            if records or left <= 0:
                return records
            if is_current:
                time.sleep(min(left, _POLL_S))

    def _read_page(self) -> tuple[list[Record], int]:
        try:
            page = self._log.read_page(self.position)
        except LogUnavailable:
            if self._answered_at is None or time.monotonic() > self._answered_at + PATIENCE_S:
                raise
            return [], self.position
        self._answered_at = time.monotonic()
        return page

    def close(self) -> None:
        pass


def to_record(event: Mapping[str, Any]) -> Record:
    """Returns the event of an element of /api/v1/events. Raises LogUnavailable for one of another release."""
    try:
        kind = EVENTS[f"tailrace.{event['type']}"]
        header = msgspec.convert(event["header"], Header)
        return Record(event["offset"], header, msgspec.convert(event["fields"], kind, str_keys=True))
    except (LookupError, msgspec.ValidationError) as error:
        raise LogUnavailable(
            f"the event at offset {event.get('offset')} can't be read: {error}; use the release of the REST server"
        ) from None
