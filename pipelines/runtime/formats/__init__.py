"""How records are written as the values of Kafka messages: text, raw bytes, JSON and Avro.

A Reader makes records of the values of a whole batch, a Writer the values of a batch's records. Both work on columns
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
