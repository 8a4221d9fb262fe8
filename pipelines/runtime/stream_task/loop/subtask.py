"""The work of one attempt of a subtask, without threads, sockets or Kafka: buffers and polls go in, a transaction
comes out.

Everything between two commits is in one transaction, which is open only during the commit. So a successor begins
exactly at the last commit: inputs at the committed offsets, state as in the changelog, output as in the channels. The
caller decides when to commit. The results depend neither on that nor on the batch boundaries.

This file handles input and time: it takes each input once and drives the operators. subtask_output.py has the output,
subtask_state.py the state, subtask_checkpoints.py the checkpoints, stop_with_savepoint.py the stop by a savepoint.

Time: the clock is the caller's wall clock. Event time comes from the senders; after a source it begins with an operator
that assigns it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from .....schemas.types import OperatorState
from ...common.deployment import CheckpointTrigger
from ...common.failures import RecordError
from ...common.protocol import NO_SKIPPED_RECORDS, SkippedRecords
from ...operators.chain import OperatorChain
from ...operators.local_input import LocalInput
from ...records.batch import EMPTY, Batch
from ...records.buffers import (
    HEADER_BYTES,
    MAX_WATERMARK,
    NO_WATERMARK,
    BufferCodec,
    BufferError,
    BufferHeader,
    decode_header,
    read_barrier,
)
from ...records.latency_markers import read_marker
from ...state_backend.accumulators import Accumulators
from ..checkpoint.stop_with_savepoint import StopWithSavepoint
from ..checkpoint.subtask_checkpoints import SubtaskCheckpointCoordinator
from ..checkpoint.subtask_output import SubtaskOutput
from ..checkpoint.subtask_snapshot import SubtaskId
from ..input.barrier_handler import HeldBuffer, InputChannel
from ..input.foreign_messages import ForeignMessageFilter
from ..input.fragments import FragmentAssembler
from ..input.input_gate import InputGate
from ..input.input_positions import InputPositions
from ..input.record_locations import RecordLocations
from ..input.sources.source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup
from ..latency_tracker import LatencyTracker
from ..output.local_channel import LocalChannel
from ..output.message_queue import OutgoingMessageQueue
from ..output.record_writer import RecordWriter
from ..output.transaction import Transaction
from ..restore.in_flight import InFlightRecords
from ..state.progress import ProgressWriter
from ..state.subtask_state import SubtaskState

BAD_RECORDS: Final = "numRecordsInErrors"
"""The accumulator of messages that a Kafka source could not read and skipped (Flink's name, FLIP-33)."""
TOMBSTONES: Final = "numTombstones"
"""The accumulator of messages without a value that a Kafka source skipped."""


class Subtask:
    """Built by assembly.py. Restore the state, then call `open`, then any method; `finish` after the input has ended;
    always `close`.

    `output` has the output of the next commit, `checkpoints` the results of checkpoints.
    """

    def __init__(
        self,
        *,
        chain: OperatorChain,
        writer: RecordWriter,
        transaction: Transaction,
        queue: OutgoingMessageQueue,
        accumulators: Accumulators,
        subtask_index: int,
        changelog: str,
        keeps_state: bool,
        input_topics: list[str],
        codecs: list[BufferCodec],
        operator_inputs: list[int],
        positions: InputPositions,
        progress: ProgressWriter,
        gate: InputGate | None,
        source: tuple[str, Source] | None,
        ends: Mapping[tuple[int, int], int] | None,
        owner: SubtaskId,
        places: RecordLocations,
        kafka_source: str | None = None,
        reads_nothing: bool = False,
        checkpoints_over: int = 0,
        aligned_inputs: frozenset[int] = frozenset(),
        fragments: FragmentAssembler | None = None,
        latencies: LatencyTracker | None = None,
    ) -> None:
        """`gate` is None for sources. `ends`: the end of a bounded Kafka source, by (input, partition).

        `kafka_source`: the operator id of the Kafka source whose positions the subtask stores. `reads_nothing`: whether
        the attempt owns none of its partitions. `checkpoints_over`: the newest checkpoint that is known to be complete;
        late barriers up to it are ignored. `aligned_inputs`: the inputs that have nothing in flight in a checkpoint.
        `latencies`: None if the job measures none.
        """
        self._chain = chain
        self.local_inputs: dict[int, LocalInput] = {}
        """By index of the input: what takes the records that are handed over by calls."""
        self.local_channels: dict[tuple[int, int], LocalChannel] = {}
        """By (input, sender): where a sender in this process may hand over records by calls."""
        self.is_finished = False
        """Whether the end of its output is prepared: it commits nothing more."""
        self._accumulators = accumulators
        self._subtask = subtask_index
        self._input_topics = input_topics
        self._places = places
        self._codecs = codecs
        self._operator_inputs = operator_inputs
        self._positions = positions
        self._gate = gate
        self._source = source
        self._ends = ends
        self._active_senders = set(ends or ())
        self._ended = False
        self._watermark = NO_WATERMARK
        self._is_idle = False
        self._kafka_source = kafka_source
        self._has_no_input = reads_nothing
        self._fragments = FragmentAssembler(codecs, codecs, ()) if fragments is None else fragments
        self._stop = StopWithSavepoint()
        self.state = SubtaskState(chain, source, accumulators, changelog)
        self.output = SubtaskOutput(
            chain=chain,
            writer=writer,
            transaction=transaction,
            queue=queue,
            kept=self.state,
            stop=self._stop,
            subtask_index=subtask_index,
            changelog=changelog,
            keeps_state=keeps_state,
            positions=positions,
            progress=progress,
        )
        self.checkpoints = SubtaskCheckpointCoordinator(
            chain=chain,
            output=self.output,
            kept=self.state,
            stop=self._stop,
            gate=gate,
            owner=owner,
            inline=self._inline,
            take=self._take_held,
            over=checkpoints_over,
            aligned_inputs=aligned_inputs,
        )
        self.latencies = latencies
        self.records_in = 0
        self.bytes_in = 0
        """The bytes of the buffers and payloads that were taken."""
        self.foreign = ForeignMessageFilter(input_topics, subtask_index)

    def open(self, setup: SourceSetup | None = None) -> None:
        """Opens the operators, the last ones first, then the source. Raises UserCodeError, TaskError."""
        self._chain.open()
        if self._source is not None:
            assert setup is not None
            self._source[1].open(setup)
        if self._gate is not None:
            self._follow_gate(self._gate)
        if self._has_no_input:
            self._chain.set_idle(True)  # receivers must not wait for its event time
        for place in self._ends or ():
            self._look_for_end(place)
        self._ended = self._ends is not None and not self._active_senders
        self.output.note_pending()

    def begin_generation(self, in_flight: Iterable[InFlightRecords]) -> None:
        """Called after `open`: processes the records in flight. The caller commits them, with a position of every
        input."""
        for operator in self._chain.operators:
            operator.begin_time_anew()
        for records in in_flight:
            try:
                self._process_in_flight(records)
            except RecordError as error:
                self._places.add_in_flight(error, records.input)
                raise
        if self._gate is not None:
            for i in range(len(self._input_topics)):
                self._positions.advance(i, self._subtask, self._positions.get(i, self._subtask) or 0)

    def _process_in_flight(self, records: InFlightRecords) -> None:
        batch = records.batch
        if not len(batch):
            return
        self.records_in += len(batch)
        self.output.is_dirty = True
        if records.operator_id:
            self._chain.process_in_flight(batch, records.operator_id, is_output=records.is_output)
        else:
            assert records.input is not None
            self._chain.process(batch, self._operator_inputs[records.input])

    @property
    def ended(self) -> bool:
        """Whether no input follows, and it is known whether that is the end or a stop."""
        stop = self._stop
        if stop.savepoint is not None:
            return stop.is_stopped
        return stop.is_stopped or (self._ended if self._gate is None else self._gate.ended)

    @property
    def watermark(self) -> int:
        """The event time of the inputs (ms)."""
        return self._watermark

    @property
    def positions(self) -> dict[int, dict[int, int]]:
        """Returns input -> partition -> the first offset to take."""
        return self._positions.to_offsets_to_read()

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics of a Kafka source, by index of the input."""
        return () if self._kafka_source is None else tuple(self._input_topics)

    def add_partitions(self, added: Mapping[str, Mapping[int, int]]) -> None:
        """Lets a Kafka source read more partitions: topic -> partition -> first offset. Known ones stay as they are."""
        for topic, offsets in added.items():
            if topic not in self._input_topics:
                self._input_topics.append(topic)
                self._codecs.append(self._codecs[0])
            index = self._input_topics.index(topic)
            for partition, offset in offsets.items():
                if self._positions.get(index, partition) is None:
                    self._positions.advance(index, partition, offset)
                    self._chain.add_split((index, partition))
        if added and self._has_no_input:
            self._has_no_input = False
            self._chain.set_idle(False)
        self.output.note_pending()

    def admits(self, input_index: int, partition: int, first: int, following: int) -> bool:
        """Whether these offsets have not been taken yet. Raises TaskError if some of them have."""
        return self._positions.admits(input_index, partition, first, following)

    def take_buffer(self, input_index: int, partition: int, offset: int, data: bytes) -> None:
        """Processes a buffer of a channel; ignores one that was processed before."""
        gate = self._gate
        assert gate is not None
        if not self.admits(input_index, partition, offset, offset + 1):
            return
        self._positions.advance(input_index, partition, offset + 1)
        self.bytes_in += len(data)
        try:
            header = gate.checked(input_index, decode_header(data))
        except BufferError as error:
            self.foreign.pass_over(input_index, offset, error)
            return
        if header.tick and self._is_called((input_index, header.sender)):
            return
        if self.checkpoints.is_held((input_index, header.sender)):
            if not (header.tick or header.marker):
                self._hold(HeldBuffer(input_index, offset, data))
            return
        if header.marker:
            self._take_marker(data)
            return
        self._receive(gate, input_index, offset, header, data)

    def takes_calls(self, input_index: int, sender: int) -> bool:
        """Whether it processes what the sender sends now: it holds nothing of it back, and has not ended."""
        return not (self.is_finished or self.checkpoints.is_held((input_index, sender)))

    def position(self, input_index: int) -> int:
        """Returns the next offset of its partition of the input."""
        return self._positions.get(input_index, self._subtask) or 0

    def take_call(self, input_index: int, header: BufferHeader, batch: Batch) -> None:
        """Processes records, times and the end of a sender in the same process; `batch` may be empty."""
        gate, channel = self._gate, (input_index, header.sender)
        assert gate is not None
        if len(batch):
            batch = self.local_inputs[input_index].take(batch)
        if len(batch):
            if self.checkpoints.is_captured(channel):
                self.checkpoints.capture(channel, self._codecs[input_index].encode(header, batch))
            try:
                self._process(batch, self._operator_inputs[input_index])
            except RecordError as error:
                self._places.add_call(error, input_index, header.sender)
                raise
        gate.conclude(input_index, header)
        self._follow_gate(gate)
        if header.ends:
            # The sender may not run again to send its end, so that is committed with its last transaction.
            self._positions.note_moved()
            self.checkpoints.on_sender_ended(channel)

    def take_barrier_call(self, input_index: int, sender: int, checkpoint: CheckpointTrigger) -> None:
        """Handles the barrier of a sender in the same process."""
        self.checkpoints.on_barrier((input_index, sender), checkpoint)

    def take_marker_call(self, data: bytes) -> None:
        """Handles a latency marker of a sender in the same process."""
        self._take_marker(data)

    def _is_called(self, channel: InputChannel) -> bool:
        """Whether the sender hands over by calls. Then its ticks in Kafka are late."""
        local = self.local_channels.get(channel)
        return local is not None and local.is_open

    def _take_marker(self, data: bytes) -> None:
        """Measures and forwards a latency marker. It changes nothing else: results do not depend on markers."""
        if self.latencies is not None:
            marker = read_marker(data)
            if marker is not None and self.latencies.on_marker(marker):
                self.output.add_marker(marker)

    def emit_marker(self) -> None:
        """Emits a latency marker if the subtask is of a source, and a marker is due."""
        if self.latencies is not None and (marker := self.latencies.take_due()) is not None:
            self.output.add_marker(marker)

    def _hold(self, held: HeldBuffer) -> None:
        self._positions.hold(held.input_index, self._subtask, held.offset)
        self.checkpoints.hold(held)

    def _take_held(self, held: HeldBuffer) -> None:
        gate, header = self._gate, decode_header(held.data)
        assert gate is not None
        self._positions.release(held.input_index, self._subtask, held.offset)
        if self.checkpoints.is_held((held.input_index, header.sender)):
            self._hold(held)
        else:
            self._receive(gate, held.input_index, held.offset, header, held.data)

    def _receive(
        self, gate: InputGate, input_index: int, offset: int, header: BufferHeader, data: bytes
    ) -> None:
        if not gate.admits(input_index, offset, header):
            return
        channel = input_index, header.sender
        batch = EMPTY
        try:
            if header.fragment:
                whole = self._fragments.take(channel, header, data)
                if whole is None:
                    return
                data = whole
            checkpoint = read_barrier(data) if header.barrier else None
            if not header.barrier:
                batch = self._codecs[input_index].read_payload(data, HEADER_BYTES)
            if len(batch):
                self.checkpoints.capture(channel, data)
                self._process(batch, self._operator_inputs[input_index])
        except BufferError as error:
            raise self.foreign.failure(input_index, offset, error) from error
        except RecordError as error:
            self._places.add_buffer(error, input_index, offset, len(batch))
            raise
        gate.conclude(input_index, header)
        self._follow_gate(gate)
        if checkpoint is not None:
            self.checkpoints.on_barrier(channel, checkpoint)
        elif header.ends:
            self.checkpoints.on_sender_ended(channel)

    def take_records(
        self,
        input_index: int,
        partition: int,
        first: int,
        following: int,
        data: bytes,
        skipped: SkippedRecords = NO_SKIPPED_RECORDS,
        greatest_timestamp: int | None = None,
    ) -> None:
        """Processes the records of a Kafka source at these offsets, after the prefix (BufferCodec.payload). Counts
        skipped records. `greatest_timestamp`: the greatest one that the prefix has assigned; None if it has assigned
        none."""
        if not self.admits(input_index, partition, first, following):
            return
        if self._stop.savepoint is not None:
            offsets = input_index, partition, first, following
            take = partial(self.take_records, *offsets, data, skipped, greatest_timestamp)
            self._stop.wait(take, len(data))
            return
        for name, count in ((BAD_RECORDS, skipped.bad), (TOMBSTONES, skipped.tombstones)):
            if count:
                self._accumulators.counter(name).inc(count)
                self.output.is_dirty = True
        batch = self._codecs[input_index].read_payload(data)
        self.bytes_in += len(data)
        self._positions.advance(input_index, partition, following)
        if len(batch) or greatest_timestamp is not None:
            self._chain.begin_split((input_index, partition))
            try:
                self._process(batch, 0, greatest_timestamp)
            except RecordError as error:
                self._places.add_messages(error, input_index, partition, first, following, len(batch))
                raise
        self._look_for_end((input_index, partition))

    def poll(self, limit: int) -> PollResult:
        """Lets the source read at most `limit` records, and processes them."""
        assert self._source is not None
        if self._stop.savepoint is not None:
            return PollResult(None, wait_s=UNTIL_WOKEN_S)
        source = self._source[1]
        try:
            polled = source.poll(limit)
            if polled.batch is not None:
                self._process(polled.batch, 0)
        except RecordError as error:
            error.place = error.place or source.place(error.index)
            raise
        self._ended = polled.has_ended
        return polled

    @property
    def next_clock(self) -> int:
        """Returns the processing time at which something is due (ms); END_OF_TIME if nothing waits for a time.

        Nothing is due after a savepoint that stops the job, nor after all input has ended: `finish` does the rest.
        """
        gate = self._gate
        stands_still = self._stop.savepoint is not None or (gate is not None and (gate.stopped or gate.ended))
        return MAX_WATERMARK if stands_still else self._chain.next_clock

    def advance_clock(self, clock: int) -> None:
        """Advances processing time (ms), but not to its end."""
        if self.next_clock <= clock:
            self._chain.advance_clock(clock)
            self.output.note_pending()

    def finish(self) -> None:
        """Called once the input has ended: finishes all operators, unless a savepoint stopped the task. The caller
        commits."""
        self.output.ends = True
        self.checkpoints.end()
        stop = self._stop
        if self._gate is not None and self._gate.stopped:
            stop.is_stopped = True
        if not stop.is_stopped and not stop.is_drained:
            self._chain.finish()

    def _process(self, batch: Batch, input_index: int, greatest_timestamp: int | None = None) -> None:
        self.records_in += len(batch)
        self.output.is_dirty = True
        if greatest_timestamp is None:
            self._chain.process(batch, input_index)
        else:
            self._chain.process_timed(batch, greatest_timestamp)

    def _follow_gate(self, gate: InputGate) -> None:
        if gate.ended or self._stop.savepoint is not None:
            return  # finish() advances both clocks to their end
        if gate.watermark > self._watermark:
            self._watermark = gate.watermark
            self._chain.advance_watermark(gate.watermark)
        if gate.idle is not self._is_idle:
            self._is_idle = gate.idle
            self._chain.set_idle(gate.idle)
        self.output.note_pending()

    def _look_for_end(self, place: tuple[int, int]) -> None:
        """Records that a bounded source has read a partition to its end, and perhaps all partitions."""
        if self._ends is None or place not in self._active_senders:
            return
        if (self._positions.get(*place) or 0) >= self._ends[place]:
            self._active_senders.discard(place)
            self._ended = not self._active_senders
            self._chain.end_split(place)
            self.output.note_pending()

    def prepare_commit(self, *, tell_all: bool = False, always: bool = False) -> bool:
        """Prepares output, state changes and progress for a transaction (slot_commit.py). Returns whether there are
        any, or `always`.

        `tell_all`: also sends the time to every channel.
        """
        has_output = self.output.prepare(tell_all=tell_all, always=always)
        self.is_finished = self.output.ends
        return has_output

    def on_committed(self) -> None:
        """Records that the transaction is committed."""
        self.output.on_committed()
        self.checkpoints.on_committed()
        for operator in self._chain.operators:
            operator.committed()

    @property
    def has_partial_record(self) -> bool:
        """Whether a record is only partly received: nothing can be committed until the rest arrives."""
        return self._fragments.has_partial_record

    def close(self) -> None:
        """Closes operators and source, even if one raises. Raises the first error."""
        with contextlib.ExitStack() as closing:
            if self._source is not None:
                closing.callback(self._source[1].close)
            if self.state.writer is not None:
                closing.callback(self.state.writer.close)
            for local in self.local_inputs.values():
                closing.callback(local.close)
            closing.callback(self._fragments.close)
            closing.callback(self._chain.close)

    def confirm(self, checkpoint_id: int) -> None:
        """Handles a complete checkpoint: if it stops the task, the task has now ended."""
        self._stop.confirm(checkpoint_id)

    def abort(self, checkpoint_id: int) -> None:
        """Handles a checkpoint that will not complete: input that waited for it is processed. Raises as
        StopWithSavepoint.abort."""
        self.checkpoints.abort(checkpoint_id)
        waiting = self._stop.abort(checkpoint_id)
        if waiting is None:
            return
        for take in waiting:
            take()
        if self._gate is not None:
            self._follow_gate(self._gate)

    def _inline(self) -> Mapping[str, OperatorState]:
        """Returns the positions of a Kafka source."""
        if self._kafka_source is None:
            return {}
        positions = self._positions.to_positions_by_topic(self._input_topics)
        return {self._kafka_source: OperatorState(inline=json.dumps(positions).encode())}
