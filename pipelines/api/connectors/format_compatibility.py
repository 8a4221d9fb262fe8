"""Checks when the program is built whether a format can hold records of a type."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
import msgspec.inspect

from ...graph.errors import ProgramError
from ...types import PICKLED, ClassOf, ListOf, OptionalOf, RecordType, Scalar, TupleOf
from ..source_location import caller_location
from .files import FileSink, FileSource
from .formats import Format
from .kafka import KafkaSink, KafkaSource

_UNDECLARED: Final[tuple[object, ...]] = (None, Any, object, dict)


def check_source(source: KafkaSource | FileSource, records: RecordType, step: str) -> None:
    """Raises ProgramError if the source cannot read such records."""
    _check_readable(source, records, step)
    match source:
        case FileSource(format="text"):
            _check_plain("text", "str", records, step)
        case KafkaSource(value_format=Format(kind="text")):
            _check_plain("text", "str", records, step)
        case KafkaSource(value_format=Format(kind="raw")):
            _check_plain("raw", "bytes", records, step)
        case KafkaSource(value_format=Format(kind="avro", schema=None, framing="single-object" | "none")):
            _check_declared(records, step)
        case _:
            pass


def check_sink(sink: KafkaSink | FileSink, records: RecordType, step: str) -> None:
    """Raises ProgramError if the sink cannot write such records."""
    match sink:
        case FileSink(format="avro"):
            _check_declared(records, step)
        case KafkaSink(value_format=Format(kind="avro", schema=None)):
            _check_declared(records, step)
        case KafkaSink(value_format=Format(kind="raw")) if records != PICKLED:
            _check_plain("raw", "bytes", records, step)
        case _:
            pass


def _check_readable(source: KafkaSource | FileSource, records: RecordType, step: str) -> None:
    """Raises ProgramError if the reader cannot make records of the declared type: it would return dictionaries
    instead."""
    kind = source.format if isinstance(source, FileSource) else source.value_format.kind
    if kind not in ("json", "avro", "parquet"):
        return
    for hint in _hints_without_layout(source.output_type):
        raise _refusal(
            step,
            f"it cannot read {kind} into {_shown(hint)}: declare a dataclass or NamedTuple that its fields alone create"
            " (without __post_init__, InitVar, field(init=False) or an __init__ of its own), or omit output_type"
            " and create the objects from dictionaries in a map",
        )
    for each in _classes(records):
        if (reason := _undecodable(each)) is not None:
            raise _refusal(step, f"it cannot read {kind} into records of type {each.__name__}: {reason}")


def _hints_without_layout(hint: object) -> Iterator[object]:
    """Yields the parts of a type hint, outside of classes, that a reader would ignore."""
    if isinstance(hint, RecordType) or hint in _UNDECLARED:
        return
    if RecordType.of(hint) == PICKLED:
        yield hint
        return
    arguments = get_args(hint)
    for each in arguments[:1] if get_origin(hint) is Annotated else arguments:
        if each is not NoneType:
            yield from _hints_without_layout(each)


def _classes(of: RecordType) -> Iterator[type]:
    match of:
        case OptionalOf(item=item) | ListOf(item=item):
            yield from _classes(item)
        case TupleOf(items=items):
            for item in items:
                yield from _classes(item)
        case ClassOf():
            yield of.cls  # and the types of all its fields
        case _:
            pass


def _undecodable(cls: type) -> str | None:
    """Returns why values cannot become objects of the class; None if they can."""
    try:
        found = msgspec.inspect.type_info(cls)
    except (NameError, AttributeError) as error:
        return f"the type of a field is not known when the program runs: {error}; import it outside of TYPE_CHECKING"
    except TypeError as error:
        return f"{error}"
    pending, seen = [found], {id(found)}
    while pending:
        part = pending.pop()
        if isinstance(part, msgspec.inspect.CustomType):
            return f"one of its fields is of {_shown(part.cls)}, a type that values cannot be read into"
        for value in msgspec.structs.asdict(part).values():
            inner = value if isinstance(value, tuple) else (value,)
            for one in inner:
                each = one.type if isinstance(one, msgspec.inspect.Field) else one
                if isinstance(each, msgspec.inspect.Type) and id(each) not in seen:
                    seen.add(id(each))
                    pending.append(each)
    return None


def _shown(hint: object) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _check_plain(form: str, wanted: str, records: RecordType, step: str) -> None:
    if not (isinstance(records, Scalar) and records.kind == wanted):
        raise _refusal(step, f"the {form} format takes {wanted}, not records of type {records}")


def _check_declared(records: RecordType, step: str) -> None:
    if not _is_declared(records):
        raise _refusal(
            step,
            f"no Avro schema follows from records of type {records}, which is not completely declared:"
            " give a schema, or declare the output_type of the step that emits them",
        )


def _is_declared(of: RecordType) -> bool:
    match of:
        case OptionalOf(item=item) | ListOf(item=item):
            return _is_declared(item)
        case TupleOf(items=items):
            return all(map(_is_declared, items))
        case ClassOf(fields=fields):
            return all(_is_declared(item) for _, item in fields)
        case _:
            return of != PICKLED


def _refusal(step: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=step, location=caller_location())
