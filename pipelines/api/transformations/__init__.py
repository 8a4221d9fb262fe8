"""Transformations: the steps that a program asks for, one small frozen class each.

A `Physical` one becomes an operator. A `Virtual` one only defines how records get from its inputs to the next operator:
their partitioning, a side output, or the union of several streams (PartitionTransformation, UnionTransformation,
SideOutputTransformation in Flink). Inputs are referenced by id, so that a changed copy can replace a transformation
after later ones have been created.

To add an operator: its traits in graph/operators.py, a class here, a method on a stream, and its execution in the
runtime.
"""

from .base import Physical, Surroundings, Transformation
from .keyed import Aggregate, KeyedProcess, PreAggregate, Reduce, RunningFunction, Window
from .sinks import Collect, Foreach, Print, WriteExternalKafka, WriteFiles, WriteKafka, WriteTransactions
from .sources import Collection, Generate, ReadCustom, ReadFiles, ReadKafka, SocketTextStream
from .stateless import AsyncMap, Filter, FlatMap, Map, MapBatches, Process, Select, Watermarks, Where
from .two_inputs import (
    BroadcastProcess,
    CoFlatMap,
    CoMap,
    CoProcess,
    EventTimeJoin,
    IntervalJoin,
    KeyedBroadcastProcess,
    KeyedCoProcess,
    TemporalJoin,
)
from .virtual import Partition, SideOutput, Union, Virtual

__all__ = [
    "Aggregate",
    "AsyncMap",
    "BroadcastProcess",
    "CoFlatMap",
    "CoMap",
    "CoProcess",
    "Collect",
    "Collection",
    "EventTimeJoin",
    "Filter",
    "FlatMap",
    "Foreach",
    "Generate",
    "IntervalJoin",
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
    "ReadCustom",
    "ReadFiles",
    "ReadKafka",
    "Reduce",
    "RunningFunction",
    "Select",
    "SideOutput",
    "SocketTextStream",
    "Surroundings",
    "TemporalJoin",
    "Transformation",
    "Union",
    "Virtual",
    "Watermarks",
    "Where",
    "Window",
    "WriteExternalKafka",
    "WriteFiles",
    "WriteKafka",
    "WriteTransactions",
]
