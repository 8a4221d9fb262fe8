"""What-ifs: GET /api/v1/what-if simulates how the history continues from a moment with the changes of a scenario.

A simulation needs the processor for seconds or minutes, and as much memory as the states of the cluster. So it has a
process of its own, which ends with the request: when it has the result, when the client goes away, or when its time is
over. A server runs one at a time.
"""

from __future__ import annotations

import asyncio
import pickle
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....infra.interpreter import module_command
from ....infra.redaction import redacted
from ...history.log_source import OpenSource
from ..endpoint import Endpoint, Parameter, Parameters
from ..errors import BadRequest, NotFound, RestError, Unavailable
from .what_if_result import WhatIfUpdate

MAX_TIME_S: Final = 120.0
MAX_MEMORY_BYTES: Final = 2 << 30
MAX_SIMULATED_EVENTS: Final = 500_000
_MAX_LINE_BYTES: Final = 64 << 20
_SEND_TIMEOUT_S: Final = 30.0
_PROCESS: Final = module_command("tailrace.services.simulation.what_if.process")
_ERRORS: Final = {each.status: each for each in (BadRequest, NotFound, Unavailable)}


class WhatIfRequest(msgspec.Struct, frozen=True):
    """What the process gets on stdin, pickled. `at`: an offset or time; None: the end of the log."""

    open_source: OpenSource
    at: str | None
    scenario: str


class WhatIfRunner:
    """Runs simulations. It belongs to one event loop. `open_source` opens the log, and can be pickled."""

    def __init__(
        self, open_source: OpenSource, command: Sequence[str] = _PROCESS, max_time_s: float = MAX_TIME_S
    ) -> None:
        self._open_source = open_source
        self._command = command
        self._max_time_s = max_time_s
        self._is_busy = False

    async def open(self, parameters: Parameters, _last_event_id: str | None) -> Response:
        """GET /what-if: simulates how the history continues with the changes of a scenario, beside what happened"""
        if self._is_busy:
            raise Unavailable("The server runs a simulation already: try again.", {"Retry-After": "5"})
        self._is_busy = True
        request = WhatIfRequest(self._open_source, parameters.get("at"), parameters.get("scenario", ""))
        try:
            simulation = await _Simulation.start(self._command, pickle.dumps(request), self._max_time_s)
            try:
                first = await simulation.read()
                if first.error is not None:
                    raise _ERRORS.get(first.status or 0, RestError)(first.error)
            except BaseException:
                await simulation.end()
                raise
        except BaseException:
            self._is_busy = False
            raise
        return _WhatIfStream(self, simulation, first)

    def on_end(self) -> None:
        """A simulation has ended."""
        self._is_busy = False


class _Simulation:
    """The process of a simulation."""

    def __init__(self, process: Process, max_time_s: float) -> None:
        self._process = process
        self._max_time_s = max_time_s
        self._deadline = asyncio.get_running_loop().time() + max_time_s

    @classmethod
    async def start(cls, command: Sequence[str], request: bytes, max_time_s: float) -> _Simulation:
        """Starts it."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, limit=_MAX_LINE_BYTES, start_new_session=True
        )
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        return cls(process, max_time_s)

    async def read(self) -> WhatIfUpdate:
        """Returns its next message; an error if there is none."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout_at(self._deadline):
                line = await self._process.stdout.readline()
                if line:
                    return msgspec.json.decode(line, type=WhatIfUpdate)
                code = await self._process.wait()
        except TimeoutError:
            return _failed(
                f"The simulation is not done after {self._max_time_s:g} s: give a shorter time (until), or use "
                "`tailrace what-if`."
            )
        except (ValueError, msgspec.DecodeError):
            return _failed("The result of the simulation is too large: give a shorter time (until).")
        return _failed(
            f"The process of the simulation ended with status {code}: the log of the server says why."
        )

    async def end(self) -> None:
        """Ends the process, if it still runs."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def _failed(error: str) -> WhatIfUpdate:
    return WhatIfUpdate(0, 0, error=error, status=Unavailable.status)


class _WhatIfStream(Response):
    """The messages of a simulation as server-sent events: `progress`, then `result` or `error`."""

    media_type = "text/event-stream"

    def __init__(self, runner: WhatIfRunner, simulation: _Simulation, first: WhatIfUpdate) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._runner = runner
        self._simulation = simulation
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
            await self._simulation.end()
            self._runner.on_end()

    async def _send_updates(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        update = self._first
        while True:
            is_last = update.result is not None or update.error is not None
            name = "progress" if not is_last else "result" if update.error is None else "error"
            if is_last:
                # Who has read the last message may ask for the next simulation.
                await self._end()
            text = redacted(msgspec.json.encode(update).decode())
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                body = f"event: {name}\ndata: {text}\n\n".encode()
                await send({"type": "http.response.body", "body": body, "more_body": not is_last})
            if is_last:
                return
            update = await self._simulation.read()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def create_endpoint(open_source: OpenSource) -> Endpoint:
    """Returns the endpoint."""
    return Endpoint(
        "GET",
        "/what-if",
        query=(
            Parameter("at", str, "From this offset or time on; by default from the end of the log."),
            Parameter("scenario", str, "The changes as YAML, as `tailrace what-if` takes them."),
        ),
        stream=WhatIfRunner(open_source).open,
        stream_doc="Server-sent events: `progress` while it runs, and at last `result` or `error`.",
        response=WhatIfUpdate,
        errors=(NotFound,),
    )
