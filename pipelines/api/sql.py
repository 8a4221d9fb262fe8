"""Checks the expressions of where, select and with_column, and returns the types of their results."""

from __future__ import annotations

import functools
import keyword
from collections import namedtuple
from collections.abc import Iterable
from typing import Any

import msgspec

from ..graph.errors import ProgramError
from ..sql.checking import SCALARS, check_condition, check_types, is_nullable
from ..sql.errors import SqlError
from ..sql.syntax import parse_expression, parse_select
from ..sql.tree import NamedExpression, Node, Operation, ValueType
from ..types import PICKLED, ClassOf, OptionalOf, RecordType
from .source_location import caller_location


class Selection(msgspec.Struct, frozen=True):
    """The columns of a select, and the type of its records."""

    columns: tuple[tuple[str, str], ...]
    """Name and expression."""
    record_type: RecordType


def check_where(step: str, of: RecordType, condition: str) -> None:
    """Raises ProgramError if the condition cannot be evaluated on records of the type."""
    with _Refused(step):
        _check(of, condition)
        check_condition(condition, of)


def select(of: RecordType, text: str) -> Selection:
    """Returns the selection of a select list. Raises ProgramError."""
    with _Refused("select"):
        _check(of, text)
        items: list[NamedExpression] = []
        for item in parse_select(text):
            items += _all(of) if item is None else [item]
        return _selection(of, items)


def with_column(of: RecordType, name: str, text: str) -> Selection:
    """Returns the selection of all columns and a further one. Raises ProgramError."""
    with _Refused("with_column"):
        _check(of, text)
        made = NamedExpression(name, parse_expression(text), text)
        items = [made if item.name == name else item for item in _all(of)]
        return _selection(of, items if made in items else [*items, made])


class _Refused:
    """A context that raises SqlError as ProgramError. No generator: its frames would hide the program's line."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SqlError):
            raise ProgramError(str(error), operator=self._step, location=caller_location()) from None


def _check(of: RecordType, text: object) -> None:
    if not isinstance(text, str):
        raise SqlError(f"expected a text in SQL, not {text!r}")
    if of == PICKLED:
        raise SqlError(
            "the records are pickled and have no columns: declare the output_type of the step before"
        )


def _all(of: RecordType) -> list[NamedExpression]:
    return [
        NamedExpression(name, Node(Operation.COLUMN, value=name), f"`{name}`") for name, _ in of.columns()
    ]


def _selection(of: RecordType, items: Iterable[NamedExpression]) -> Selection:
    columns = dict(of.columns())
    fields: dict[str, RecordType] = {}
    for item in items:
        _check_name(item.name, fields)
        node = check_types(item.node, of)
        if node.operation is Operation.COLUMN:
            fields[item.name] = columns[str(node.value)]
        elif node.type in (ValueType.NULL, ValueType.OTHER):
            raise SqlError(f"{item.text} has no type: write CAST(NULL AS STRING), for example")
        else:
            scalar = SCALARS[node.type]
            fields[item.name] = OptionalOf(scalar) if is_nullable(node, of) else scalar
    record_type = ClassOf("Row", "named_tuple", tuple(fields.items()), row_class(tuple(fields)))
    return Selection(tuple((item.name, item.text) for item in items), record_type)


def _check_name(name: object, others: Iterable[str]) -> None:
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name.startswith("_")
    ):
        raise SqlError(
            f"{name!r} cannot be the name of a column: it must be a name in Python, without _ before it"
        )
    if name in others:
        raise SqlError(f"two columns have the name {name}: give one of them another with AS")


@functools.cache
def row_class(names: tuple[str, ...]) -> Any:
    """One class for records of the same columns, so that streams of them can be united."""
    return namedtuple("Row", names)
