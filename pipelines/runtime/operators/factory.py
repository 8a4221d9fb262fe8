"""From an OperatorConfig to the operator that does it. A new operator of the runtime starts with a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ...graph.operators import OperatorKind
from ...types import PICKLED, RecordType
from .aggregate import Aggregate
from .broadcast_process import BroadcastProcess, KeyedBroadcastProcess
from .chain import StatelessPipeline
from .co_map import CoFlatMap, CoMap
from .co_process import CoProcess
from .file_sink import FileSink
from .foreach import Foreach
from .kafka_sink import KafkaSink
from .keyed_process import KeyedCoProcess, KeyedProcess
from .map_batches import MapBatches
from .operator import Operator, OperatorSetup
from .pre_aggregate import PreAggregate
from .print_sink import PrintSink
from .process import Process
from .running_aggregate import RunningReduce
from .stateless import Filter, FlatMap, Map
from .task_context import TaskContext
from .watermarks import WatermarkAssigner
from .window import window

OPERATORS: Final[Mapping[OperatorKind, Callable[[OperatorSetup], Operator]]] = MappingProxyType(
    {
        OperatorKind.MAP: Map,
        OperatorKind.FLAT_MAP: FlatMap,
        OperatorKind.FILTER: Filter,
        OperatorKind.MAP_BATCHES: MapBatches,
        OperatorKind.PRE_AGGREGATE: PreAggregate,
        OperatorKind.WATERMARKS: WatermarkAssigner,
        OperatorKind.PROCESS: Process,
        OperatorKind.REDUCE: RunningReduce,
        OperatorKind.AGGREGATE: Aggregate,
        OperatorKind.KEYED_PROCESS: KeyedProcess,
        OperatorKind.WINDOW: window,
        OperatorKind.CO_MAP: CoMap,
        OperatorKind.CO_FLAT_MAP: CoFlatMap,
        OperatorKind.CO_PROCESS: CoProcess,
        OperatorKind.KEYED_CO_PROCESS: KeyedCoProcess,
        OperatorKind.BROADCAST_PROCESS: BroadcastProcess,
        OperatorKind.KEYED_BROADCAST_PROCESS: KeyedBroadcastProcess,
        OperatorKind.PRINT: PrintSink,
        OperatorKind.FILE_SINK: FileSink,
        OperatorKind.FOREACH: Foreach,
        OperatorKind.KAFKA_SINK: KafkaSink,
    }
)
"""All that may follow a source or a channel."""


def build_operator(setup: OperatorSetup) -> Operator:
    """The operator that a configuration asks for. Raises UserCodeError, ValueError."""
    config = setup.config
    make = OPERATORS.get(OperatorKind(config.kind))
    if make is None:
        raise ValueError(f"operator {config.name!r} of kind {config.kind} cannot run here")
    return make(setup)


def build_prefix(configs: Sequence[OperatorConfig], input_type: RecordType = PICKLED) -> StatelessPipeline:
    """The stateless prefix of a vertex, for Spark's Python workers. Raises UserCodeError, ValueError."""
    operators = []
    for config in configs:
        context = TaskContext(operator_name=config.name)
        operators.append(
            build_operator(OperatorSetup(config, context, "", "", _nothing_to_send, (input_type,)))
        )
        input_type = output_type(config)
    return StatelessPipeline(operators, configs[-1] if configs else None)


def _nothing_to_send(topic: str, *_: Any, **__: Any) -> None:
    raise TypeError(f"a stateless operator cannot send to {topic}")
