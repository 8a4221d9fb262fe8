"""Where streams end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...functions import SinkFunction
from .. import signatures
from ..connectors import FileSink, KafkaSink
from ..connectors.format_compatibility import check_sink
from ..connectors.source_names import paths_name, topics_name
from ..keys import field_selector
from ..signatures import check_function
from ..source_location import caller_location
from ..transformations import Foreach, Print, WriteFiles, WriteKafka
from .settings import refusal
from .stream import Stream

if TYPE_CHECKING:
    from .operator import DataStreamSink

T = TypeVar("T")


class Sinks(Stream[T]):
    """Part of DataStream."""

    def print(self, identifier: str | None = None) -> DataStreamSink:
        """Each record as text to the job's output, after the identifier if there is one."""
        return self._into(Print, "print", "Sink: Print", identifier=identifier)

    def foreach(self, function: Callable[[T], Any] | SinkFunction[T]) -> DataStreamSink:
        """Each record to a function, at least once: after a failure, some are given to it again."""
        self._checked("foreach", function, signatures.SINK, None)
        return self._into(Foreach, "foreach", "Sink: Foreach", function=function)

    def sink_to(self, sink: FileSink | KafkaSink) -> DataStreamSink:
        """Each record to files or a Kafka topic, exactly once."""
        if isinstance(sink, (FileSink, KafkaSink)):
            check_sink(sink, self.record_type, "sink_to")
        match sink:
            case FileSink():
                return self._into(WriteFiles, "sink_to", paths_name("Sink: Files", [sink.path]), sink=sink)
            case KafkaSink(key=str() as field):
                key: Any = field_selector(self.record_type, field, "sink_to")
                return self._into(
                    WriteKafka, "sink_to", topics_name("Sink: Kafka", [sink.topic]), sink=sink, key=key
                )
            case KafkaSink(key=key):
                if key is not None:
                    location = caller_location()
                    check_function(key, signatures.SELECTOR, operator="sink_to", location=location)
                return self._into(
                    WriteKafka, "sink_to", topics_name("Sink: Kafka", [sink.topic]), sink=sink, key=key
                )
            case _:
                raise refusal("sink_to", f"it needs a FileSink or a KafkaSink, not {sink!r}")
