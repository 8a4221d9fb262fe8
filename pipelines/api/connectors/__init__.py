"""Sources and sinks for Kafka topics, files and databases, and the formats of their records."""

from .database import DatabaseSink, DatabaseSource
from .files import FileSink, FileSource
from .formats import Format, Formats, SchemaRegistry
from .http import HttpSink
from .kafka import KafkaSink, KafkaSource, StartingOffsets
from .spark import SparkSink, SparkSource

__all__ = [
    "DatabaseSink",
    "DatabaseSource",
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
