"""Reads the records that were in flight in a checkpoint, for a subtask that begins a generation.

A channel has the records of its sender. In flight they are as Spark has forwarded them: the output of the stateless
prefix of the receiver, as it was then. They continue at the same place of the program: on an input, behind the operator
that they have passed, or, if their receiver is now chained to its sender, before it in the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from .....infra.storage.errors import CheckpointError, StorageError
from .....infra.storage.storage import Storage
from .....schemas.types import OperatorConfig
from ....checkpoint.redistribution import InFlightChannel, InFlightFilter
from ....checkpoint.state_files import read_in_flight
from ....graph.chain import edge_type, input_types, output_type
from ....types import RecordType
from ...common.deployment import VertexDeployment
from ...common.failures import ProgressLostError, StateTypeError, TaskError
from ...common.vertex_parts import split_vertex
from ...operators.factory import build_prefix
from ...records.batch import Batch
from ...records.buffers import HEADER_BYTES, BufferCodec
from ...records.older_records import OlderRecordReader
from ...records.type_evolution import TypeMismatch, from_layout, to_layout
from ..output.partitioners import create_partitioner
from .restore_plan import RestorePlan


class InFlightRecords(msgspec.Struct, frozen=True):
    """Records, and the place where they continue."""

    batch: Batch
    input: int | None
    """The input of the vertex that they were on; None: the channel does not exist any more."""
    operator_id: str = ""
    """The operator of the chain at which they continue; empty: on the input."""
    is_output: bool = False
    """Whether they continue behind that operator, not before it."""


def in_flight(
    beginning: RestorePlan, deployment: VertexDeployment, subtask: int
) -> Iterator[InFlightRecords]:
    """Yields the records in flight to the subtask, for Subtask.begin_generation.

    Raises ProgressLost; TaskError if storage cannot be reached; StateTypeError if the records were written as another
    type; UserCodeError of the stateless prefix.
    """
    storage = beginning.storage
    if storage is None or not beginning.begins:
        return
    for channel in beginning.restored.in_flight:
        operator, record_type = _place(deployment, channel)
        select = _selection(deployment, channel, subtask)
        continuation = _Continuation(deployment, channel, operator, record_type)
        try:
            for batch in _read(storage, channel, operator, record_type):
                for part in select(batch):
                    yield continuation.take(part)
        finally:
            continuation.close()


def _place(deployment: VertexDeployment, channel: InFlightChannel) -> tuple[OperatorConfig, RecordType]:
    """Returns the operator at which the records continue, and their type."""
    graph, vertex = deployment.job_graph, deployment.vertex
    if not channel.operator_id:
        return vertex.operators[0], edge_type(graph, deployment.inputs[channel.input])
    (operator,) = (of for of in vertex.operators if of.operator_id == channel.operator_id)
    if channel.is_output:
        return operator, output_type(operator)
    (record_type,) = input_types(graph, vertex, operator)
    return operator, record_type


class _Continuation:
    """Lets the records of a channel continue at their place in the vertex. Close it."""

    def __init__(
        self,
        deployment: VertexDeployment,
        channel: InFlightChannel,
        operator: OperatorConfig,
        record_type: RecordType,
    ) -> None:
        self._channel = channel
        self._operator_id, self._is_output = channel.operator_id, channel.is_output
        prefix = split_vertex(deployment.vertex, deployment.outputs).prefix
        rest: tuple[OperatorConfig, ...] = ()
        if operator in prefix:
            # Spark applies the prefix to the records that it reads, and never sees these.
            rest = prefix[prefix.index(operator) + channel.is_output :]
            self._operator_id, self._is_output = prefix[-1].operator_id, True
        self._rest = build_prefix(rest, record_type)
        self._rest.open()

    def take(self, batch: Batch) -> InFlightRecords:
        """Returns the records at the place where the StreamTask takes them. Raises UserCodeError."""
        number = None if self._channel.operator_id else self._channel.input
        return InFlightRecords(self._rest.process(batch), number, self._operator_id, self._is_output)

    def close(self) -> None:
        """Closes the functions. Raises UserCodeError."""
        self._rest.close()


def _read(
    storage: Storage, channel: InFlightChannel, operator: OperatorConfig, record_type: RecordType
) -> Iterator[Batch]:
    """Yields the records of each buffer."""
    try:
        for file in channel.files:
            reader: BufferCodec | OlderRecordReader = BufferCodec(record_type)
            for sender, data in read_in_flight(storage, file):
                if sender is None:
                    reader = _reader(data, record_type)
                    continue
                yield reader.read_payload(data, HEADER_BYTES)
    except TypeMismatch as error:
        raise StateTypeError(
            f"records in flight {'behind' if channel.is_output else 'to'} operator {operator.name!r} were written as"
            f" another type: {error}; go back to that type, or take a savepoint instead, which holds no records in"
            " flight"
        ) from None
    except StorageError as error:
        raise TaskError(f"records in flight cannot be restored: {error}") from error
    except CheckpointError as error:
        raise ProgressLostError(f"records in flight cannot be restored: {error}") from error


def _reader(layout: bytes, record_type: RecordType) -> BufferCodec | OlderRecordReader:
    written = from_layout(msgspec.json.decode(layout))
    if to_layout(record_type) == to_layout(written):
        return BufferCodec(record_type)
    return OlderRecordReader(written, record_type)


def _selection(
    deployment: VertexDeployment, channel: InFlightChannel, subtask: int
) -> Callable[[Batch], Iterable[Batch]]:
    """Returns a function that selects the records that belong to this subtask."""
    if channel.filter is InFlightFilter.ALL:
        return lambda batch: (batch,)
    graph, edge, vertex = deployment.job_graph, deployment.inputs[channel.input], deployment.vertex
    partition = create_partitioner(
        edge,
        edge_type(graph, edge),
        reachable=range(vertex.parallelism),
        partitions=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        subtask=subtask,
    )
    return lambda batch: [part for place, part in partition(batch) if place == subtask]
