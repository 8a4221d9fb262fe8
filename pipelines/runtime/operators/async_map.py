"""async_map: requests the results of each record by asyncio, many records at a time, and exactly once.

Records without emitted results are state (pending_records.py), committed with the position of the input. A new attempt
requests them again, before it takes input, also at another parallelism. So a request may be made more than once, and
its results count once.

`capacity` is the number of requests at a time. The operator has room for twice as many records: others wait for a
request, or have results that wait. So requests go on while the task thread commits. Without room the task reads no
input. Results come in the order of the records, or as they arrive between two watermarks (request_queue.py).

The requests run in the thread of the loop. The task thread takes their outcomes when the mailbox wakes it, and only
then emits, so all other calls of an operator come from one thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from ..common.failures import UserCodeError, format_key
from ..records.batch import Batch
from ..state_backend.stateful import Origin
from .async_requests import RequestRunner
from .operator import Operator, OperatorSetup
from .output_collector import OutputCollector
from .pending_records import PendingRecords
from .request_queue import Request, RequestQueue
from .user_functions import close_function, load, open_function, user_code

_log = logging.getLogger(__name__)
_CLOSE_S: Final = 5.0
"""How long the end of the function may take: the loop may be blocked by a function."""

Outcome = list[Any] | BaseException


class AsyncMapParameters(msgspec.Struct, frozen=True):
    """The parameters in OperatorConfig.parameters."""

    capacity: int
    ordered: bool = True
    timeout_ms: int | None = None


class AsyncMapOperator(Operator):
    """Calls an `async def` function, or an AsyncFunction."""

    def __init__(self, setup: OperatorSetup) -> None:
        if setup.async_calls is None:
            raise ValueError(f"operator {setup.config.name!r} runs in a StreamTask only")
        self._calls = setup.async_calls
        self._config = setup.config
        self._context = context = setup.context
        parameters = msgspec.convert(dict(setup.parameters), AsyncMapParameters)
        self._capacity = parameters.capacity
        self._function, retry = load(setup.config)
        self._runner = RequestRunner(self._function, retry, parameters.timeout_ms, context.metrics)
        self._queue = RequestQueue(ordered=parameters.ordered)
        self._pending = PendingRecords(
            setup.input_types[0], context.subtask_index, context.parallelism, setup.config.name
        )
        self._waiting: deque[Request] = deque()
        """The records that wait for a request; belongs to the loop's thread, as the next two."""
        self._in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._outcomes: deque[tuple[Request, Outcome]] = deque()
        """From the loop's thread."""
        self._is_closed = False
        self._collector = OutputCollector()
        self._is_idle = self._emitted_idle = False
        context.metrics.gauge("requestsInFlight", lambda: self._in_flight)

    def restore_from(self, origin: Origin | None) -> None:
        self._pending.restore_from(origin)

    def restore(self, message: bytes) -> None:
        self._pending.restore(message)

    def open(self) -> None:
        with user_code(self._config):
            self._calls.run(_opened(partial(open_function, self._function, self._context)))
        self._add(self._pending.take_restored())

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._add(self._pending.add(batch.timestamps, batch.values))

    @property
    def room(self) -> int:
        return 2 * self._capacity - len(self._queue)

    @property
    def has_pending(self) -> bool:
        return bool(len(self._queue))

    def on_woken(self) -> None:
        outcomes = self._outcomes
        while outcomes:
            request, outcome = outcomes.popleft()
            if isinstance(outcome, BaseException):
                raise self._failure(request, outcome)
            self._queue.complete(request, outcome)
        self._emit()

    def advance_watermark(self, watermark: int) -> None:
        self._queue.add_watermark(watermark)
        self._emit()

    def set_idle(self, idle: bool) -> None:
        self._is_idle = idle
        self._tell_idle()

    def finish(self) -> None:
        while self.has_pending:
            self._calls.wait()
            self.on_woken()

    @property
    def wants_commit(self) -> bool:
        return self._pending.is_dirty

    def take_changes(self) -> Iterable[bytes]:
        return self._pending.take_changes()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        return ((None, message) for message in self._pending.full())

    def close(self) -> None:
        with user_code(self._config):
            try:
                self._calls.run(self._shut_down(), _CLOSE_S)
            except TimeoutError:
                name = self._config.name
                _log.warning(
                    "operator %r is not closed after %g s: a function blocks asyncio's loop", name, _CLOSE_S
                )

    def _add(self, requests: Sequence[Request]) -> None:
        if requests:
            for request in requests:
                self._queue.add(request)
            self._calls.post(partial(self._begin, requests))
            self._tell_idle()

    def _begin(self, requests: Sequence[Request]) -> None:
        """Called in the loop's thread."""
        self._waiting.extend(requests)
        self._start()

    def _start(self) -> None:
        """Begins requests of records that wait, as far as there is capacity."""
        loop = asyncio.get_running_loop()
        while self._waiting and self._in_flight < self._capacity:
            self._in_flight += 1
            task = loop.create_task(self._run(self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, request: Request) -> None:
        outcome: Outcome
        try:
            outcome = await self._runner.results(request.value)
        except asyncio.CancelledError as error:
            if self._is_closed:
                raise
            outcome = error
        except (Exception, SystemExit) as error:
            outcome = error
        self._outcomes.append((request, outcome))
        if len(self._outcomes) == 1:  # the task takes all that are there when it is woken
            self._calls.wake()
        self._in_flight -= 1
        self._start()

    async def _shut_down(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _opened(partial(close_function, self._function))

    def _emit(self) -> None:
        collector = self._collector
        for item in self._queue.take():
            if isinstance(item, Request):
                self._pending.remove(item)
                collector.add(item.timestamp, item.results)
                if collector.has_many:
                    collector.send(self.output)
            else:
                collector.send(self.output)
                self.output.emit_watermark(item)
        collector.send(self.output)
        self._tell_idle()

    def _tell_idle(self) -> None:
        """Emits idleness. Results to come must not be late, so others wait for this output until it has none."""
        idle = self._is_idle and not self.has_pending
        if idle is not self._emitted_idle:
            self._emitted_idle = idle
            self.output.emit_idle(idle)

    def _failure(self, request: Request, error: BaseException) -> UserCodeError:
        failure = UserCodeError(self._config.name, self._config.location)
        failure.place = f"record {format_key(request.value)}"
        failure.__cause__ = error
        return failure


async def _opened(call: Callable[[], Any]) -> None:
    """Calls `open` or `close` in the loop's thread, and awaits it if it is `async def`."""
    made = call()
    if inspect.isawaitable(made):
        await made
