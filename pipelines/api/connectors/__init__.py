"""Where records come from and go to: what a program says of Kafka topics and files, and of the formats in them."""

from .files import FileSink, FileSource
from .formats import Format, Formats
from .kafka import KafkaSink, KafkaSource, StartingOffsets

__all__ = [
    "FileSink",
    "FileSource",
    "Format",
    "Formats",
    "KafkaSink",
    "KafkaSource",
    "StartingOffsets",
]
