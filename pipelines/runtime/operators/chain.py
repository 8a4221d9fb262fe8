"""Chained operators of one task: a tree, through which batches and times are pushed.

The output of an operator leads to the operators chained after it and to the channels of edges; so does each of its side
outputs. Records follow their output: as copies if several operators could change them, and to keyed operators as a
channel would carry them (local_exchange.py). Watermarks and idleness go to all outputs of an operator. The clock goes
to each operator that waits for it, in the order of the tree, after all earlier ones.

When the input ends, each operator receives the end of both clocks and is finished before the operators after it: they
are still open for the records that it emits then (`ChainOutput` holds END_OF_TIME back).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import pairwise
from typing import Protocol

from ....schemas.types import OperatorConfig
from ...graph.chain import output_type
from ...graph.operators import OperatorKind, traits_of
from ...types import PICKLED, RecordType
from ..records.batch import Batch, concatenate
from ..records.buffers import MAX_WATERMARK
from ..records.record_copying import RecordCopier, create_copier
from .local_exchange import LocalExchange
from .operator import UNLIMITED, Operator
from .user_functions import typed_by
from .watermarks import TimestampAssigner, WatermarkGenerator


class OutputChannel(Protocol):
    """The writer of an edge, as the chain uses it."""

    def write(self, batch: Batch) -> None:
        """Takes records, never an empty batch."""

    def advance_watermark(self, watermark: int) -> None:
        """Sets the event time of this channel."""

    def set_idle(self, idle: bool) -> None:
        """Sets whether this channel is idle: receivers then do not wait for its watermark."""


class ChainOutput:
    """The output of one operator."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.channels: list[OutputChannel] = []
        self.side_operators: dict[str, list[Operator]] = {}
        self.side_channels: dict[str, list[OutputChannel]] = {}
        self._copies: dict[str | None, RecordCopier] = {}
        self._exchanges: dict[Operator, LocalExchange] = {}

    def exchange(self, operator: Operator, exchange: LocalExchange) -> None:
        """Lets a keyed operator take its records by an exchange."""
        self._exchanges[operator] = exchange

    def part(self, type_of: Callable[[str | None], RecordType]) -> None:
        """Called after all consumers are known: if an output has several, each operator gets its own copies of
        records."""
        for tag in (None, *self.side_operators):
            operators = self.operators if tag is None else self.side_operators[tag]
            channels = self.channels if tag is None else self.side_channels.get(tag, ())
            if operators and len(operators) + len(channels) > 1:
                copy = create_copier(type_of(tag))
                if copy is not None:
                    self._copies[tag] = copy

    def emit(self, batch: Batch) -> None:
        if len(batch):
            self._hand_out(batch, self.channels, self.operators, self._copies.get(None))

    def emit_side(self, tag: str, batch: Batch) -> None:
        if len(batch):
            channels, operators = self.side_channels.get(tag, ()), self.side_operators.get(tag, ())
            self._hand_out(batch, channels, operators, self._copies.get(tag))

    def _hand_out(
        self,
        batch: Batch,
        channels: Sequence[OutputChannel],
        operators: Sequence[Operator],
        copy: RecordCopier | None,
    ) -> None:
        if copy is None:
            batches = [batch] * len(operators)
        else:
            # Channels store the records until the commit and do not change them. All copies are made before any
            # change.
            batches = [batch.copy(copy) if i or channels else batch for i in range(len(operators))]
        if self._exchanges:
            batches = [
                own if (exchange := self._exchanges.get(operator)) is None else exchange.take(own)
                for operator, own in zip(operators, batches, strict=True)
            ]
        for channel in channels:
            channel.write(batch)
        for operator, own in zip(operators, batches, strict=True):
            operator.process(own)

    def emit_watermark(self, watermark: int) -> None:
        if watermark != MAX_WATERMARK:
            for channel in self.all_channels():
                channel.advance_watermark(watermark)
            for operator in self.all_operators():
                operator.advance_watermark(watermark)

    def emit_idle(self, idle: bool) -> None:
        for channel in self.all_channels():
            channel.set_idle(idle)
        for operator in self.all_operators():
            operator.set_idle(idle)

    def all_channels(self) -> list[OutputChannel]:
        """Returns the channels of the main output and of the side outputs."""
        return [*self.channels, *(channel for some in self.side_channels.values() for channel in some)]

    def all_operators(self) -> list[Operator]:
        """Returns the operators after the main output and the side outputs."""
        return [*self.operators, *(operator for some in self.side_operators.values() for operator in some)]


