"""How records are written as the values of Kafka messages: text, raw bytes, JSON and Avro.

A Reader makes records of the values of a whole batch, a Writer the values of a batch's records. Both work on columns
where that is natural (text, raw) and on rows where it is not.
"""

from .factory import reader_of, writer_of
from .format import BadValue, Format, Reader, Writer, read_good

__all__ = ["BadValue", "Format", "Reader", "Writer", "read_good", "reader_of", "writer_of"]
