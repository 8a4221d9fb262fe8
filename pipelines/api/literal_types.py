"""Derives the record type of given values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..types import PICKLED, ClassOf, RecordType, RecordTypeError, Scalar, TupleOf


def common_type(values: Sequence[Any]) -> RecordType:
    """The type that all values are of exactly, where it is a plain one, a tuple of such, or one class with fields."""
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
    """Hints may be wrong, and integers wider than 64 bits."""
    try:
        of.to_columns(values)
    except RecordTypeError:
        return False
    return True
