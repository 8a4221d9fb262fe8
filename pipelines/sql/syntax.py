"""Reads expressions and queries in Spark SQL. sqlglot is loaded with the first of them: most programs have none."""

from __future__ import annotations

from .query import Query
from .tree import NamedExpression, Node


def parse_expression(text: str) -> Node:
    """Returns the tree of an expression. Raises SqlError."""
    from .sqlglot_syntax import read_expression

    return read_expression(text)


def parse_select(text: str) -> list[NamedExpression | None]:
    """Returns the items of a select list; None stands for `*`. Raises SqlError."""
    from .sqlglot_syntax import read_select

    return read_select(text)


def parse_query(text: str) -> Query:
    """Returns a query. Raises SqlError."""
    from .sqlglot_query import read_query

    return read_query(text)
