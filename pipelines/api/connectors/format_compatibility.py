"""Checks when the program is built whether a format can hold records of a type."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
import msgspec.inspect

from ...functions.change_event import ChangeEvent
from ...functions.kafka_record import kafka_record_type, key_and_value_types, without_none
from ...graph.bucket_elements import is_pattern
from ...graph.errors import ProgramError
from ...sql.spark import to_spark_type
from ...types import PICKLED, ClassOf, ListOf, OptionalOf, RecordType, Scalar, TupleOf, Types
from ..source_location import caller_location
from .files import FileSink, FileSource
from .formats import Format
from .kafka import KafkaSink, KafkaSource
from .message_fields import find_field_errors
from .spark import SparkSource

_UNDECLARED: Final[tuple[object, ...]] = (None, Any, object, dict)


def source_record_type(source: KafkaSource) -> RecordType:
    """Returns the type of a Kafka source's records: the declared type; where it says nothing, that of the format."""
    if source.output_type is None:
        return source.value_format.natural_type()
    of = RecordType.of(source.output_type)
    parts = key_and_value_types(of)
    if parts is None or source.key_format is None:
        return of
    key, value = parts
    if key == PICKLED:
        key = Types.OPTIONAL(source.key_format.natural_type())
    if value == PICKLED:
        value = source.value_format.natural_type()
        if source.on_tombstone == "read":
            value = Types.OPTIONAL(value)
    return kafka_record_type(key, value)


def check_source(source: KafkaSource | FileSource, records: RecordType, step: str) -> None:
    """Raises ProgramError if the source cannot read such records."""
    if isinstance(source, SparkSource):
        _check_read_by_spark(source, records, step)
        return
    if isinstance(source, FileSource):
        _check_readable(source.format, source.output_type, records, step)
        if source.format == "text":
            _check_plain("text", "str", records, step)
        if source.format == "protobuf":
            _check_fields(source.message, records, step, is_sink=False)
        if source.format == "csv" and records != PICKLED:
            _check_csv(records, step)
        return
    parts = key_and_value_types(records)
    if parts is None or source.key_format is None:
        _check_reads(source.value_format, source.output_type, records, step)
        return
    hints = get_args(source.output_type) or (None, None)
    for part, form, hint, of in zip(
        ("key", "value"), (source.key_format, source.value_format), hints, parts, strict=True
    ):
        with _part_named(part):
            _check_reads(form, hint, without_none(of), step)


def check_sink(sink: KafkaSink | FileSink, records: RecordType, step: str) -> None:
    """Raises ProgramError if the sink cannot write such records."""
    if isinstance(sink, FileSink):
        if sink.format == "avro":
            _check_declared(records, step)
        if sink.format == "protobuf":
            _check_fields(sink.message, records, step, is_sink=True)
        _check_bucket(sink, records, step)
        if sink.format in ("csv", "spark-csv"):
            _check_csv(records, step)
            if records == RecordType.of(list[str]):
                raise _refusal(step, "a CSV file has named columns, and list[str] has none: declare a class")
        return
    parts = key_and_value_types(records)
    if parts is None:
        check_writes(sink.value_format, records, step)
    else:
        with _part_named("value"):
            check_writes(sink.value_format, without_none(parts[1]), step)


def _check_bucket(sink: FileSink, records: RecordType, step: str) -> None:
    fields = [element for element in sink.bucket if not is_pattern(element)]
    if not fields or records == PICKLED:
        return
    columns = dict(records.columns()) if isinstance(records, ClassOf | TupleOf) else {}
    for field in fields:
        if field not in columns:
            there = ", ".join(columns) or "no fields"
            raise _refusal(step, f"the bucket {field!r} is no field of {records}, which has {there}")
        of = without_none(columns[field])
        if not isinstance(of, Scalar) or of == Scalar("bytes"):
            raise _refusal(step, f"the bucket {field!r} is {of}: a directory names a str, int, float or bool")
    if len(fields) == len(columns) and sink.format not in ("text", "json", "avro", "protobuf"):
        raise _refusal(
            step, "the bucket names all fields, and its directories would have files without columns"
        )


