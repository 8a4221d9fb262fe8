"""Formats of records as the values of Kafka messages: text, raw bytes, JSON and Avro.

A ValueReader decodes the values of a whole batch, a ValueWriter encodes the records of a batch. Both work on columns
where that is natural (text, raw) and on rows where it is not.
"""

from .factory import create_reader, create_writer
from .format import UnreadableValue, ValueFormat, ValueReader, ValueWriter, read_valid

__all__ = [
    "UnreadableValue",
    "ValueFormat",
    "ValueReader",
    "ValueWriter",
    "read_valid",
    "create_reader",
    "create_writer",
]
