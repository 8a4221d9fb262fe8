"""One request of an asynchronous operator: the calls of the function, retries, and the timeout of them all."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ...functions import AsyncFunction, AsyncRetryStrategy, MetricGroup


class RequestRunner:
    """Runs requests in the loop's thread. It counts timeouts and retries as metrics of the operator."""

    def __init__(
        self,
        function: Any,
        retry: AsyncRetryStrategy | None,
        timeout_ms: int | None,
        metrics: MetricGroup,
    ) -> None:
        """`function`: an AsyncFunction, or an async function that returns the one result of a record."""
        self._function = function
        self._retry = retry
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1000
        self._timeouts = metrics.counter("requestTimeouts")
        self._retries = metrics.counter("requestRetries")

    async def results(self, value: Any) -> list[Any]:
        """Returns the results of a record. Raises what the function raises, and TimeoutError."""
        if self._timeout_s is None:
            return await self._calls(value)
        scope = asyncio.timeout(self._timeout_s)
        try:
            async with scope:
                return await self._calls(value)
        except TimeoutError:
            if not scope.expired():
                raise
        self._timeouts.inc()
        if not isinstance(self._function, AsyncFunction):
            raise TimeoutError(f"the function has returned no result in {self._timeout_s:g} s")
        results: Any = self._function.timeout(value)
        return list((await results if inspect.isawaitable(results) else results) or ())

    async def _calls(self, value: Any) -> list[Any]:
        retry, attempts = self._retry, 0
        while True:
            attempts += 1
            try:
                result = await self._call(value)
            except Exception as error:
                if retry is None or not retry.retries_exception(attempts, error):
                    raise
            else:
                if retry is None or not retry.retries_result(attempts, result):
                    return result if isinstance(self._function, AsyncFunction) else [result]
            self._retries.inc()
            await asyncio.sleep(retry.delay_s(attempts))

    async def _call(self, value: Any) -> Any:
        if isinstance(self._function, AsyncFunction):
            return list(await self._function.async_invoke(value) or ())
        return await self._function(value)