def check_key(form: Format, keys: RecordType, step: str) -> None:
    """Raises ProgramError if a sink cannot write such keys."""
    with _part_named("key"):
        check_writes(form, without_none(keys), step)


def check_writes(form: Format, records: RecordType, step: str) -> None:
    """Raises ProgramError if the format cannot hold such records."""
    match form:
        case Format(kind="avro", schema=None):
            _check_declared(records, step)
        case Format(kind="raw") if records != PICKLED:
            _check_plain("raw", "bytes", records, step)
        case Format(kind="csv"):
            _check_csv(records, step)
        case Format(kind="debezium-json"):
            _check_change_event(records, step)
        case Format(kind="protobuf"):
            if form.message is None:
                raise _refusal(step, "a sink of Protobuf needs a message class: give it to Formats.protobuf")
            _check_fields(form.message, records, step, is_sink=True)
        case Format(kind="json-schema", schema=None) if records == PICKLED:
            raise _refusal(
                step,
                "no JSON Schema follows from records whose type is not declared: give a schema, or declare the"
                " output_type of the step that emits them",
            )
        case _:
            pass


def _check_csv(records: RecordType, step: str) -> None:
    if records == RecordType.of(list[str]):
        return
    for name, of in records.columns():
        if not isinstance(without_none(of), Scalar) or without_none(of) == Scalar("bytes"):
            raise _refusal(
                step,
                f"CSV has no values of type {of}, the type of {name!r}: declare str, int, float or bool, or use"
                " list[str]",
            )


def _check_read_by_spark(source: SparkSource, records: RecordType, step: str) -> None:
    if not isinstance(records, ClassOf):
        raise _refusal(
            step, f"Spark reads rows with named columns: declare a dataclass or NamedTuple, not {records}"
        )
    if source.format == "spark-csv":
        _check_csv(records, step)
    if source.format == "spark-json":
        for name, of in records.columns():
            if to_spark_type(of) is None:
                raise _refusal(
                    step,
                    f"Spark reads no values of type {of} from JSON, the type of {name!r}: declare str, int, float,"
                    " bool, bytes, a list or a class of these",
                )


def _check_fields(message: str | None, records: RecordType, step: str, *, is_sink: bool) -> None:
    if records != PICKLED and not isinstance(records, ClassOf):
        raise _refusal(
            step,
            f"Protobuf has messages, not records of type {records}: declare a dataclass or NamedTuple with the names of"
            " the fields",
        )
    if message is not None:
        for fault in find_field_errors(message, records, is_sink=is_sink):
            raise _refusal(step, fault)


def _check_change_event(records: RecordType, step: str) -> None:
    if not (isinstance(records, ClassOf) and records.source is ChangeEvent):
        raise _refusal(
            step,
            f"Debezium's format takes ChangeEvents, not records of type {records}: declare ChangeEvent[T]",
        )


def _check_reads(form: Format, hint: object, records: RecordType, step: str) -> None:
    _check_readable(form.kind, hint, records, step)
    match form:
        case Format(kind="text"):
            _check_plain("text", "str", records, step)
        case Format(kind="raw"):
            _check_plain("raw", "bytes", records, step)
        case Format(kind="csv"):
            _check_csv(records, step)
        case Format(kind="debezium-json"):
            _check_change_event(records, step)
        case Format(kind="protobuf"):
            _check_fields(form.message, records, step, is_sink=False)
        case Format(kind="avro", schema=None, framing="single-object" | "none"):
            _check_declared(records, step)
        case _:
            pass


@contextmanager
def _part_named(part: str) -> Iterator[None]:
    """Adds the part of the message to an error."""
    try:
        yield
    except ProgramError as error:
        raise ProgramError(
            f"the {part} of a message: {error.reason}", operator=error.operator, location=error.location
        ) from None


def _check_readable(kind: str, declared: object, records: RecordType, step: str) -> None:
    """Raises ProgramError if the reader cannot make records of the declared type: it would return dictionaries
    instead."""
    if kind not in ("json", "json-schema", "debezium-json", "avro", "protobuf", "parquet", "orc"):
        return
    for hint in _hints_without_layout(declared):
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
            if getattr(of.cls, "__parameters__", ()):
                for _, item in of.fields:
                    yield from _classes(item)
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
