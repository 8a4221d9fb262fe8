"""What job authors write against: Flink's DataStream API, in Python's manners (document 004).

    env = StreamExecutionEnvironment.get_execution_environment()
    env.socket_text_stream("localhost", 9999).flat_map(split).key_by(word).window(...).reduce(add).print()
    env.execute("WindowWordCount")

A program only describes a job. `execute` translates it and hands the JobGraph to whoever runs the program:
`tailrace run` submits it, the jobmanager's entry-point builder captures it (`executor`).
"""

from ..graph.errors import ProgramError
from ..graph.stream_graph import ChainingStrategy
from ..types import RecordType, RecordTypeError, Types
from .environment import StreamExecutionEnvironment
from .executor import JobClient, JobExecutionResult, PipelineExecutor
from .streams import DataStream, DataStreamSink, KeyedStream, WindowedStream
from .windows import TumblingProcessingTimeWindows

__all__ = [
    "ChainingStrategy",
    "DataStream",
    "DataStreamSink",
    "JobClient",
    "JobExecutionResult",
    "KeyedStream",
    "PipelineExecutor",
    "ProgramError",
    "RecordType",
    "RecordTypeError",
    "StreamExecutionEnvironment",
    "TumblingProcessingTimeWindows",
    "Types",
    "WindowedStream",
]
