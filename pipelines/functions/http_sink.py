"""Requests with batches of records to an HTTP server, as a function that async_map calls for each record.

A record waits for the answer to the request with its batch; until then it is state of the operator, so each record is
sent at least once. A batch is sent when it is full, or some time after its first record. If its request fails, its
records are sent again in later batches, as the retry strategy of the operator says.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from ...infra import threads
from .async_function import AsyncFunction
from .context import RuntimeContext

Body = Callable[[list[Any]], bytes]
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of requests that may succeed later."""


class HttpStatusError(Exception):
    """The server has refused a request."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, HttpStatusError):
        return error.status in _TRANSIENT
    return isinstance(error, (OSError, http.client.HTTPException))


class HttpRequests(AsyncFunction[Any, Any]):
    """Sends records, and emits nothing."""

    def __init__(
        self,
        url: str,
        method: str,
        headers: Mapping[str, str],
        header_files: Mapping[str, str],
        body: Body,
        *,
        batch_size: int,
        linger_s: float,
        requests: int,
        timeout_s: float,
    ) -> None:
        """`header_files`: name -> file, whose first line is the value. `requests`: the number at a time."""
        self._url = url
        self._method = method
        self._headers = headers
        self._header_files = header_files
        self._body = body
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._requests = requests
        self._timeout_s = timeout_s

    async def open(self, context: RuntimeContext) -> None:
        self._pool = threads.Pool(self._requests, "http sink")
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._secrets = {name: _first_line(file) for name, file in self._header_files.items()}
        self._sent = context.metrics.counter("httpRequests")
        self._batch: list[Any] = []
        self._answer: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """The batches that are sent."""

    async def async_invoke(self, value: Any) -> None:
        if self._answer is None:
            self._answer = asyncio.get_running_loop().create_future()
            linger = asyncio.get_running_loop().call_later(self._linger_s, self._send)
            self._answer.add_done_callback(lambda _: linger.cancel())
        answer = self._answer
        self._batch.append(value)
        if len(self._batch) >= self._batch_size:
            self._send()
        # A record that is canceled, because its time is over, must not cancel the others.
        await asyncio.shield(answer)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self) -> None:
        """Sends the batch, unless it is empty."""
        batch, self._batch = self._batch, []
        answer, self._answer = self._answer, None
        if batch and answer is not None:
            task = asyncio.get_running_loop().create_task(self._request(batch, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _request(self, batch: list[Any], answer: asyncio.Future[None]) -> None:
        self._sent.inc()
        error = await asyncio.get_running_loop().run_in_executor(self._pool, self._outcome, batch)
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
            answer.exception()  # nobody may wait for it any more

    def _outcome(self, batch: list[Any]) -> Exception | None:
        """Sends a request, in a thread. Returns what went wrong: one that a thread of a pool raises ends the
        process."""
        try:
            headers = {"Content-Type": "application/json", **self._headers, **self._secrets}
            request = urllib.request.Request(
                self._url, data=self._body(batch), headers=headers, method=self._method
            )
            with self._opener.open(request, timeout=self._timeout_s) as response:
                response.read()
        except urllib.error.HTTPError as error:
            error.close()
            return HttpStatusError(f"{self._name} answers {error.code} {error.reason}", error.code)
        except urllib.error.URLError as error:
            return ConnectionError(f"{self._name} cannot be reached: {error.reason}")
        except Exception as error:
            return error
        return None

    @property
    def _name(self) -> str:
        """The request for messages, without its query, which may have a secret."""
        parts = urlsplit(self._url)
        return f"{self._method} {parts.scheme}://{parts.netloc}{parts.path}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, without its records."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def to_json(records: Sequence[Any]) -> bytes:
    """Returns a JSON array; classes with fields become objects."""
    return msgspec.json.encode([r._asdict() if hasattr(r, "_asdict") else r for r in records])


def discard(record: object) -> None:
    """Ends a stream that has no records."""
    del record


def _first_line(file: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the file {file} of a header cannot be read: {error}") from None
    if not lines or not lines[0].strip():
        raise ValueError(f"the file {file} of a header has no value in its first line")
    return lines[0].strip()
