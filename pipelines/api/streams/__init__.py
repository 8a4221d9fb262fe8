"""Streams, the objects that a program is written with. Each step adds a transformation to the program.

**Types.** The type hints of a function define the layout of its results (see `pipelines.types`), or `output_type=` /
`returns()` do. Lambdas have no hints: their results are pickled unless the type is declared.

**Functions** are any callables, or objects of the classes in `pipelines.functions`. Both may have `open(context)` and
`close()`, called once in each subtask before the first record and after the last.

An error in a step is a ProgramError that names the step and the line of the call.
"""

from .data_stream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    CoGroupedStreams,
    ConnectedStreams,
    DataStream,
    IntervalJoined,
    JoinedStreams,
    KeyedStream,
    SingleOutputStreamOperator,
    TemporalJoined,
    WindowedStream,
)
from .stream import DataStreamSink

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CoGroupedStreams",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "IntervalJoined",
    "JoinedStreams",
    "KeyedStream",
    "SingleOutputStreamOperator",
    "TemporalJoined",
    "WindowedStream",
]
