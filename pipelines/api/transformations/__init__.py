"""Transformations: what a program asked for, one small frozen class each.

A `Physical` one becomes an operator. A `Virtual` one only says how records get from its inputs to the next operator:
how they are partitioned, which side output they are, or that several streams are one (PartitionTransformation,
UnionTransformation, SideOutputTransformation in Flink). Inputs are named by id, so that a transformation can be
replaced by a changed copy after others have been built on it.

To add an operator: its traits in graph/operators.py, a class here, a method on a stream, and its work in the runtime.
"""

from .base import Physical, Surroundings, Transformation
from .keyed import Aggregate, KeyedProcess, PreAggregate, Reduce, RunningFunction, Window
from .sinks import Foreach, Print, WriteFiles, WriteKafka
from .sources import Collection, Generate, ReadFiles, ReadKafka, SocketTextStream
from .stateless import Filter, FlatMap, Map, MapBatches, Process, Watermarks
from .two_inputs import (
    BroadcastProcess,
    CoFlatMap,
    CoMap,
    CoProcess,
    KeyedBroadcastProcess,
    KeyedCoProcess,
)
from .virtual import Partition, SideOutput, Union, Virtual

__all__ = [
    "Aggregate",
    "BroadcastProcess",
    "CoFlatMap",
    "CoMap",
    "CoProcess",
    "Collection",
    "Filter",
    "FlatMap",
    "Foreach",
    "Generate",
    "KeyedBroadcastProcess",
    "KeyedCoProcess",
    "KeyedProcess",
    "Map",
    "MapBatches",
    "Partition",
    "Physical",
    "PreAggregate",
    "Print",
    "Process",
    "ReadFiles",
    "ReadKafka",
    "Reduce",
    "RunningFunction",
    "SideOutput",
    "SocketTextStream",
    "Surroundings",
    "Transformation",
    "Union",
    "Virtual",
    "Watermarks",
    "Window",
    "WriteFiles",
    "WriteKafka",
]
