"""Creates an operator from its OperatorConfig. A new operator of the runtime starts with a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ...graph.operators import OperatorKind
from ...types import PICKLED, RecordType
from .aggregate import AggregateOperator
from .async_map import AsyncMapOperator
from .broadcast_process import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from .chain import StatelessPipeline
from .co_map import CoFlatMapOperator, CoMapOperator
from .co_process import CoProcessOperator
from .external_kafka_sink import ExternalKafkaSinkOperator
from .file_sink import FileSinkOperator
from .foreach import ForeachOperator
from .interval_join import IntervalJoinOperator
from .kafka_sink import KafkaSinkOperator
from .keyed_process import KeyedCoProcessOperator, KeyedProcessOperator
from .map_batches import MapBatchesOperator
from .operator import Operator, OperatorSetup
from .pre_aggregate import PreAggregateOperator
from .print_sink import PrintSinkOperator
from .process import ProcessOperator
from .running_aggregate import RunningReduce
from .sql import SelectOperator, WhereOperator
from .stateless import FilterOperator, FlatMapOperator, MapOperator
from .task_context import TaskContext
from .temporal_join import TemporalJoinOperator
from .transactional_sink import TransactionalSinkOperator
from .watermarks import TimestampAssigner, WatermarkAssigner
from .window import window

OPERATORS: Final[Mapping[OperatorKind, Callable[[OperatorSetup], Operator]]] = MappingProxyType(
    {
        OperatorKind.MAP: MapOperator,
        OperatorKind.FLAT_MAP: FlatMapOperator,
        OperatorKind.FILTER: FilterOperator,
        OperatorKind.WHERE: WhereOperator,
        OperatorKind.SELECT: SelectOperator,
        OperatorKind.MAP_BATCHES: MapBatchesOperator,
        OperatorKind.PRE_AGGREGATE: PreAggregateOperator,
        OperatorKind.WATERMARKS: WatermarkAssigner,
        OperatorKind.PROCESS: ProcessOperator,
        OperatorKind.ASYNC_MAP: AsyncMapOperator,
        OperatorKind.REDUCE: RunningReduce,
        OperatorKind.AGGREGATE: AggregateOperator,
        OperatorKind.KEYED_PROCESS: KeyedProcessOperator,
        OperatorKind.WINDOW: window,
        OperatorKind.CO_MAP: CoMapOperator,
        OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
        OperatorKind.CO_PROCESS: CoProcessOperator,
        OperatorKind.KEYED_CO_PROCESS: KeyedCoProcessOperator,
        OperatorKind.INTERVAL_JOIN: IntervalJoinOperator,
        OperatorKind.TEMPORAL_JOIN: TemporalJoinOperator,
        OperatorKind.BROADCAST_PROCESS: BroadcastProcessOperator,
        OperatorKind.KEYED_BROADCAST_PROCESS: KeyedBroadcastProcessOperator,
        OperatorKind.PRINT: PrintSinkOperator,
        OperatorKind.FILE_SINK: FileSinkOperator,
        OperatorKind.FOREACH: ForeachOperator,
        OperatorKind.KAFKA_SINK: KafkaSinkOperator,
        OperatorKind.EXTERNAL_KAFKA_SINK: ExternalKafkaSinkOperator,
        OperatorKind.TRANSACTIONAL_SINK: TransactionalSinkOperator,
    }
)
"""All operators except sources."""


def build_operator(setup: OperatorSetup) -> Operator:
    """Builds the operator of a configuration. Raises UserCodeError, ValueError."""
    config = setup.config
    make = OPERATORS.get(OperatorKind(config.kind))
    if make is None:
        raise ValueError(f"operator {config.name!r} of kind {config.kind} cannot run here")
    return make(setup)


def build_prefix(configs: Sequence[OperatorConfig], input_type: RecordType = PICKLED) -> StatelessPipeline:
    """Builds the stateless prefix of a vertex, for Spark's Python workers. Raises UserCodeError, ValueError."""
    operators: list[Operator] = []
    for config in configs:
        context = TaskContext(operator_name=config.name)
        setup = OperatorSetup(config, context, "", "", _nothing_to_send, (input_type,))
        assigns = config.kind == OperatorKind.WATERMARKS
        operators.append(TimestampAssigner(setup) if assigns else build_operator(setup))
        input_type = output_type(config)
    return StatelessPipeline(operators, configs[-1] if configs else None)


def _nothing_to_send(topic: str, *_: Any, **__: Any) -> None:
    raise TypeError(f"a stateless operator cannot send to {topic}")
