"""The lookup join: the value of each record's key, from a function that asks a server, with a cache in each subtask."""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ...infra import threads
from .async_function import AsyncFunction
from .context import RuntimeContext


@dataclass(frozen=True)
class LookupCache:
    """The values that a subtask of a lookup join keeps: those of the keys that were asked for last."""

    size: int
    """The number of keys."""
    ttl: timedelta | None = None
    """How long after its answer a value counts; None: as long as it is kept."""
    caches_missing: bool = True
    """Whether it also keeps that a key has no value."""


class LookupJoin(AsyncFunction[Any, tuple[Any, Any]]):
    """Emits pairs of a record and the value of its key, which may be None."""

    def __init__(
        self,
        lookup: Callable[[Any], Any],
        key: Callable[[Any], Any],
        cache: LookupCache | None,
        *,
        inner: bool,
        threads: int,
    ) -> None:
        """`lookup` is an async function, or one that runs in so many threads. `inner`: whether records without a value
        are dropped."""
        self._lookup = lookup
        self._key = key
        self._cache = cache
        self._inner = inner
        self._threads = threads

    async def open(self, context: RuntimeContext) -> None:
        metrics = context.metrics
        self._kept: OrderedDict[Any, tuple[Any, float]] = OrderedDict()
        """Key -> value, and when it was received; the key that was asked for last comes last."""
        self._pool = None if is_async(self._lookup) else threads.Pool(self._threads, "lookup")
        hits, misses = self._hits, self._misses = (
            metrics.counter("lookupCacheHits"),
            metrics.counter("lookupCacheMisses"),
        )
        if self._cache is not None:
            metrics.gauge("lookupCacheHitRate", lambda: hits.value / (hits.value + misses.value))
        if callable(opener := getattr(self._lookup, "open", None)):
            await self._call(opener, context)

    async def async_invoke(self, value: Any) -> list[tuple[Any, Any]]:
        found = await self._value(self._key(value))
        return [] if found is None and self._inner else [(value, found)]

    async def close(self) -> None:
        if callable(closer := getattr(self._lookup, "close", None)):
            await self._call(closer)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _value(self, key: Any) -> Any:
        """Returns the value of a key, from the cache if it has it."""
        cache, kept, now = self._cache, self._kept, asyncio.get_running_loop().time
        if cache is None:
            return await self._call(self._lookup, key)
        if key in kept:
            found, received = kept[key]
            if cache.ttl is None or now() < received + cache.ttl.total_seconds():
                kept.move_to_end(key)
                self._hits.inc()
                return found
        self._misses.inc()
        found = await self._call(self._lookup, key)
        if found is not None or cache.caches_missing:
            kept[key] = found, now()
            kept.move_to_end(key)
            if len(kept) > cache.size:
                kept.popitem(last=False)
        else:
            kept.pop(key, None)
        return found

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the lookup: in a thread, or in the loop's if it is async."""
        if self._pool is None:
            made = function(*arguments)
            return await made if inspect.isawaitable(made) else made
        loop = asyncio.get_running_loop()
        made, error = await loop.run_in_executor(self._pool, _outcome, function, arguments)
        if error is not None:
            raise error
        return made


def is_async(function: Any) -> bool:
    """Whether a function, or the call of an object, is `async def`."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


def _outcome(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[Any, Exception | SystemExit | None]:
    """Returns the result and the exception: one that a thread of a pool raises ends the process."""
    try:
        return function(*arguments), None
    except (Exception, SystemExit) as error:
        return None, error
