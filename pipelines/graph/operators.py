"""The kinds of operators, with the traits that the graph needs.

The runtime implements them, and the API creates them. A new operator starts with a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class OperatorKind(StrEnum):
    """The values of OperatorConfig.kind."""

    SOCKET_TEXT_STREAM = "socket_text_stream"
    COLLECTION = "collection"
    FILES = "files"
    GENERATOR = "generator"
    KAFKA_SOURCE = "kafka_source"
    CUSTOM_SOURCE = "custom_source"

    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    WHERE = "where"
    SELECT = "select"
    MAP_BATCHES = "map_batches"
    PRE_AGGREGATE = "pre_aggregate"
    WATERMARKS = "watermarks"
    PROCESS = "process"
    ASYNC_MAP = "async_map"

    REDUCE = "reduce"
    AGGREGATE = "aggregate"
    KEYED_PROCESS = "keyed_process"
    WINDOW = "window"

    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    KEYED_CO_PROCESS = "keyed_co_process"
    INTERVAL_JOIN = "interval_join"
    TEMPORAL_JOIN = "temporal_join"
    BROADCAST_PROCESS = "broadcast_process"
    KEYED_BROADCAST_PROCESS = "keyed_broadcast_process"

    PRINT = "print"
    FILE_SINK = "file_sink"
    KAFKA_SINK = "kafka_sink"
    EXTERNAL_KAFKA_SINK = "external_kafka_sink"
    TRANSACTIONAL_SINK = "transactional_sink"
    FOREACH = "foreach"


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """The traits of every operator of a kind."""

    functions: int = 0
    """The number of items of the pickled tuple in OperatorConfig.code; a missing item is None. 0: no code."""
    code_is_optional: bool = False
    """Whether there may be no functions."""
    optional_functions: int = 0
    """The number of items after these, which are left out if the program gives none of them."""
    inputs: int = 1
    """0 for sources, 2 for connected streams."""
    sink: bool = False
    """Whether it has no output."""
    keyed: bool = False
    """Whether it works on a stream partitioned by key: it is the head of its vertex, or the only subtask. The first
    function is its key selector."""
    broadcast: bool = False
    """Whether its second input is broadcast, with the same state in every subtask."""
    stateful: bool = False
    """Whether it has state."""
    operator_state: bool = False
    """Whether its function may have operator state: at another parallelism each subtask reads that of all, and takes
    its part."""
    stateless: bool = False
    """Whether it needs nothing but its functions: it may run in Spark's Python workers, before the StreamTask."""
    asynchronous: bool = False
    """Whether its results come later than its records, which are its state until then."""
    parallel: bool = True
    """Whether it may have more than one subtask."""
    prints: bool = False
    """Whether it writes to the job's output topic."""
    through_spark: bool = False
    """Whether it is a source whose records a Spark query reads."""

    @property
    def keeps_records(self) -> bool:
        """Whether it keeps records: in a chain it takes them as from a channel."""
        return self.keyed or self.asynchronous

    @property
    def source(self) -> bool:
        """Whether the operator has no input."""
        return self.inputs == 0


TRAITS: Mapping[OperatorKind, OperatorTraits] = MappingProxyType(
    {
        OperatorKind.SOCKET_TEXT_STREAM: OperatorTraits(inputs=0, parallel=False),
        OperatorKind.COLLECTION: OperatorTraits(inputs=0, functions=1, parallel=False, stateful=True),
        OperatorKind.FILES: OperatorTraits(inputs=0, stateful=True),
        OperatorKind.GENERATOR: OperatorTraits(inputs=0, functions=1, stateful=True),
        OperatorKind.KAFKA_SOURCE: OperatorTraits(inputs=0, stateful=True, through_spark=True),
        OperatorKind.CUSTOM_SOURCE: OperatorTraits(inputs=0, functions=1, stateful=True),
        OperatorKind.MAP: OperatorTraits(functions=1, stateless=True, operator_state=True),
        OperatorKind.FLAT_MAP: OperatorTraits(functions=1, stateless=True, operator_state=True),
        OperatorKind.FILTER: OperatorTraits(functions=1, stateless=True, operator_state=True),
        OperatorKind.WHERE: OperatorTraits(stateless=True),
        OperatorKind.SELECT: OperatorTraits(stateless=True),
        OperatorKind.MAP_BATCHES: OperatorTraits(functions=1, stateless=True),
        OperatorKind.PRE_AGGREGATE: OperatorTraits(functions=1, stateless=True),
        OperatorKind.WATERMARKS: OperatorTraits(functions=1),
        OperatorKind.PROCESS: OperatorTraits(functions=1, operator_state=True),
        OperatorKind.ASYNC_MAP: OperatorTraits(
            functions=2, stateful=True, operator_state=True, asynchronous=True
        ),
        OperatorKind.REDUCE: OperatorTraits(functions=2, keyed=True, stateful=True),
        OperatorKind.AGGREGATE: OperatorTraits(functions=1, keyed=True, stateful=True),
        OperatorKind.KEYED_PROCESS: OperatorTraits(functions=2, keyed=True, stateful=True),
        OperatorKind.WINDOW: OperatorTraits(functions=3, optional_functions=3, keyed=True, stateful=True),
        OperatorKind.CO_MAP: OperatorTraits(functions=1, inputs=2, operator_state=True),
        OperatorKind.CO_FLAT_MAP: OperatorTraits(functions=1, inputs=2, operator_state=True),
        OperatorKind.CO_PROCESS: OperatorTraits(functions=1, inputs=2, operator_state=True),
        OperatorKind.KEYED_CO_PROCESS: OperatorTraits(functions=3, inputs=2, keyed=True, stateful=True),
        OperatorKind.INTERVAL_JOIN: OperatorTraits(functions=3, inputs=2, keyed=True, stateful=True),
        OperatorKind.TEMPORAL_JOIN: OperatorTraits(functions=3, inputs=2, keyed=True, stateful=True),
        OperatorKind.BROADCAST_PROCESS: OperatorTraits(functions=1, inputs=2, broadcast=True, stateful=True),
        OperatorKind.KEYED_BROADCAST_PROCESS: OperatorTraits(
            functions=2, inputs=2, keyed=True, broadcast=True, stateful=True
        ),
        OperatorKind.PRINT: OperatorTraits(sink=True, prints=True),
        OperatorKind.FILE_SINK: OperatorTraits(functions=1, code_is_optional=True, sink=True, stateful=True),
        OperatorKind.KAFKA_SINK: OperatorTraits(functions=5, sink=True),
        OperatorKind.EXTERNAL_KAFKA_SINK: OperatorTraits(functions=5, sink=True, stateful=True),
        OperatorKind.TRANSACTIONAL_SINK: OperatorTraits(functions=1, sink=True, stateful=True),
        OperatorKind.FOREACH: OperatorTraits(functions=1, sink=True, operator_state=True),
    }
)


def traits_of(kind: str) -> OperatorTraits:
    """Returns the traits of a kind. Raises ValueError for an unknown kind."""
    return TRAITS[OperatorKind(kind)]
