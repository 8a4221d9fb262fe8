"""lookup_join: its cache, its metric, and lookups in threads."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from tailrace.pipelines.api import LookupCache, ProgramError, RuntimeContext, StreamExecutionEnvironment
from tailrace.pipelines.functions.lookup import LookupJoin
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure

from .test_async_map import Job


class Table:
    """An async lookup that counts, takes a second, and knows no odd keys."""

    def open(self, context: RuntimeContext) -> None:
        self.asked = context.metrics.counter("asked")

    async def __call__(self, key: int) -> str | None:
        self.asked.inc()
        await asyncio.sleep(1)
        return None if key % 2 else f"value {key}"


def joined(lookup: Any, cache: LookupCache | None, *, inner: bool = False) -> Job:
    join = LookupJoin(lookup, lambda value: value % 10, cache, inner=inner, threads=4)
    return Job(join, capacity=1).opened()


def asked(job: Job) -> Any:
    return job.metrics["asked"]


def test_records_are_joined_with_value_or_none() -> None:
    assert joined(Table(), None).take(1, 12).finished().values == [(1, None), (12, "value 2")]
    assert joined(Table(), None, inner=True).take(1, 12).finished().values == [(12, "value 2")]


def test_key_in_cache_is_not_asked_for_again() -> None:
    job = joined(Table(), LookupCache(10)).take(2, 12, 1, 22, 11).finished()
    assert [value for _, value in job.values] == ["value 2", "value 2", None, "value 2", None]
    assert asked(job) == 2
    assert job.metrics["lookupCacheHits"] == 3
    assert job.metrics["lookupCacheMisses"] == 2
    assert job.metrics["lookupCacheHitRate"] == 0.6


def test_missing_value_is_asked_for_again_if_cache_does_not_keep_it() -> None:
    assert asked(joined(Table(), LookupCache(10, caches_missing=False)).take(1, 11, 2, 12).finished()) == 3


def test_full_cache_drops_key_that_was_not_used_for_longest() -> None:
    """2 and 4 are kept; 2 is used again; 6 displaces 4."""
    job = joined(Table(), LookupCache(2)).take(2, 4, 2, 6, 2, 4).finished()
    assert asked(job) == 4


def test_value_counts_for_its_time_to_live() -> None:
    """Each lookup takes a second; a value is too old after two."""
    job = joined(Table(), LookupCache(10, ttl=timedelta(seconds=2))).take(2, 4, 2, 6, 2).finished()
    assert asked(job) == 4


class Blocking:
    """A lookup that needs two calls at a time, in threads other than that of the task."""

    def open(self, context: RuntimeContext) -> None:
        self.both = threading.Barrier(2, timeout=60)
        self.opened_in = threading.get_ident()

    def __call__(self, key: int) -> str:
        self.both.wait()
        if key == 9:
            raise KeyError(key)
        return f"{key} {threading.get_ident() == threading.main_thread().ident}"


def test_function_that_blocks_runs_in_threads() -> None:
    join = LookupJoin(Blocking(), lambda value: value, None, inner=False, threads=4)
    job = Job(join, capacity=2).opened().take(1, 2, 3, 4).finished()
    assert job.values == [(i, f"{i} False") for i in range(1, 5)]


def test_exception_in_thread_fails_job() -> None:
    join = LookupJoin(Blocking(), lambda value: value, None, inner=False, threads=4)
    job = Job(join, capacity=2).opened().take(9, 2)
    with pytest.raises(UserCodeError) as failure:
        job.operator.finish()
    assert describe_failure(failure.value).startswith(f"KeyError: 9 at {__file__}:")
    job.close()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"how": "right"}, r"lookup_join at .*: the join is 'right', not 'left' or 'inner'"),
        ({"cache": LookupCache(0)}, "expected a LookupCache of one key or more"),
        ({"cache": LookupCache(5, ttl=5)}, "the ttl of the cache is 5: give a timedelta$"),  # type: ignore[arg-type]
        ({"cache": LookupCache(5, ttl=timedelta(0))}, "the ttl of the cache is 0 ms, not 1 or more$"),
        ({"capacity": 0}, "the capacity is 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], reason: str) -> None:
    stream = StreamExecutionEnvironment().from_collection([1], int)
    with pytest.raises(ProgramError, match=reason):
        stream.lookup_join(Table(), lambda value: value, **arguments)


def test_keyed_stream_is_refused() -> None:
    stream = StreamExecutionEnvironment().from_collection([1], int).key_by(lambda value: value)
    with pytest.raises(ProgramError, match=r"lookup_join at .*: it keeps no order within a key"):
        stream.lookup_join(Table(), lambda value: value)


def test_type_of_pairs_comes_from_hints() -> None:
    stream = StreamExecutionEnvironment().from_collection([1], int)
    assert str(stream.lookup_join(Table(), lambda value: value).record_type) == "tuple[int, str | None]"
    inner = stream.lookup_join(Table(), lambda value: value, how="inner")
    assert str(inner.record_type) == "tuple[int, str]"