class OperatorChain:
    """The operators of one subtask in pre-order, and the channels that leave them.

    `before` is the operator whose output is the input (a source, or an operator that runs in Spark), if the operators
    do not begin with the head of their vertex. `generator` takes its records first, and makes the watermarks, if their
    timestamps were assigned in Spark. `channels`: (operator id, tag or None, channel).
    """

    def __init__(
        self,
        configs: Sequence[OperatorConfig],
        operators: Sequence[Operator],
        channels: Iterable[tuple[str, str | None, OutputChannel]],
        before: OperatorConfig | None = None,
        generator: WatermarkGenerator | None = None,
    ) -> None:
        self.operators = (*(() if generator is None else (generator,)), *operators)
        self.by_id: Mapping[str, Operator] = {
            config.operator_id: operator for config, operator in zip(configs, operators, strict=True)
        }
        self.asynchronous = [
            operator
            for config, operator in zip(configs, operators, strict=True)
            if traits_of(config.kind).asynchronous
        ]
        self.configs: Mapping[str, OperatorConfig] = {config.operator_id: config for config in configs}
        self._configs = {id(operator): config for config, operator in zip(configs, operators, strict=True)}
        self._per_split: list[WatermarkGenerator] = []
        self._generator = generator
        inlet = self._inlet = ChainOutput()
        if generator is not None:
            inlet.operators.append(generator)
            inlet = generator.output = ChainOutput()
        self._outlets: dict[str | None, ChainOutput] = {None if before is None else before.operator_id: inlet}
        senders = {
            config.operator_id: config for config in (() if before is None else (before,)) + tuple(configs)
        }
        for config, operator in zip(configs, operators, strict=True):
            outlet = self._outlets[config.operator_id] = ChainOutput()
            operator.output = outlet
            if config.upstream not in self._outlets:
                raise ValueError(
                    f"operator {config.name!r} follows {config.upstream}, which is not before it"
                )
            feeding = self._outlets[config.upstream]
            if config.output_tag is None:
                feeding.operators.append(operator)
            else:
                feeding.side_operators.setdefault(config.output_tag, []).append(operator)
            if config.upstream is not None and traits_of(config.kind).keeps_records:
                exchange = LocalExchange(senders[config.upstream], config.output_tag)
                feeding.exchange(operator, exchange)
        for operator_id, tag, channel in channels:
            outlet = self._outlets[operator_id]
            if tag is None:
                outlet.channels.append(channel)
            else:
                outlet.side_channels.setdefault(tag, []).append(channel)
        inlet.part(lambda tag: PICKLED if before is None else output_type(before, tag))
        for config in configs:
            self._outlets[config.operator_id].part(partial(output_type, config))

    def open(self) -> None:
        """Opens the last operator first, so that an operator that emits in open() finds the later operators ready
        (Flink's order)."""
        for operator in reversed(self.operators):
            operator.open()

    def read_splits(self, splits: Iterable[Hashable]) -> None:
        """Called before `open`: the records come from these splits of a source, announced by `begin_split` and
        `end_split`.

        Watermark assigners use them, if every operator before them emits its records at once.
        """
        self._per_split = list(self._watermarks_behind(self._inlet))
        known = list(splits)
        for operator in self._per_split:
            operator.read_splits(known)

    def add_split(self, split: Hashable) -> None:
        """Announces a further split of the source, after `open`."""
        for operator in self._per_split:
            operator.add_split(split)

    def begin_split(self, split: Hashable) -> None:
        """Announces that the next records belong to this split."""
        for operator in self._per_split:
            operator.begin_split(split)

    def end_split(self, split: Hashable) -> None:
        """Announces that this split has ended."""
        for operator in self._per_split:
            operator.end_split(split)

    def _watermarks_behind(self, outlet: ChainOutput) -> Iterator[WatermarkGenerator]:
        for operator in outlet.all_operators():
            if isinstance(operator, WatermarkGenerator):
                yield operator
                continue
            kind = self._configs[id(operator)].kind
            if traits_of(kind).stateless or kind == OperatorKind.PROCESS:
                yield from self._watermarks_behind(_create_output(operator))

    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Takes records of an input of the head."""
        if input_index == 0:
            self._inlet.emit(batch)
        else:
            for operator in self._inlet.operators:
                operator.process(batch, input_index)

    def process_timed(self, batch: Batch, greatest: int) -> None:
        """Takes the results of records whose greatest timestamp, assigned in Spark, is this one; there may be none."""
        assert self._generator is not None
        self._generator.process_timed(batch, greatest)

    def process_in_flight(self, batch: Batch, operator_id: str, *, is_output: bool) -> None:
        """Takes records that were in flight between operators of this chain: the input of an operator, or, if
        `is_output`, what it has made of them."""
        if is_output:
            self._outlets[operator_id].emit(batch)
        else:
            self.by_id[operator_id].process(batch)

    def advance_watermark(self, watermark: int) -> None:
        """Advances event time, but not to its end."""
        self._inlet.emit_watermark(watermark)

    @property
    def room(self) -> int:
        """How many records the operators take before no more should be read."""
        return min((operator.room for operator in self.asynchronous), default=UNLIMITED)

    @property
    def has_pending(self) -> bool:
        """Whether results of asynchronous operators are to come."""
        return any(operator.has_pending for operator in self.asynchronous)

    def on_woken(self) -> None:
        """Lets asynchronous operators emit results."""
        for operator in self.asynchronous:
            operator.on_woken()

    @property
    def next_clock(self) -> int:
        """Returns the processing time at which something is due (ms); END_OF_TIME if nothing waits for a time."""
        return min((operator.next_clock for operator in self.operators), default=MAX_WATERMARK)

    def advance_clock(self, clock: int) -> None:
        """Advances processing time, but not to its end: calls the operators that have something due."""
        for operator in self.operators:
            if operator.next_clock <= clock:
                operator.advance_clock(clock)

    def set_idle(self, idle: bool) -> None:
        """Sets whether all inputs are idle."""
        self._inlet.emit_idle(idle)

    def finish(self) -> None:
        """Ends the input: advances one operator after the other to the end of time."""
        self._end(self._inlet)

    def _end(self, outlet: ChainOutput) -> None:
        for channel in outlet.all_channels():
            channel.advance_watermark(MAX_WATERMARK)
        for operator in outlet.all_operators():
            operator.advance_clock(MAX_WATERMARK)
            operator.advance_watermark(MAX_WATERMARK)
            operator.finish()
            self._end(_create_output(operator))

    def before_commit(self) -> None:
        """Calls the operators in the order of the tree, so that each receives what the earlier ones emit before its
        own call."""
        for operator in self.operators:
            operator.before_commit()

    def close(self) -> None:
        """Closes all operators, even if one raises. Raises the first error."""
        close_all(self.operators)


class StatelessPipeline:
    """A line of operators as a function: returns the output of the last one for a batch. For Spark's Python workers."""

    def __init__(self, operators: Sequence[Operator], last: OperatorConfig | None = None) -> None:
        """`last`: the configuration of the last operator."""
        self._operators = tuple(operators)
        self._assigner = next((of for of in operators if isinstance(of, TimestampAssigner)), None)
        self._last = last
        self._collected: list[Batch] = []
        for operator in self._operators:
            operator.output = ChainOutput()
        for operator, following in pairwise(self._operators):
            _create_output(operator).operators.append(following)
        if self._operators:
            _create_output(self._operators[-1]).channels.append(_Collecting(self._collected))

    def open(self) -> None:
        """Opens the operators from the end. Raises UserCodeError."""
        for operator in reversed(self._operators):
            operator.open()

    def with_declared_types(self) -> AbstractContextManager[None]:
        """A context manager around code that lays out the resulting records."""
        return nullcontext() if self._last is None else typed_by(self._last)

    def process(self, batch: Batch) -> Batch:
        """Returns the resulting records. Raises UserCodeError."""
        if self._assigner is not None:
            self._assigner.greatest = None
        if not self._operators or not len(batch):
            return batch
        self._collected.clear()  # records from before an error
        self._operators[0].process(batch)
        return concatenate(self._collected)

    @property
    def greatest_timestamp(self) -> int | None:
        """The greatest timestamp that was assigned to the last batch, also to records without results; None if none
        was."""
        return None if self._assigner is None else self._assigner.greatest

    def close(self) -> None:
        """Closes all operators, even if one raises. Raises the first error."""
        close_all(self._operators)


class _Collecting:
    """A channel that collects batches in a list."""

    def __init__(self, batches: list[Batch]) -> None:
        self.write = batches.append

    def advance_watermark(self, watermark: int) -> None:
        """Ignored: a pipeline carries no time."""

    def set_idle(self, idle: bool) -> None:
        """Ignored: a pipeline carries no idleness."""


def _create_output(operator: Operator) -> ChainOutput:
    outlet = operator.output
    assert isinstance(outlet, ChainOutput)
    return outlet


def close_all(operators: Iterable[Operator]) -> None:
    """Closes operators, even if one raises. Raises the first error."""
    first: Exception | None = None
    for operator in operators:
        try:
            operator.close()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
