"""Creates the reader and the writer of a format."""

from __future__ import annotations

from pathlib import Path

from ...types import RecordType
from .avro_format import AvroReader, AvroWriter
from .csv_format import CsvReader, CsvWriter
from .debezium_format import DebeziumReader
from .format import FormatKind, MessagePart, ValueFormat, ValueReader, ValueWriter
from .json_format import JsonReader, JsonWriter
from .json_schema_format import JsonSchemaReader, JsonSchemaWriter
from .protobuf_format import ProtobufReader, ProtobufWriter
from .text import RawReader, RawWriter, TextReader, TextWriter


def create_reader(of: ValueFormat, record_type: RecordType, cache: Path | None = None) -> ValueReader:
    """Creates a reader of values into records of the type. `cache` is a directory for answers of a schema registry.

    Raises TaskError, with a remedy, if the format cannot be read.
    """
    match of.kind:
        case FormatKind.TEXT:
            return TextReader()
        case FormatKind.RAW:
            return RawReader()
        case FormatKind.CSV:
            return CsvReader(of, record_type)
        case FormatKind.JSON:
            return JsonReader(record_type)
        case FormatKind.JSON_SCHEMA:
            return JsonSchemaReader(of, record_type, cache)
        case FormatKind.DEBEZIUM_JSON:
            return DebeziumReader(record_type)
        case FormatKind.AVRO:
            return AvroReader(of, record_type, cache)
        case FormatKind.PROTOBUF:
            return ProtobufReader(of, record_type, cache)


def create_writer(
    of: ValueFormat, record_type: RecordType, topic: str, part: MessagePart = MessagePart.VALUE
) -> ValueWriter:
    """Creates a writer of records of the type as values or keys for the topic. Raises TaskError like
    `create_reader`."""
    match of.kind:
        case FormatKind.TEXT:
            return TextWriter(record_type)
        case FormatKind.RAW:
            return RawWriter(record_type)
        case FormatKind.CSV:
            return CsvWriter(of, record_type)
        case FormatKind.JSON | FormatKind.DEBEZIUM_JSON:
            return JsonWriter(record_type)
        case FormatKind.JSON_SCHEMA:
            return JsonSchemaWriter(of, record_type, topic, part)
        case FormatKind.AVRO:
            return AvroWriter(of, record_type, topic, part)
        case FormatKind.PROTOBUF:
            return ProtobufWriter(of, record_type, topic, part)
