"""Streams: what a program is written with. Each step adds a transformation to the program.

**Types.** What a function returns is laid out by its type hints (see `pipelines.types`), or by `output_type=` /
`returns()`; lambdas have no hints, so what they return is pickled unless it is declared.

**Functions** are any callables, or objects of the classes in `pipelines.functions`. Either may have `open(context)` and
`close()`, called once in each subtask before the first record and after the last.

Whatever is wrong with a step is a ProgramError that names it and the line of the call.
"""

from .data_stream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    SingleOutputStreamOperator,
    WindowedStream,
)

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "SingleOutputStreamOperator",
    "WindowedStream",
]
