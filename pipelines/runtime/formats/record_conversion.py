"""Converts record types to types that msgspec can read and write, and back.

A shape is the type that msgspec decodes an object with fields into. A dataclass is its own shape. msgspec treats a
NamedTuple as an array, so its shape is a Struct of the same fields; the same holds for a type that contains a
NamedTuple.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from ...sentinels import class_hints
from ...types import PICKLED, ClassOf, ListOf, OptionalOf, RecordType, RecordTypeError, Scalar, TupleOf
from ..records.record_validation import ValidatorFactory, default_values

Convert = Callable[[Any], Any]

_LONG: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SCALARS: Final[dict[str, Any]] = {"str": str, "int": _LONG, "float": float, "bool": bool, "bytes": bytes}


class RecordConversion(msgspec.Struct, frozen=True):
    """`type` is for msgspec. The two conversions are None if a record is its own shape."""

    type: Any
    to_record: Convert | None = None
    of_record: Convert | None = None


def create_conversion(record_type: RecordType) -> RecordConversion:
    """Returns the conversion of records of the type for msgspec; Any for a type without a layout."""
    match record_type:
        case Scalar(kind):
            return RecordConversion(_SCALARS[kind])
        case OptionalOf(item):
            return _optional(create_conversion(item))
        case ListOf(item):
            return _list(create_conversion(item))
        case TupleOf(items):
            return _tuple([create_conversion(item) for item in items])
        case ClassOf():
            return _class(record_type)
        case _:
            return RecordConversion(Any)


def to_records(record_type: RecordType) -> Callable[[list[Any]], list[Any]]:
    """Returns the conversion of a batch of dicts and plain values to records of the type; it changes nothing for
    PICKLED.

    A tuple is a dict with the fields f0, f1, ... The conversion raises msgspec.ValidationError.
    """
    if record_type == PICKLED:
        return lambda data: data
    if isinstance(record_type, TupleOf):
        names = [name for name, _ in record_type.columns()]
        items = [to_records(of) for _, of in record_type.columns()]

        def tuples(data: list[Any]) -> list[Any]:
            columns = [item([datum[name] for datum in data]) for name, item in zip(names, items, strict=True)]
            return list(zip(*columns, strict=True))

        return tuples
    shape = create_conversion(record_type)
    many: Any = list[shape.type]  # type: ignore[name-defined]
    convert = shape.to_record

    def converted(data: list[Any]) -> list[Any]:
        records: list[Any] = msgspec.convert(data, many)
        return records if convert is None else list(map(convert, records))

    return converted


def _optional(item: RecordConversion) -> RecordConversion:
    def lifted(convert: Convert | None) -> Convert | None:
        return None if convert is None else lambda value: None if value is None else convert(value)

    return RecordConversion(item.type | None, lifted(item.to_record), lifted(item.of_record))


def _list(item: RecordConversion) -> RecordConversion:
    def lifted(convert: Convert | None) -> Convert | None:
        return None if convert is None else lambda value: [convert(element) for element in value]

    return RecordConversion(list[item.type], lifted(item.to_record), lifted(item.of_record))  # type: ignore[name-defined]


def _tuple(items: list[RecordConversion]) -> RecordConversion:
    def lifted(converts: list[Convert | None]) -> Convert | None:
        if not any(converts):
            return None
        steps = [convert or _same for convert in converts]
        return lambda value: tuple(step(element) for step, element in zip(steps, value, strict=True))

    return RecordConversion(
        tuple[tuple(item.type for item in items)],  # type: ignore[misc]
        lifted([item.to_record for item in items]),
        lifted([item.of_record for item in items]),
    )


def _class(record_type: ClassOf) -> RecordConversion:
    cls = record_type.cls
    shapes = [create_conversion(of) for _, of in record_type.fields]
    is_generic = bool(getattr(cls, "__parameters__", ()))  # its own hints do not have the types of the fields
    if record_type.form == "dataclass" and not is_generic and not any(shape.to_record for shape in shapes):
        return RecordConversion(cls)
    hints = {} if is_generic else class_hints(cls)
    defaults = _defaults(cls)
    names = [name for name, _ in record_type.fields]
    fields = []
    for name, shape in zip(names, shapes, strict=True):
        of = hints.get(name, Any) if shape.type is Any else shape.type
        fields.append((name, of, defaults[name]) if name in defaults else (name, of))
    # Positional order is the order of the fields; keyword-only, because a field with a default may come before one
    # without.
    struct = msgspec.defstruct(cls.__name__, fields, kw_only=True)
    into = [shape.to_record or _same for shape in shapes]
    back = [shape.of_record or _same for shape in shapes]
    get = [operator.attrgetter(name) for name in names]

    def to_record(value: Any) -> Any:
        try:
            return cls(**{name: step(g(value)) for name, step, g in zip(names, into, get, strict=True)})
        except (AttributeError, TypeError, ValueError) as error:
            # A decoded object has all fields of its type; a default may be anything.
            why = f"the default of a field of {cls.__name__} is not of the field's type: {error}"
            raise RecordTypeError(why) from error

    def of_record(record: Any) -> Any:
        return struct(**{name: step(g(record)) for name, step, g in zip(names, back, get, strict=True)})

    return RecordConversion(struct, to_record, of_record)


def _defaults(cls: type) -> dict[str, Any]:
    return {name: _default(default) for name, default in default_values(cls).items()}


def _default(default: Any) -> Any:
    if isinstance(default, ValidatorFactory):
        return msgspec.field(default_factory=default.make)
    if isinstance(default, (list, dict, set, bytearray)):  # msgspec refuses it
        return msgspec.field(default_factory=functools.partial(copy.deepcopy, default))
    return default


def _same(value: Any) -> Any:
    return value
