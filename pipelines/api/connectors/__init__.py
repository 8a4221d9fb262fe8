"""Sources and sinks for Kafka topics and files, and the formats of their records."""

from .files import FileSink, FileSource
from .formats import Format, Formats, SchemaRegistry
from .http import HttpSink
from .kafka import KafkaSink, KafkaSource, StartingOffsets
from .spark import SparkSink, SparkSource

__all__ = [
    "FileSink",
    "FileSource",
    "Format",
    "Formats",
    "HttpSink",
    "KafkaSink",
    "KafkaSource",
    "SchemaRegistry",
    "SparkSink",
    "SparkSource",
    "StartingOffsets",
]
