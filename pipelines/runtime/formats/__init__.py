"""Formats of records as the values of Kafka messages: text, raw bytes, JSON and Avro.

A ValueReader decodes the values of a whole batch, a ValueWriter encodes the records of a batch. Both work on columns
where that is natural (text, raw) and on rows where it is not.
"""

from .factory import create_reader, create_writer
from .format import MessagePart, UnreadableValue, ValueFormat, ValueReader, ValueWriter, read_valid
from .message_reader import MessageReader, create_message_reader

__all__ = [
    "MessagePart",
    "MessageReader",
    "UnreadableValue",
    "ValueFormat",
    "ValueReader",
    "ValueWriter",
    "read_valid",
    "create_message_reader",
    "create_reader",
    "create_writer",
]
