"""Checks that records from outside have their declared type, before any other step.

A decoder does not always return the declared type: msgspec accepts integers of any size, a default of a class may not
have its field's type, and an Avro file follows its own schema. A record of another type is refused where it was read,
with the path of the field (`$.order.id`). Later, in Arrow, the location would be unknown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec

from ...types import ClassOf, ListOf, OptionalOf, RecordType, RecordTypeError, Scalar, TupleOf

Validator = Callable[[list[Any], str], None]
"""Takes values and their path. Raises RecordTypeError with the field of a value that does not fit."""

_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_EXACT: Final[Mapping[str, frozenset[type]]] = {
    "str": frozenset({str}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "bool": frozenset({bool}),
    "bytes": frozenset({bytes}),
}


class ValidatorFactory(msgspec.Struct, frozen=True):
    """The default of a field with a `default_factory`."""

    make: Callable[[], Any]


def create_validator(of: RecordType, decoded: bool = False) -> Validator | None:
    """Returns None if there is nothing to check. `decoded`: msgspec decoded the record into this type, with integers
    of any size."""
    match of:
        case Scalar(kind):
            return None if decoded and kind != "int" else partial(_check_scalars, of)
        case OptionalOf(item):
            return _lifted(create_validator(item, decoded), _present)
        case ListOf(item):
            return partial(_check_lists, of, create_validator(item, decoded))
        case ClassOf() | TupleOf():
            defaults = default_values(of.cls) if isinstance(of, ClassOf) and decoded else {}
            checks = []
            for i, (name, field_type) in enumerate(of.columns()):
                check = create_validator(
                    field_type, decoded and (name not in defaults or _fits(field_type, defaults[name]))
                )
                if check is not None:
                    checks.append((i, name, check))
            return partial(_check_fields, of, checks) if checks or not decoded else None
        case _:
            return None


def default_values(cls: type) -> Mapping[str, Any]:
    """Returns the default of each field of a dataclass or NamedTuple that has one."""
    if not dataclasses.is_dataclass(cls):
        return getattr(cls, "_field_defaults", {})
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = ValidatorFactory(field.default_factory)
    return found


def _fits(of: RecordType, default: Any) -> bool:
    if isinstance(default, ValidatorFactory):  # the factory may return another object each time
        return False
    try:
        of.encode([default])
    except Exception:  # a user's class may raise any error
        return False
    return True


def _lifted(check: Validator | None, part: Callable[[list[Any]], list[Any]]) -> Validator | None:
    return None if check is None else lambda values, path: check(part(values), path)


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _check_scalars(of: Scalar, values: list[Any], path: str) -> None:
    if _EXACT[of.kind].issuperset(map(type, values)) and (
        of.kind != "int" or not values or (min(values) >= _LEAST and max(values) <= _GREATEST)
    ):
        return
    try:
        of.encode(values)
    except RecordTypeError as error:
        raise _at(error, path) from error


def _check_lists(of: ListOf, check: Validator | None, values: list[Any], path: str) -> None:
    for value in values:
        if type(value) is not list:
            raise _at(f"a list was expected, not {type(value).__name__}", path)
    if check is not None:
        check(list(chain.from_iterable(values)), f"{path}[...]")


def _check_fields(
    of: ClassOf | TupleOf, checks: list[tuple[int, str, Validator]], values: list[Any], path: str
) -> None:
    try:
        columns = of.to_lists(values)
    except (RecordTypeError, AttributeError) as error:
        raise _at(error, path) from error
    for i, name, check in checks:
        check(columns[i], f"{path}.{name}")


def _at(why: object, path: str) -> RecordTypeError:
    return RecordTypeError(f"{why} - at `{path}`")
