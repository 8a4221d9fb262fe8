"""Runs Spark SQL over logs in a process of its own, apart from the Spark of other tests. One start serves all tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tailrace.services.configuration import Configuration
from tailrace.services.history.sql.queries import Queries
from tailrace.services.history.sql.reader import OFFSETS_A_TASK, open_log
from tailrace.services.history.sql.session import session
from tailrace.services.history.sql.statements import split_statements

_EXIT_STACK = ExitStack()


class QueriedLog(msgspec.Struct, frozen=True):
    """The log to query: an exported file, or the log of a cluster. `first` and `last` are positions as the user
    writes them."""

    file: Path | None = None
    settings: tuple[tuple[str, str], ...] = ()
    first: str | int | None = None
    last: str | int | None = None
    offsets_a_task: int | None = None


class QueryRejected(Exception):
    """An exception of the other process: the name of its class, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(kind, message)

    def __str__(self) -> str:
        return str(self.args[1])


class SqlQueries:
    """Runs queries in the other process. Raises QueryRejected."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def table(self, log: QueriedLog, name: str) -> pa.Table:
        """Returns all rows of a table."""
        return self._pool.submit(_table, log, name).result()

    def ask(self, log: QueriedLog | Path, query: str) -> list[dict[str, Any]]:
        """Runs the statements and returns the result of the last one."""
        log = QueriedLog(log) if isinstance(log, Path) else log
        return self._pool.submit(_ask, log, query).result()


@contextmanager
def sql_queries() -> Iterator[SqlQueries]:
    """Starts the process, and stops it at the end of the block."""
    # Not forked: threads of confluent-kafka and pyarrow would not be there.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield SqlQueries(pool)
        finally:
            pool.submit(_EXIT_STACK.close).result()


def _open_queries(log: QueriedLog) -> Queries:
    spark = _EXIT_STACK.enter_context(session())
    of = Configuration(dict(log.settings)) if log.file is None else log.file
    step = log.offsets_a_task or OFFSETS_A_TASK
    return Queries(spark, open_log(spark, of, first=log.first, last=log.last, offsets_a_task=step))


def _table(log: QueriedLog, name: str) -> pa.Table:
    return _open_queries(log).log.table(name).toArrow()


def _ask(log: QueriedLog, query: str) -> list[dict[str, Any]]:
    result = None
    try:
        queries = _open_queries(log)
        for statement in split_statements(f"{query}\n;")[0]:
            result = queries.run(statement)
    except Exception as error:
        raise QueryRejected(type(error).__name__, str(error)) from None
    return [] if result is None else result.to_pylist(maps_as_pydicts="strict")
