"""The functions of a program besides plain callables: rich functions, and functions with state and timers.

The API accepts them and the runtime calls them. Here are only contracts and plain data; the runtime implements
contexts.
"""

from .aggregate import AggregateFunction
from .aggregates import (
    Count,
    Max,
    Mean,
    Min,
    Sum,
)
from .async_function import (
    AsyncFunction,
    AsyncRetryStrategy,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
)
from .broadcast import (
    BroadcastContext,
    BroadcastOnTimerContext,
    BroadcastProcessFunction,
    KeyedBroadcastContext,
    KeyedBroadcastProcessFunction,
    KeyedReadOnlyBroadcastContext,
    ReadOnlyBroadcastContext,
)
from .change_event import ChangeEvent
from .checkpointed import CheckpointedFunction, FunctionInitializationContext, OperatorStateStore
from .context import Counter, KeyedStateStore, MetricGroup, RuntimeContext
from .custom_source import Source, SourceReader, SourceReaderContext, SourceRecords, SourceSplit
from .evictor import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    EvictorContext,
    TimeEvictor,
    TimestampedValue,
)
from .joins import (
    CoGroupFunction,
    JoinFunction,
    ProcessJoinContext,
    ProcessJoinFunction,
    TaggedUnion,
)
from .kafka_record import KafkaRecord
from .lookup import LookupCache
from .process import (
    Context,
    CoProcessFunction,
    KeyedContext,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OnTimerContext,
    ProcessFunction,
    TimerService,
)
from .rich import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    RichFunction,
    SinkFunction,
)
from .side_output import OutputTag
from .state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from .state_ttl import StateTtlConfig
from .transactional_sink import TransactionalSink
from .trigger import (
    OnMergeContext,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from .triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from .window import GlobalWindow, ProcessAllWindowFunction, ProcessWindowFunction, TimeWindow, WindowContext

__all__ = [
    "CountEvictor",
    "DeltaEvictor",
    "Evictor",
    "EvictorContext",
    "TimeEvictor",
    "TimestampedValue",
    "OnMergeContext",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Count",
    "Max",
    "Mean",
    "Min",
    "Sum",
    "GlobalWindow",
    "KeyedStateStore",
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AsyncFunction",
    "AsyncRetryStrategy",
    "BroadcastContext",
    "BroadcastOnTimerContext",
    "BroadcastProcessFunction",
    "BroadcastState",
    "ChangeEvent",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "Context",
    "Counter",
    "ExponentialBackoffDelayRetryStrategy",
    "FilterFunction",
    "FixedDelayRetryStrategy",
    "FlatMapFunction",
    "FunctionInitializationContext",
    "JoinFunction",
    "KafkaRecord",
    "KeyedBroadcastContext",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedContext",
    "KeyedProcessFunction",
    "KeyedReadOnlyBroadcastContext",
    "ListState",
    "ListStateDescriptor",
    "LookupCache",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "MetricGroup",
    "OnTimerContext",
    "OperatorStateStore",
    "OutputTag",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinContext",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReadOnlyBroadcastContext",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RichFunction",
    "RuntimeContext",
    "SinkFunction",
    "Source",
    "SourceReader",
    "SourceReaderContext",
    "SourceRecords",
    "SourceSplit",
    "StateDescriptor",
    "StateTtlConfig",
    "TaggedUnion",
    "TimeWindow",
    "TransactionalSink",
    "TimerService",
    "ValueState",
    "ValueStateDescriptor",
    "WindowContext",
]
