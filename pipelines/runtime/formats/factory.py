"""From a Format to its Reader and Writer."""

from __future__ import annotations

from pathlib import Path

from ...types import RecordType
from .avro_format import AvroReader, AvroWriter
from .format import FormatKind, ValueFormat, ValueReader, ValueWriter
from .json_format import JsonReader, JsonWriter
from .text import RawReader, RawWriter, TextReader, TextWriter


def create_reader(of: ValueFormat, record_type: RecordType, cache: Path | None = None) -> ValueReader:
    """What reads values into records of the type; `cache` is a directory for what a schema registry has said.

    Raises TaskError where the format cannot be read, with what to do.
    """
    match of.kind:
        case FormatKind.TEXT:
            return TextReader()
        case FormatKind.RAW:
            return RawReader()
        case FormatKind.JSON:
            return JsonReader(record_type)
        case FormatKind.AVRO:
            return AvroReader(of, record_type, cache)


def create_writer(of: ValueFormat, record_type: RecordType, topic: str) -> ValueWriter:
    """What writes records of the type as values for the topic. Raises TaskError as `reader_of`."""
    match of.kind:
        case FormatKind.TEXT:
            return TextWriter(record_type)
        case FormatKind.RAW:
            return RawWriter(record_type)
        case FormatKind.JSON:
            return JsonWriter(record_type)
        case FormatKind.AVRO:
            return AvroWriter(of, record_type, topic)
