"""Work for a request in a process of its own: its messages are the response, as server-sent events.

It is for work that needs the processor for seconds or minutes, and much memory. The process ends with the request: when
it has the result, when the client goes away, or when its time is over. A server runs one process of a kind at a time.

The process gets the request on stdin, pickled, and writes messages to stdout, each a line of JSON.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import resource
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...infra.redaction import redacted
from .errors import BadRequest, NotFound, RestError, Unavailable

_MAX_LINE_BYTES: Final = 64 << 20
_SEND_TIMEOUT_S: Final = 30.0
_NICENESS: Final = 10
_ERRORS: Final = {each.status: each for each in (BadRequest, NotFound, Unavailable)}


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the process. The last one has the result, or the `error` with the status that it would have as an
    answer of its own. A kind of work adds its progress, and the type of its `result`."""

    result: Any = None
    error: str | None = None
    status: int | None = None


class ProcessRunner:
    """Runs processes of one kind. It belongs to one event loop. `work`: what a process does, as a noun."""

    def __init__(
        self, work: str, command: Sequence[str], update_type: type[Update], max_time_s: float, instead: str
    ) -> None:
        """`instead`: what a client may do if the work takes too long, as an imperative."""
        self._work = work
        self._command = command
        self._update_type = update_type
        self._max_time_s = max_time_s
        self._instead = instead
        self._is_busy = False

    async def open(self, request: object) -> Response:
        """Starts a process, and returns the response with its messages. Raises what the process says first, and
        Unavailable."""
        if self._is_busy:
            raise Unavailable(f"The server runs a {self._work} already: try again.", {"Retry-After": "5"})
        self._is_busy = True
        try:
            running = await self._start(pickle.dumps(request))
            try:
                first = await running.read()
                if first.error is not None:
                    raise _ERRORS.get(first.status or 0, RestError)(first.error)
            except BaseException:
                await running.end()
                raise
        except BaseException:
            self._is_busy = False
            raise
        return _UpdateStream(self, running, first)

    def on_end(self) -> None:
        """A process has ended."""
        self._is_busy = False

    async def _start(self, request: bytes) -> _RunningProcess:
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=_MAX_LINE_BYTES, start_new_session=True
        )
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        return _RunningProcess(process, self._work, self._update_type, self._max_time_s, self._instead)


class _RunningProcess:
    def __init__(
        self, process: Process, work: str, update_type: type[Update], max_time_s: float, instead: str
    ) -> None:
        self._process = process
        self._work = work
        self._update_type = update_type
        self._max_time_s = max_time_s
        self._instead = instead
        self._deadline = asyncio.get_running_loop().time() + max_time_s

    async def read(self) -> Update:
        """Returns its next message; an error if there is none."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout_at(self._deadline):
                line = await self._process.stdout.readline()
                if line:
                    return msgspec.json.decode(line, type=self._update_type)
                code = await self._process.wait()
        except TimeoutError:
            return self._failed(
                f"The {self._work} is not done after {self._max_time_s:g} s: {self._instead}."
            )
        except (ValueError, msgspec.DecodeError):
            return self._failed(f"The result of the {self._work} is too large: {self._instead}.")
        return self._failed(
            f"The process of the {self._work} ended with status {code}: the log of the server says why."
        )

    async def end(self) -> None:
        """Ends the process, if it still runs."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _failed(self, error: str) -> Update:
        return self._update_type(error=error, status=Unavailable.status)


class _UpdateStream(Response):
    """The messages of a process as server-sent events: `progress`, then `result` or `error`."""

    media_type = "text/event-stream"

    def __init__(self, runner: ProcessRunner, running: _RunningProcess, first: Update) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._runner = runner
        self._running = running
        self._first = first
        self._is_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._send_updates(send)),
            asyncio.create_task(_await_disconnect(receive)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                # A client that reads nothing is not waited for.
                with suppress(TimeoutError):
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._end()

    async def _end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            await self._running.end()
            self._runner.on_end()

    async def _send_updates(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        update = self._first
        while True:
            is_last = update.result is not None or update.error is not None
            name = "progress" if not is_last else "result" if update.error is None else "error"
            if is_last:
                # Who has read the last message may ask for the next one.
                await self._end()
            text = redacted(msgspec.json.encode(update).decode())
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                body = f"event: {name}\ndata: {text}\n\n".encode()
                await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            if is_last:
                return
            update = await self._running.read()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def limit_process(memory_bytes: int, cpu_s: int) -> None:
    """Limits the memory and the processor time of this process, and makes it nicer than its server."""
    os.nice(_NICENESS)
    for kind, most in ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_CPU, cpu_s)):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
