"""The parts of a query over streams, as read (sqlglot_query.py). Expressions stay texts in Spark SQL."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Function(StrEnum):
    """An aggregate function."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class Aggregate(msgspec.Struct, frozen=True):
    """An aggregate of an expression; None: of rows."""

    name: str
    function: Function
    argument: str | None


class WindowKind(StrEnum):
    """How rows are assigned to windows."""

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"


class QueryWindow(msgspec.Struct, frozen=True):
    """The windows of a query."""

    kind: WindowKind
    is_event_time: bool
    size_ms: int
    """Of a session: its gap."""
    slide_ms: int = 0
    offset_ms: int = 0


class Grouping(msgspec.Struct, frozen=True):
    """GROUP BY and the aggregates. The items and HAVING of the query name the columns that it makes."""

    keys: tuple[tuple[str, str], ...]
    """Name and expression."""
    aggregates: tuple[Aggregate, ...]
    window: QueryWindow


WINDOW_BOUNDS = ("window_start", "window_end")
"""The columns of a grouping that are the bounds of its window, in milliseconds."""


class SelectQuery(msgspec.Struct, frozen=True):
    """SELECT items FROM source WHERE where GROUP BY ... HAVING having."""

    source: str | Query
    """The name of a view, or a query."""
    items: str
    where: str | None = None
    grouping: Grouping | None = None
    having: str | None = None


class UnionQuery(msgspec.Struct, frozen=True):
    """UNION ALL."""

    parts: tuple[Query, ...]


Query = SelectQuery | UnionQuery
