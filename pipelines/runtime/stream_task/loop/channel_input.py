"""The input of a subtask from other tasks: buffers of channels, and calls of senders in the same process.

Each buffer is taken once. A sender whose barrier has arrived is held back until the checkpoint has the barriers of all
(checkpoint/). Event time follows the gate.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common.deployment import CheckpointTrigger
from ...common.failures import RecordError
from ...operators.chain import OperatorChain
from ...operators.local_input import LocalInput
from ...records.batch import EMPTY, Batch
from ...records.buffers import (
    HEADER_BYTES,
    NO_WATERMARK,
    BufferCodec,
    BufferError,
    BufferHeader,
    decode_header,
    read_barrier,
)
from ...records.latency_markers import read_marker
from ..checkpoint.stop_with_savepoint import StopWithSavepoint
from ..checkpoint.subtask_checkpoints import SubtaskCheckpointCoordinator
from ..checkpoint.subtask_output import SubtaskOutput
from ..input.barrier_handler import HeldBuffer, InputChannel
from ..input.foreign_messages import ForeignMessageFilter
from ..input.fragments import FragmentAssembler
from ..input.input_gate import InputGate
from ..input.input_positions import InputPositions
from ..input.record_locations import RecordLocations
from ..latency_tracker import LatencyTracker
from ..output.local_channel import LocalChannel


class ChannelInput:
    """Built by Subtask. Has the methods of a LocalReceiver (output/local_channel.py)."""

    def __init__(
        self,
        *,
        gate: InputGate,
        positions: InputPositions,
        codecs: list[BufferCodec],
        operator_inputs: list[int],
        subtask_index: int,
        topics: list[str],
        fragments: FragmentAssembler,
        places: RecordLocations,
        chain: OperatorChain,
        output: SubtaskOutput,
        checkpoints: SubtaskCheckpointCoordinator,
        stop: StopWithSavepoint,
        latencies: LatencyTracker | None,
        process: Callable[[Batch, int], None],
    ) -> None:
        """`process` runs the operators on a batch of an input of the chain."""
        self._gate = gate
        self._positions = positions
        self._codecs = codecs
        self._operator_inputs = operator_inputs
        self._fragments = fragments
        self.prefix = fragments.prefix
        """That of the vertex."""
        self._places = places
        self._chain = chain
        self._output = output
        self._checkpoints = checkpoints
        self._stop = stop
        self._latencies = latencies
        self._process = process
        self._subtask = subtask_index
        self.foreign = ForeignMessageFilter(topics, subtask_index)
        self._watermark = NO_WATERMARK
        self._is_idle = False
        self.local_inputs: dict[int, LocalInput] = {}
        """By index of the input: what takes the records that are handed over by calls."""
        self.local_channels: dict[tuple[int, int], LocalChannel] = {}
        """By (input, sender): where a sender in this process may hand over records by calls."""
        self.bytes_in = 0
        """The bytes of the buffers that were taken."""

    @property
    def watermark(self) -> int:
        """The event time of the inputs (ms)."""
        return self._watermark

    @property
    def has_partial_record(self) -> bool:
        """Whether a record is only partly received."""
        return self._fragments.has_partial_record

    def take_buffer(self, input_index: int, partition: int, offset: int, data: bytes) -> None:
        """Processes a buffer of a channel; ignores one that was processed before."""
        gate = self._gate
        if not self._positions.admits(input_index, partition, offset, offset + 1):
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
        if self._checkpoints.is_held((input_index, header.sender)):
            if not (header.tick or header.marker):
                self._hold(HeldBuffer(input_index, offset, data))
            return
        if header.marker:
            self._take_marker(data)
            return
        self._receive(input_index, offset, header, data)

    def takes_calls(self, input_index: int, sender: int) -> bool:
        """Whether it processes what the sender sends now: it holds nothing of it back, and has not ended."""
        return not (self._output.is_finished or self._checkpoints.is_held((input_index, sender)))

    def position(self, input_index: int) -> int:
        """Returns the next offset of its partition of the input."""
        return self._positions.get(input_index, self._subtask) or 0

    def take_call(self, input_index: int, header: BufferHeader, batch: Batch) -> None:
        """Processes records, times and the end of a sender in the same process; `batch` may be empty."""
        gate, channel = self._gate, (input_index, header.sender)
        if len(batch):
            batch = self.local_inputs[input_index].take(batch)
        if len(batch):
            if self._checkpoints.is_captured(channel):
                self._checkpoints.capture(channel, self._codecs[input_index].encode(header, batch))
            try:
                self._process(batch, self._operator_inputs[input_index])
            except RecordError as error:
                self._places.add_call(error, input_index, header.sender)
                raise
        gate.conclude(input_index, header)
        self.follow_gate()
        if header.ends:
            # The sender may not run again to send its end, so that is committed with its last transaction.
            self._positions.note_moved()
            self._checkpoints.on_sender_ended(channel)

    def take_barrier_call(self, input_index: int, sender: int, checkpoint: CheckpointTrigger) -> None:
        """Handles the barrier of a sender in the same process."""
        self._checkpoints.on_barrier((input_index, sender), checkpoint)

    def take_marker_call(self, data: bytes) -> None:
        """Handles a latency marker of a sender in the same process."""
        self._take_marker(data)

    def _is_called(self, channel: InputChannel) -> bool:
        """Whether the sender hands over by calls. Then its ticks in Kafka are late."""
        local = self.local_channels.get(channel)
        return local is not None and local.is_open

    def _take_marker(self, data: bytes) -> None:
        """Measures and forwards a latency marker. It changes nothing else: results do not depend on markers."""
        if self._latencies is not None:
            marker = read_marker(data)
            if marker is not None and self._latencies.on_marker(marker):
                self._output.add_marker(marker)

    def _hold(self, held: HeldBuffer) -> None:
        self._positions.hold(held.input_index, self._subtask, held.offset)
        self._checkpoints.hold(held)

    def take_held(self, held: HeldBuffer) -> None:
        """Processes a buffer that was held back, or holds it again for the next checkpoint."""
        header = decode_header(held.data)
        self._positions.release(held.input_index, self._subtask, held.offset)
        if self._checkpoints.is_held((held.input_index, header.sender)):
            self._hold(held)
        else:
            self._receive(held.input_index, held.offset, header, held.data)

    def _receive(self, input_index: int, offset: int, header: BufferHeader, data: bytes) -> None:
        gate = self._gate
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
                self._checkpoints.capture(channel, data)
                self._process(batch, self._operator_inputs[input_index])
        except BufferError as error:
            raise self.foreign.failure(input_index, offset, error) from error
        except RecordError as error:
            self._places.add_buffer(error, input_index, offset, len(batch))
            raise
        gate.conclude(input_index, header)
        self.follow_gate()
        if checkpoint is not None:
            self._checkpoints.on_barrier(channel, checkpoint)
        elif header.ends:
            self._checkpoints.on_sender_ended(channel)

    def follow_gate(self) -> None:
        """Advances event time to that of the gate."""
        gate = self._gate
        if gate.ended or self._stop.savepoint is not None:
            return  # finish() advances both clocks to their end
        if gate.watermark > self._watermark:
            self._watermark = gate.watermark
            self._chain.advance_watermark(gate.watermark)
        if gate.idle is not self._is_idle:
            self._is_idle = gate.idle
            self._chain.set_idle(gate.idle)
        self._output.note_pending()

    def close(self) -> None:
        """Closes the stateless prefix. Raises UserCodeError."""
        self.prefix.close()
