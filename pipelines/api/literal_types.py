"""Derives the record type of given values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..types import PICKLED, ClassOf, RecordType, RecordTypeError, Scalar, TupleOf


def common_type(values: Sequence[Any]) -> RecordType:
    """Returns the type that all values have exactly: a plain type, a tuple of plain types, or one class with fields;
    else None."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1:
        return PICKLED
    (kind,) = kinds
    if kind is tuple:
        return _of_tuples(values)
    found = RecordType.of(kind)
    if isinstance(found, Scalar):
        return found if _fits(found, values) else PICKLED
    return found if isinstance(found, ClassOf) and _fits(found, values) else PICKLED


def _of_tuples(values: Sequence[tuple[Any, ...]]) -> RecordType:
    if len({len(value) for value in values}) != 1 or not values[0]:
        return PICKLED
    found = TupleOf(tuple(common_type(column) for column in zip(*values, strict=True)))
    return PICKLED if found.items == (PICKLED,) * len(found.items) else found


def _fits(of: RecordType, values: Sequence[Any]) -> bool:
    """Whether a value has a type: hints may be wrong, and integers may be wider than 64 bits."""
    try:
        of.to_columns(values)
    except RecordTypeError:
        return False
    return True
