"""What job authors write against: Flink's DataStream API, in Python's manners (document 004).

    env = StreamExecutionEnvironment.get_execution_environment()
    env.socket_text_stream("localhost", 9999).flat_map(split).key_by(word).window(...).reduce(add).print()
    env.execute("WindowWordCount")

A program only describes a job. `execute` translates it and hands the JobGraph to whoever runs the program:
`tailrace run` submits it, the jobmanager's entry-point builder captures it (`executor`). docs/datastream-api.md shows
all of it.
"""

from ..functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    Context,
    CoProcessFunction,
    Counter,
    FilterFunction,
    FlatMapFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListState,
    ListStateDescriptor,
    MapFunction,
    MapState,
    MapStateDescriptor,
    OnTimerContext,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    TimeWindow,
    ValueState,
    ValueStateDescriptor,
    WindowContext,
)
from ..functions.files import shipped_file
from ..graph.errors import ProgramError
from ..graph.stream_graph import ChainingStrategy
from ..types import RecordType, RecordTypeError, Types
from .connectors import FileSink, FileSource, Format, Formats, KafkaSink, KafkaSource, StartingOffsets
from .environment import StreamExecutionEnvironment
from .executor import CheckpointFailedError, JobClient, JobExecutionResult, PipelineExecutor
from .streams import (
    AllWindowedStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    SingleOutputStreamOperator,
    WindowedStream,
)
from .watermark_strategy import WatermarkStrategy
from .windows import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)

__all__ = [
    "CheckpointFailedError",
    "AggregateFunction",
    "AllWindowedStream",
    "ChainingStrategy",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "Context",
    "Counter",
    "DataStream",
    "DataStreamSink",
    "EventTimeSessionWindows",
    "FileSink",
    "FileSource",
    "FilterFunction",
    "FlatMapFunction",
    "Format",
    "Formats",
    "JobClient",
    "JobExecutionResult",
    "KafkaSink",
    "KafkaSource",
    "KeyedCoProcessFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "OnTimerContext",
    "OutputTag",
    "PipelineExecutor",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProgramError",
    "RecordType",
    "RecordTypeError",
    "ReduceFunction",
    "RuntimeContext",
    "SingleOutputStreamOperator",
    "SinkFunction",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "StartingOffsets",
    "StreamExecutionEnvironment",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowContext",
    "WindowedStream",
    "shipped_file",
]
