"""The work of one attempt of a subtask, without threads, sockets or Kafka: buffers and polls go in, a transaction
comes out.

Everything between two commits is in one transaction, which is open only during the commit. So a successor begins
exactly at the last commit: inputs at the committed offsets, state as in the changelog, output as in the channels. The
caller decides when to commit. The results depend neither on that nor on the batch boundaries.

This file drives the operators by the input of sources and by time. channel_input.py has the input from other tasks,
subtask_output.py the output, subtask_state.py the state, subtask_checkpoints.py the checkpoints, stop_with_savepoint.py
the stop by a savepoint.

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
from ...common.failures import RecordError
from ...common.protocol import NO_SKIPPED_RECORDS, SkippedRecords
from ...operators.chain import OperatorChain
from ...records.batch import Batch
from ...records.buffers import (
    MAX_WATERMARK,
    NO_WATERMARK,
    BufferCodec,
)
from ...state_backend.accumulators import Accumulators
from ..checkpoint.stop_with_savepoint import StopWithSavepoint
from ..checkpoint.subtask_checkpoints import SubtaskCheckpointCoordinator
from ..checkpoint.subtask_output import SubtaskOutput
from ..checkpoint.subtask_snapshot import SubtaskId
from ..input.barrier_handler import HeldBuffer
from ..input.fragments import FragmentAssembler
from ..input.input_gate import InputGate
from ..input.input_positions import InputPositions
from ..input.record_locations import RecordLocations
from ..input.sources.source import UNTIL_WOKEN_S, PollResult, Source, SourceSetup
from ..latency_tracker import LatencyTracker
from ..output.message_queue import OutgoingMessageQueue
from ..output.record_writer import RecordWriter
from ..output.transaction import Transaction
from ..restore.in_flight import InFlightRecords
from ..state.progress import ProgressWriter
from ..state.subtask_state import SubtaskState
from .channel_input import ChannelInput

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
        fragments: FragmentAssembler,
        kafka_source: str | None = None,
        reads_nothing: bool = False,
        checkpoints_over: int = 0,
        aligned_inputs: frozenset[int] = frozenset(),
        latencies: LatencyTracker | None = None,
    ) -> None:
        """`gate` is None for sources. `ends`: the end of a bounded Kafka source, by (input, partition).

        `kafka_source`: the operator id of the Kafka source whose positions the subtask stores. `reads_nothing`: whether
        the attempt owns none of its partitions. `checkpoints_over`: the newest checkpoint that is known to be complete;
        late barriers up to it are ignored. `aligned_inputs`: the inputs that have nothing in flight in a checkpoint.
        `latencies`: None if the job measures none.
        """
        self._chain = chain
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
        self._kafka_source = kafka_source
        self._has_no_input = reads_nothing
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
        self._payload_bytes = 0
        self.channel_input = (
            None
            if gate is None
            else ChannelInput(
                gate=gate,
                positions=positions,
                codecs=codecs,
                operator_inputs=operator_inputs,
                subtask_index=subtask_index,
                topics=input_topics,
                fragments=fragments,
                places=places,
                chain=chain,
                output=self.output,
                checkpoints=self.checkpoints,
                stop=self._stop,
                latencies=latencies,
                process=self._process,
            )
        )
        """None for sources."""

    def open(self, setup: SourceSetup | None = None) -> None:
        """Opens the operators, the last ones first, then the source. Raises UserCodeError, TaskError."""
        self._chain.open()
        if self._source is not None:
            assert setup is not None
            self._source[1].open(setup)
        if self.channel_input is not None:
            self.channel_input.follow_gate()
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
        if stop.savepoint is not None or stop.is_stopped:
            return stop.is_stopped
        has_ended = self._ended if self._gate is None else self._gate.ended
        return has_ended and (not self._chain.has_pending or (self._gate is not None and self._gate.stopped))

    @property
    def is_asynchronous(self) -> bool:
        """Whether operators emit results later than they take records."""
        return bool(self._chain.asynchronous)

    @property
    def has_pending(self) -> bool:
        """Whether asynchronous operators hold records."""
        return self._chain.has_pending

    @property
    def room(self) -> int:
        """How many records the operators take before the subtask must not read more."""
        return self._chain.room

    def on_woken(self) -> None:
        """Lets asynchronous operators emit results. What they have after a savepoint that stops the job is requested
        again by the job that continues from it."""
        if self._chain.asynchronous and self._stop.savepoint is None and not self._stop.is_stopped:
            self._chain.on_woken()
            self.output.note_pending()

    @property
    def watermark(self) -> int:
        """The event time of the inputs (ms)."""
        return NO_WATERMARK if self.channel_input is None else self.channel_input.watermark

    @property
    def bytes_in(self) -> int:
        """The bytes of the buffers and payloads that were taken."""
        return self._payload_bytes + (0 if self.channel_input is None else self.channel_input.bytes_in)

    @property
    def receiver(self) -> ChannelInput:
        """What takes the data of other tasks. Sources have none."""
        assert self.channel_input is not None
        return self.channel_input

    def _take_held(self, held: HeldBuffer) -> None:
        self.receiver.take_held(held)

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

    def first_left(self, input_index: int, partition: int, first: int, following: int) -> int:
        """Returns the first of these offsets to take. They have no records, so some may have been taken."""
        return self._positions.first_left(input_index, partition, first, following)

    def emit_marker(self) -> None:
        """Emits a latency marker if the subtask is of a source, and a marker is due."""
        if self.latencies is not None and (marker := self.latencies.take_due()) is not None:
            self.output.add_marker(marker)

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
        if not data and not any(skipped) and greatest_timestamp is None:
            first = self.first_left(input_index, partition, first, following)
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
        self._payload_bytes += len(data)
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
        return self.output.prepare(tell_all=tell_all, always=always)

    @property
    def is_finished(self) -> bool:
        """Whether the end of its output is prepared: it commits nothing more."""
        return self.output.is_finished

    def on_committed(self) -> None:
        """Records that the transaction is committed."""
        self.output.on_committed()
        self.checkpoints.on_committed()
        for operator in self._chain.operators:
            operator.committed()

    @property
    def has_partial_record(self) -> bool:
        """Whether a record is only partly received: nothing can be committed until the rest arrives."""
        return self.channel_input is not None and self.channel_input.has_partial_record

    def close(self) -> None:
        """Closes operators and source, even if one raises. Raises the first error."""
        with contextlib.ExitStack() as closing:
            if self._source is not None:
                closing.callback(self._source[1].close)
            if self.state.writer is not None:
                closing.callback(self.state.writer.close)
            if self.channel_input is not None:
                closing.callback(self.channel_input.close)
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
        self.on_woken()
        if self.channel_input is not None:
            self.channel_input.follow_gate()

    def _inline(self) -> Mapping[str, OperatorState]:
        """Returns the positions of a Kafka source."""
        if self._kafka_source is None:
            return {}
        positions = self._positions.to_positions_by_topic(self._input_topics)
        return {self._kafka_source: OperatorState(inline=json.dumps(positions).encode())}
