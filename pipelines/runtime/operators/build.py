"""From an OperatorConfig to the operator that does it."""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.types import OperatorConfig
from ...graph.operators import OperatorKind
from .operator import Operator
from .print_sink import Emit, PrintSink
from .stateless import Filter, FlatMap, Map
from .window_reduce import WindowReduce


def stateless(configs: Sequence[OperatorConfig]) -> list[Operator]:
    """Operators that need nothing but their function. Raises UserCodeError, ValueError."""
    return [_stateless(config) for config in configs]


def any_kind(
    configs: Sequence[OperatorConfig], subtask_index: int, max_parallelism: int, emit: Emit
) -> list[Operator]:
    """All that may follow a source or a channel. Raises UserCodeError, ValueError."""
    built: list[Operator] = []
    for config in configs:
        match OperatorKind(config.kind):
            case OperatorKind.WINDOW_REDUCE:
                built.append(WindowReduce(config, max_parallelism))
            case OperatorKind.PRINT:
                built.append(PrintSink(config, subtask_index, emit))
            case _:
                built.append(_stateless(config))
    return built


def _stateless(config: OperatorConfig) -> Operator:
    match OperatorKind(config.kind):
        case OperatorKind.MAP:
            return Map(config)
        case OperatorKind.FLAT_MAP:
            return FlatMap(config)
        case OperatorKind.FILTER:
            return Filter(config)
        case kind:
            raise ValueError(f"operator {config.name!r} of kind {kind} cannot run here")
