"""Names of Flink's and PyFlink's that are not here: whoever writes one is told what to write instead.

`__getattr__` of the classes of programs calls `advise`, so it costs nothing until a name is missing. Type checkers do
not see it: they report the name as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NoReturn

_CONSTRUCTOR = "its settings are arguments of the class"
_PLAN = "run tailrace plan PROGRAM.py, or show the environment in a notebook"
_LEGACY_SINK = "use `sink_to` or `foreach`"
_SECONDS = "write `seconds=5` or a timedelta"

INSTEAD: Final[Mapping[str, str]] = {
    # of the environment
    "enable_checkpointing": "use `configure`, as in configure('execution.checkpointing.interval', '30 s')",
    "get_checkpoint_config": "use `configure` with the options execution.checkpointing.*",
    "set_state_backend": "use `configure`, as in configure('state.backend.type', 'rocksdb')",
    "set_restart_strategy": "use `configure` with the options restart-strategy.*",
    "get_config": "use `configure`",
    "get_execution_plan": _PLAN,
    "explain": _PLAN,
    "read_json": "use `from_source` with a `SparkSource` of json, or `read_text_file` and json.loads",
    "set_stream_time_characteristic": "event time begins with a `WatermarkStrategy`",
    "add_jars": "connectors are part of tailrace",
    "add_source": "use `from_source`",
    "from_elements": "use `from_collection`",
    "from_data_stream": "use `create_temporary_view`",
    "sql_query": "use `sql`",
    "execute_sql": "use `sql`; sources and sinks are those of streams",
    "to_data_stream": "the result of `sql` is a stream",
    # of streams
    "add_sink": _LEGACY_SINK,
    "WindowedStream.apply": "use `process`, whose function is called with key, context and elements",
    "AllWindowedStream.apply": "use `process`, whose function is called with context and elements",
    "IntervalJoinStreams.process": "call `between` before it",
    "JoinEqualTo.apply": "call `window` before it",
    "JoinedStreams.window": "call `where` and equal_to before it",
    "CoGroupedStreams.window": "call `where` and equal_to before it",
    "time_window": "use `window`",
    "project": "use `select` or `map`",
    "print_to_err": "use `print`",
    "write_as_text": "use `sink_to` with a `FileSink`",
    "write_as_csv": "use `sink_to` with a `FileSink`",
    "iterate": "there are no loops of streams",
    "split": "use `process` and side outputs",
    "infer": "use `map_batches` with a function that loads the model once",
    "set_description": "use `name`",
    # of contexts
    "get_current_key": "read the property `current_key`",
    "get_state": "request state in open, from its context",
    # of classes
    "builder": _CONSTRUCTOR,
    "for_row_format": _CONSTRUCTOR,
    "for_bulk_format": _CONSTRUCTOR,
    "for_record_stream_format": _CONSTRUCTOR,
    "for_bulk_file_format": _CONSTRUCTOR,
    "no_watermarks": "leave the strategy out",
    "for_generator": "use `for_bounded_out_of_orderness`",
    "ROW": "use `TUPLE`, or a NamedTuple",
    "ROW_NAMED": "use a NamedTuple or a dataclass",
    "MAP": "use `PICKLED_BYTE_ARRAY`, or a class with the fields",
    "PRIMITIVE_ARRAY": "use `BYTES` or `LIST`",
    "BASIC_ARRAY": "use `LIST`",
    "OBJECT_ARRAY": "use `LIST`",
    "SHORT": "use `INT`",
    "BYTE": "use `INT`, or `BYTES` for bytes",
    "BIG_INT": "use `PICKLED_BYTE_ARRAY`, or `LONG` for 64 bits",
    "BIG_DEC": "use `PICKLED_BYTE_ARRAY`",
    # of the package
    "AllWindowFunction": "use `ProcessAllWindowFunction`, or a function of context and elements",
    "AsyncDataStream": "use `async_map` of a stream",
    "CheckpointingMode": "it is exactly once, always",
    "Duration": _SECONDS,
    "Encoder": "use the format of a `FileSink`",
    "FlinkKafkaConsumer": "use `KafkaSource`",
    "FlinkKafkaProducer": "use `KafkaSink`",
    "JdbcSink": "use `DatabaseSink`",
    "KafkaOffsetsInitializer": "use `StartingOffsets`",
    "KafkaRecordSerializationSchema": "use the arguments of a `KafkaSink`",
    "KeySelector": "use a function of the record, or a field",
    "NumberSequenceSource": "use `generate`",
    "OutputFileConfig": "use the arguments of a `FileSink`",
    "RollingPolicy": "use the arguments of a `FileSink`",
    "Row": "use a tuple or a NamedTuple",
    "SessionWindowTimeGapExtractor": "use a function of the record",
    "SimpleStringSchema": "use `Formats`, as in Formats.text()",
    "StreamTableEnvironment": "use `StreamExecutionEnvironment`, which has sql and create_temporary_view",
    "TableEnvironment": "use `StreamExecutionEnvironment`, which has sql and create_temporary_view",
    "Time": _SECONDS,
    "TimeDomain": "`time_domain` of a context is 'event-time' or 'processing-time'",
    "TimestampAssigner": "use a function of the record, or a field",
    "WindowFunction": "use `ProcessWindowFunction`, or a function of key, context and elements",
}
"""Name, or class and name -> what to write. What is in backticks exists."""
NEED_KEYS: Final = frozenset(
    (
        "reduce",
        "sum",
        "min",
        "max",
        "min_by",
        "max_by",
        "window",
        "count_window",
        "interval_join",
        "temporal_join",
    )
)
"""Methods of keyed streams only."""

_PAGE = "docs/datastream-api.md, 'If you know Flink'"
_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")


def advise(owner: object, name: str) -> NoReturn:
    """Raises AttributeError for a missing attribute, with what to write instead of a name of Flink's."""
    kind = owner if isinstance(owner, type) else type(owner)
    snake = _HUMP.sub(lambda hump: f"_{hump[1].lower()}", name)
    advice = INSTEAD.get(f"{kind.__name__}.{name}") or INSTEAD.get(name)
    if advice is not None:
        raise AttributeError(f"{kind.__name__} has no {name}: {advice.replace('`', '')} ({_PAGE})")
    if snake != name and hasattr(kind, snake):
        raise AttributeError(f"{kind.__name__} has no {name}: write {snake}")
    raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)


class FlinkNames(type):
    """The type of classes whose missing attributes are explained."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            advise(cls, name)
