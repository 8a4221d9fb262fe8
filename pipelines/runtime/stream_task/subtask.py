"""What one attempt of a subtask does, without threads, sockets or Kafka: buffers and polls in, a transaction out.

Everything between two commits is one transaction, so that a successor begins exactly where the last commit was: inputs
at the committed offsets, state as the changelog has it, output as the channels have it. Whoever drives a Subtask
decides when to commit; what comes of it does not depend on that, nor on how records were cut into buffers.

Time: at channels it is what their senders tell. Behind a source the clock is the driver's, and event time begins with
an operator that assigns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ..accumulators import CHANGELOG_KEY, Accumulators
from ..batch import Batch
from ..buffers import END_OF_TIME, NO_WATERMARK, BufferCodec
from ..clocks import ClockDemand
from ..failures import TaskError
from ..operators.chain import OperatorChain
from ..operators.functions import typed_by
from ..state.stateful import ORIGIN_KEY, Stateful, read_origin
from .input_gate import InputGate
from .positions import InputPositions
from .progress import moved_offsets
from .record_writer import RecordWriter
from .sources.source import Polled, Source, SourceSetup
from .transaction import Transaction

BAD_RECORDS: Final = "numRecordsInErrors"
"""The accumulator of messages that a Kafka source skipped (Flink's name, FLIP-33)."""


class Subtask:
    """Built by assembly.py. Call `restore`, `open`, anything, then, once it has `ended`, `finish`; always `close`."""

    def __init__(
        self,
        *,
        chain: OperatorChain,
        writer: RecordWriter,
        transaction: Transaction,
        accumulators: Accumulators,
        subtask_index: int,
        changelog: str | None,
        input_topics: list[str],
        codecs: list[BufferCodec],
        operator_inputs: list[int],
        positions: InputPositions,
        gate: InputGate | None,
        source: tuple[str, Source] | None,
        ends: Mapping[tuple[int, int], int] | None,
        demand: ClockDemand,
    ) -> None:
        """`gate` is None for sources. `ends`: the end of a bounded Kafka source, by (input, partition)."""
        self._chain = chain
        self._writer = writer
        self._transaction = transaction
        self._accumulators = accumulators
        self._subtask = subtask_index
        self._changelog = changelog
        self._input_topics = input_topics
        self._codecs = codecs
        self._operator_inputs = operator_inputs
        self._positions = positions
        self._gate = gate
        self._source = source
        self._ends = ends
        self._unended = set(ends or ())
        self._ended = False
        self._finished = False
        self._watermark = self._clock = NO_WATERMARK
        self._idle = False
        self.demand = demand
        """When anything here or behind goes by processing time."""
        self.records_in = 0
        self.records_out = 0
        """Of those that are committed."""
        self.dirty = False
        """Whether records were taken, or anything was made due by time, since the last commit."""

    # Initialising.

    def restore(self, key: bytes, message: bytes) -> None:
        """Applies a message of the changelog, in their order. Raises TaskError for state of nobody here."""
        if key == ORIGIN_KEY:
            operator_id, origin = read_origin(message)
            self._owner(operator_id).restore_from(origin)
        else:
            self._owner(key.decode(errors="replace")).restore(message)

    @property
    def stateful(self) -> Mapping[str, Stateful]:
        """Who keeps state, by operator id."""
        source = {} if self._source is None else {self._source[0]: self._source[1]}
        return {**self._chain.by_id, **source, CHANGELOG_KEY: self._accumulators}

    def _owner(self, operator_id: str) -> Stateful:
        owner = self.stateful.get(operator_id)
        if owner is None:
            raise TaskError(
                f"there is state of an operator {operator_id!r} that is not in this vertex ({self._changelog})"
            )
        return owner

    def open(self, setup: SourceSetup | None = None) -> None:
        """Opens the operators, the last ones first, then the source. Raises UserCodeError, TaskError."""
        self._chain.open()
        if self._source is not None:
            assert setup is not None
            self._source[1].open(setup)
        if self._gate is not None:
            self._follow_gate(self._gate)
        for place in self._ends or ():
            self._look_for_end(place)
        self._ended = self._ends is not None and not self._unended

    # Input.

    @property
    def ended(self) -> bool:
        """Whether nothing comes in any more."""
        return self._ended if self._gate is None else self._gate.ended

    @property
    def positions(self) -> dict[int, dict[int, int]]:
        """Input -> partition -> the next offset that counts."""
        return self._positions.by_input()

    def admits(self, input_index: int, partition: int, first: int, following: int) -> bool:
        """Whether these offsets have not been taken yet. Raises TaskError where some of them have."""
        return self._positions.admits(input_index, partition, first, following)

    def take_buffer(self, input_index: int, partition: int, offset: int, data: bytes) -> None:
        """A buffer of a channel; one that has been taken already counts for nothing."""
        gate = self._gate
        assert gate is not None
        if not self.admits(input_index, partition, offset, offset + 1):
            return
        header, batch = self._codecs[input_index].decode(data)
        self._positions.advance(input_index, partition, offset + 1)
        if not gate.admits(input_index, offset, header):
            return
        if len(batch):
            self._process(batch, self._operator_inputs[input_index])
        gate.conclude(input_index, header)
        self._follow_gate(gate)

    def take_records(
        self, input_index: int, partition: int, first: int, following: int, data: bytes, skipped: int = 0
    ) -> None:
        """What a Kafka source has read at these offsets, behind the prefix (BufferCodec.payload).

        `skipped` messages among them were bad, and are counted.
        """
        if not self.admits(input_index, partition, first, following):
            return
        if skipped:
            self._accumulators.counter(BAD_RECORDS).inc(skipped)
            self.dirty = True
        batch = self._codecs[input_index].read_payload(data)
        self._positions.advance(input_index, partition, following)
        if len(batch):
            self._chain.begin_split((input_index, partition))
            self._process(batch, 0)
        self._look_for_end((input_index, partition))

    def poll(self, limit: int) -> Polled:
        """Has the source read at most so many records, and takes them."""
        assert self._source is not None
        polled = self._source[1].poll(limit)
        if polled.batch is not None:
            self._process(polled.batch, 0)
        self._ended = polled.ended
        return polled

    def advance_clock(self, clock: int) -> None:
        """Of a source: processing time has come so far (ms). No record that is taken later is older."""
        if self._gate is None and clock > self._clock:
            self._clock = clock
            self._chain.advance_clock(clock)
            self._note_pending()

    def finish(self) -> None:
        """Once the input has ended: brings all operators to their end, and commits."""
        self._finished = True
        self._clock = END_OF_TIME
        self._chain.finish()
        self.commit()

    def _process(self, batch: Batch, input_index: int) -> None:
        self.records_in += len(batch)
        self.dirty = True
        self._chain.process(batch, input_index)

    def _follow_gate(self, gate: InputGate) -> None:
        if gate.ended:
            return  # finish() brings both clocks to their end
        if gate.clock > self._clock:
            self._clock = gate.clock
            self._chain.advance_clock(gate.clock)
        if gate.watermark > self._watermark:
            self._watermark = gate.watermark
            self._chain.advance_watermark(gate.watermark)
        if gate.idle is not self._idle:
            self._idle = gate.idle
            self._chain.set_idle(gate.idle)
        self._note_pending()

    def _note_pending(self) -> None:
        wanted = any(operator.wants_commit for operator in self._chain.operators)
        if wanted or self._writer.pending or self._transaction.active:
            self.dirty = True

    def _look_for_end(self, place: tuple[int, int]) -> None:
        """Of a partition: whether a bounded source has read it to its end, and with it perhaps all."""
        if self._ends is None or place not in self._unended:
            return
        if (self._positions.get(*place) or 0) >= self._ends[place]:
            self._unended.discard(place)
            self._ended = not self._unended
            self._chain.end_split(place)
            self._note_pending()

    # Output.

    @property
    def pending(self) -> int:
        """Records that wait to be sent."""
        return self._writer.pending

    @property
    def moved(self) -> bool:
        """Whether positions are to be committed."""
        return bool(self._positions.moved())

    @property
    def is_behind(self) -> bool:
        """Whether channels are to be told the time."""
        return self._writer.is_behind(self._clock)

    @property
    def repeats(self) -> bool:
        """Whether channels are to be told event time again, now and then."""
        return self._writer.repeats

    def tell_time(self, *, again: bool = False) -> bool:
        """Tells the channels the time if nothing else is to be sent; False where that takes a commit.

        `again`: also what they have been told already.
        """
        if self.dirty:
            return False
        self._writer.tell(self._clock, self._transaction.tell, self._send, again=again)
        return not self._transaction.active

    def commit(self, *, tell_all: bool = False) -> bool:
        """One transaction: output, changes of state, consumed offsets. Whether there was anything to commit.

        `tell_all`: every channel is told the time with it.
        """
        self._chain.before_commit()
        ends = self._finished
        pending = self._writer.pending
        for each in self._writer.flush(self._clock, ends=ends, tell_all=ends or tell_all):
            self._send(each.topic, each.partition, each.data)
        if self._changelog is not None:
            for key, changes in self._changes():
                for change in changes:
                    self._transaction.send(self._changelog, change, key=key, partition=self._subtask)
        offsets = moved_offsets(self._input_topics, self._positions, self._gate, self._ends)
        if not offsets and not self._transaction.active:
            self.dirty = False
            return False
        self._transaction.commit(offsets)
        self._positions.settle()
        self.dirty = False
        self.records_out += pending
        for operator in self._chain.operators:
            operator.committed()
        return True

    def recommit(self) -> None:
        """Every position is to be committed again, moved or not: brokers forget those that were not for long."""
        self._positions.move_all()
        if not self.moved and self._source is None and not self._transaction.active:
            self._transaction.commit(())

    def close(self) -> None:
        """Closes operators and source, whatever goes wrong with one. Raises the first error."""
        try:
            self._chain.close()
        finally:
            if self._source is not None:
                self._source[1].close()

    def _changes(self) -> Iterable[tuple[bytes, Iterable[bytes]]]:
        for operator_id, operator in self._chain.by_id.items():
            with typed_by(self._chain.configs[operator_id]):
                yield operator_id.encode(), list(operator.take_changes())
        if self._source is not None:
            yield self._source[0].encode(), self._source[1].take_changes()
        counted = self._accumulators.take_changes()
        if counted is not None:
            yield CHANGELOG_KEY.encode(), (counted,)

    def _send(self, topic: str, partition: int, data: bytes) -> None:
        self._transaction.send(topic, data, partition=partition)


Clock = Callable[[], int]
"""Milliseconds since the epoch; never falls."""
