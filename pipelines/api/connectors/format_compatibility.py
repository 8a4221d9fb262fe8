"""Whether records of a type can be read or written in a format: found when the program is built, not when it runs."""

from __future__ import annotations

from ...graph.errors import ProgramError
from ...types import PICKLED, ClassOf, ListOf, OptionalOf, RecordType, Scalar, TupleOf
from ..source_location import caller_location
from .files import FileSink, FileSource
from .formats import Format
from .kafka import KafkaSink, KafkaSource


def check_source(source: KafkaSource | FileSource, records: RecordType, step: str) -> None:
    """Raises ProgramError where what the source reads cannot be such records."""
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
    """Raises ProgramError where such records cannot be written to the sink."""
    match sink:
        case FileSink(format="avro"):
            _check_declared(records, step)
        case KafkaSink(value_format=Format(kind="avro", schema=None)):
            _check_declared(records, step)
        case KafkaSink(value_format=Format(kind="raw")) if records != PICKLED:
            _check_plain("raw", "bytes", records, step)
        case _:
            pass


def _check_plain(form: str, wanted: str, records: RecordType, step: str) -> None:
    if not (isinstance(records, Scalar) and records.kind == wanted):
        raise _refusal(step, f"the {form} format is of {wanted}, not of records of type {records}")


def _check_declared(records: RecordType, step: str) -> None:
    if not _is_declared(records):
        raise _refusal(
            step,
            f"no Avro schema follows from records of type {records}, which is not declared throughout:"
            " give a schema, or an output_type to the step that makes them",
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
