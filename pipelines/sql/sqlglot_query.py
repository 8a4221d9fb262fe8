"""Reads queries over streams in Spark SQL with sqlglot.

What a query may have is listed; everything else that sqlglot reads is refused by its name. Expressions are written
again as texts, which the operators behind `where` and `select` read: the result of an aggregate, a key and a bound of
the window become columns in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from .dialect import DIALECT
from .errors import SqlError
from .query import (
    WINDOW_BOUNDS,
    Aggregate,
    Function,
    Grouping,
    Query,
    QueryWindow,
    SelectQuery,
    UnionQuery,
    WindowKind,
)

_MAX_LENGTH: Final = 100_000
_FUNCTIONS: Final[Mapping[type[exp.Expr], Function]] = {
    exp.Count: Function.COUNT,
    exp.Sum: Function.SUM,
    exp.Avg: Function.AVG,
    exp.Min: Function.MIN,
    exp.Max: Function.MAX,
}
_TIMES: Final = ("event_time", "processing_time")
_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_CLAUSES: Final = {
    "joins": "JOIN",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "pivots": "PIVOT",
}
_INSTEAD: Final = {
    "joins": "use join, co_group, interval_join, temporal_join or lookup_join of the streams",
    "distinct": "GROUP BY the columns in a window",
    "order": "sort in the function of a window",
    "limit": "take the first results with execute_and_collect or show",
}
_READ: Final = frozenset({"expressions", "from_", "where", "group", "having", "with_"})
_EXAMPLE: Final = "GROUP BY window(event_time, '10 minutes')"


def read_query(text: str) -> Query:
    """Returns the query. Raises SqlError."""
    if len(text) > _MAX_LENGTH:
        raise SqlError(f"the query has {len(text)} characters, more than {_MAX_LENGTH}")
    try:
        statements = DIALECT.parser().parse(DIALECT.tokenize(text), text)
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        where = f" at {place['highlight']!r}, line {place['line']}, character {place['col']}" if place else ""
        raise SqlError(f"cannot read the query{where}") from None
    except SqlglotError:
        raise SqlError("cannot read the query: a quote or a comment does not end") from None
    except RecursionError:
        raise SqlError("the query is nested too deep; divide it") from None
    (statement,) = statements if len(statements) == 1 else (None,)
    if statement is None:
        raise SqlError("a query is one SELECT, such as SELECT user, amount FROM orders")
    return _query(statement, {})


def _query(found: exp.Expr, tables: Mapping[str, Query]) -> Query:
    if isinstance(found, exp.Query) and found.args.get("with_") is not None:
        with_ = found.args["with_"]
        if with_.args.get("recursive"):
            raise SqlError("WITH RECURSIVE is not possible in a query over streams")
        for table in with_.expressions:
            tables = {**tables, table.alias: _query(table.this, tables)}
    match found:
        case exp.Union():
            if found.args.get("distinct"):
                raise SqlError("UNION removes duplicates, which needs unbounded state: write UNION ALL")
            _refuse_clauses(found, {"this", "expression", "distinct", "with_"})
            return UnionQuery((_query(found.this, tables), _query(found.expression, tables)))
        case exp.Select():
            return _select(found, tables)
        case exp.Subquery():
            return _query(found.this, tables)
        case _:
            raise SqlError(f"{found.key.upper()} is not possible over streams; a query is a SELECT")


def _select(found: exp.Select, tables: Mapping[str, Query]) -> SelectQuery:
    _refuse_clauses(found, _READ)
    source, name = _source(found, tables)
    for column in list(found.find_all(exp.Column)):
        if column.table and column.table != "window":
            if column.table != name:
                raise SqlError(
                    f"{column.sql(DIALECT)}: there is no {column.table} in this query, only {name}"
                )
            column.set("table", None)
    items: list[exp.Expr] = found.expressions
    group, where, having = (found.args.get(clause) for clause in ("group", "where", "having"))
    for part in filter(None, (*items, group, where, having)):
        if (subquery := part.find(exp.Select)) is not None:
            raise SqlError(
                f"({subquery.sql(DIALECT)}): a subquery is possible in FROM only: {_INSTEAD['joins']}"
            )
    if where is not None and _has_aggregate(where):
        raise SqlError("WHERE has an aggregate: conditions on aggregates are in HAVING")
    condition = None if where is None else _text(where.this)
    if group is None and having is None and not any(map(_has_aggregate, items)):
        return SelectQuery(source, ", ".join(map(_text, items)), condition)
    columns = _Columns(group)
    return SelectQuery(
        source,
        ", ".join(columns.item(item) for item in items),
        condition,
        having=None if having is None else _text(columns.replace(having.this)),
        grouping=columns.grouping(),
    )


def _refuse_clauses(found: exp.Expr, known: Collection[str]) -> None:
    for clause, value in found.args.items():
        if value and clause not in known:
            name = _CLAUSES.get(clause, clause.upper())
            instead = f": {_INSTEAD[clause]}" if clause in _INSTEAD else ""
            raise SqlError(f"{name} is not possible in a query over streams{instead}")


def _source(found: exp.Select, tables: Mapping[str, Query]) -> tuple[str | Query, str]:
    from_ = found.args.get("from_")
    if from_ is None:
        raise SqlError("the query has no FROM: name a view")
    table = from_.this
    _refuse_clauses(table, {"this", "alias"})
    match table:
        case exp.Table() if isinstance(table.this, exp.Identifier):
            return tables.get(table.name, table.name), table.alias_or_name
        case exp.Subquery():
            return _query(table.this, tables), table.alias
        case _:
            raise SqlError(f"{table.sql(DIALECT)} is not possible in FROM: name a view, or write a subquery")


class _Columns:
    """The columns of a grouping, which take the place of keys, aggregates and bounds in expressions."""

    def __init__(self, group: exp.Expr | None) -> None:
        if group is not None:
            _refuse_clauses(group, {"expressions"})
        self._keys: dict[str, str] = {}
        self._aggregates: dict[str, Aggregate] = {}
        windows = []
        for part in [] if group is None else group.expressions:
            if isinstance(part, exp.Anonymous):
                windows.append(_window(part))
            elif isinstance(part, exp.Literal):
                raise SqlError(f"GROUP BY {_text(part)}: name a column, not its position")
            else:
                self._keys.setdefault(_text(part), f"k{len(self._keys)}")
        if len(windows) != 1:
            raise SqlError(f"aggregates need one window, such as {_EXAMPLE}")
        self._window = windows[0]

    def grouping(self) -> Grouping:
        """Returns the grouping of all expressions so far."""
        keys = tuple((name, text) for text, name in self._keys.items())
        return Grouping(keys, tuple(self._aggregates.values()), self._window)

    def item(self, found: exp.Expr) -> str:
        """Returns an item of the select list over the columns of the grouping."""
        value = found.this if isinstance(found, exp.Alias) else found
        if isinstance(value, exp.Star):
            raise SqlError("SELECT * is not possible with GROUP BY: name the columns")
        name = found.alias_or_name if isinstance(found, exp.Alias | exp.Column) else ""
        if not name:
            raise SqlError(f"{_text(found)} needs a name: write {_text(found)} AS name")
        return f"{_text(self.replace(value))} AS {exp.to_identifier(name, quoted=True).sql(DIALECT)}"

    def replace(self, found: exp.Expr) -> exp.Expr:
        """Returns an expression with columns of the grouping in place of its keys, aggregates and bounds."""
        if (key := self._keys.get(_text(found))) is not None:
            return exp.column(key)
        if isinstance(found, exp.AggFunc):
            return exp.column(self._aggregate(found).name)
        if isinstance(found, exp.Column):
            return _bound(found)
        made = found.copy()
        for part in _parts(made):
            part.replace(self.replace(part))
        return made

    def _aggregate(self, found: exp.AggFunc) -> Aggregate:
        text, function = _text(found), _FUNCTIONS.get(type(found))
        if function is None:
            raise SqlError(f"there is no aggregate {text}; the aggregates are {', '.join(Function)}")
        argument = found.this
        if isinstance(argument, exp.Distinct) or len(found.expressions) > 1:
            raise SqlError(f"{text} is not possible: an aggregate has one argument, without DISTINCT")
        if argument.find(exp.AggFunc):
            raise SqlError(f"{text} has an aggregate inside an aggregate")
        of = (
            None
            if isinstance(argument, exp.Star | exp.Literal) and function is Function.COUNT
            else _text(argument)
        )
        return self._aggregates.setdefault(text, Aggregate(f"a{len(self._aggregates)}", function, of))


def _bound(column: exp.Column) -> exp.Expr:
    if column.table == "window" and column.name in ("start", "end"):
        return exp.column(f"window_{column.name}")
    if not column.table and column.name in WINDOW_BOUNDS:
        return column
    raise SqlError(f"{column.sql(DIALECT)} is neither in GROUP BY nor inside an aggregate")


def _has_aggregate(found: exp.Expr) -> bool:
    return found.find(exp.AggFunc) is not None


def _parts(found: exp.Expr) -> Iterator[exp.Expr]:
    for value in list(found.args.values()):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expr) and not isinstance(part, exp.Identifier | exp.DataType):
                yield part


def _window(found: exp.Anonymous) -> QueryWindow:
    name = found.name.lower()
    if name not in ("window", "session_window"):
        raise SqlError(f"there is no function {name}; windows are window(...) and session_window(...)")
    time, *durations = found.expressions or [None]
    if not isinstance(time, exp.Column) or time.name not in _TIMES:
        raise SqlError(f"{_text(found)}: the first argument is {' or '.join(_TIMES)}")
    lengths = [_duration_ms(each) for each in durations]
    is_event_time = time.name == _TIMES[0]
    if name == "session_window" and len(lengths) == 1:
        return QueryWindow(WindowKind.SESSION, is_event_time, lengths[0])
    if name == "window" and 1 <= len(lengths) <= 3:
        size = lengths[0]
        slide = lengths[1] if len(lengths) > 1 else size
        offset = lengths[2] if len(lengths) > 2 else 0
        kind = WindowKind.TUMBLING if slide == size else WindowKind.SLIDING
        return QueryWindow(kind, is_event_time, size, slide, offset)
    raise SqlError(f"{_text(found)}: window takes a size, a slide and a start, session_window a gap")


def _duration_ms(found: exp.Expr) -> int:
    if isinstance(found, exp.Interval) and found.unit is not None:
        text = f"{found.this.name} {found.unit.name}"
    else:
        text = found.name if isinstance(found, exp.Literal) else found.sql(DIALECT)
    match_ = re.fullmatch(r"(\d+) ?([a-z]+?)s?", text.strip().lower())
    if match_ is None or match_[2] not in _UNITS_MS:
        raise SqlError(f"{text!r} is no duration, such as '10 minutes'; the units are {', '.join(_UNITS_MS)}")
    return int(match_[1]) * _UNITS_MS[match_[2]]


def _text(found: exp.Expr) -> str:
    """Returns an expression as text; all names in it are quoted, since they may be words of SQL."""
    return found.sql(DIALECT, identify=True)
