"""What one attempt of a subtask does, without threads, sockets or Kafka: buffers and polls in, a transaction out.

Everything between two commits is one transaction, so that a successor begins exactly where the last commit was: inputs
at the committed offsets, state as the changelog has it, output as the channels have it. Whoever drives a Subtask
decides when to commit; what comes of it does not depend on that, nor on how records were cut into buffers.

A *cut* is not a commit: it says where in the transaction a checkpoint ends (checkpointing.py has when). What was done
before is flushed, the barrier follows it on every channel, and a marker follows the changes of state in the changelog.
While a savepoint is being aligned nothing is committed: some of what was taken lies behind what is held back.

A stop-with-savepoint freezes its sources behind the cut: they take nothing in, and time stands still. When the
savepoint is confirmed each task ends, and nothing that it holds back is due by that; when it is aborted, they go on.

Time: at channels it is what their senders tell. Behind a source the clock is the driver's, and event time begins with
an operator that assigns it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from ....schemas.types import OperatorState
from ..accumulators import CHANGELOG_KEY, Accumulators
from ..batch import EMPTY, Batch
from ..buffers import END_OF_TIME, HEADER_SIZE, NO_WATERMARK, BufferCodec, Header, header_of, read_barrier
from ..clocks import ClockDemand
from ..deployment import Checkpoint
from ..failures import ProgressLost, TaskError
from ..operators.chain import OperatorChain
from ..operators.functions import typed_by
from ..state.stateful import ORIGIN_KEY, Stateful, read_origin
from .checkpointing import (
    LIMIT,
    Action,
    Checkpointing,
    Complete,
    Decline,
    Held,
    Pending,
    Release,
    TakeCut,
)
from .input_gate import InputGate
from .part import Owner, Part
from .positions import InputPositions
from .progress import moved_offsets
from .record_writer import RecordWriter
from .sources.source import UNTIL_WOKEN_S, Polled, Source, SourceSetup
from .state_writer import StateWriter
from .transaction import ConsumedOffset, Transaction

BAD_RECORDS: Final = "numRecordsInErrors"
"""The accumulator of messages that a Kafka source skipped (Flink's name, FLIP-33)."""
MARKER: Final = b"~checkpoint"
"""In the place of an operator id, in the changelog: what lies before is part of the checkpoint with this id."""


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
        owner: Owner,
        kafka_source: str | None = None,
        checkpoints_over: int = 0,
    ) -> None:
        """`gate` is None for sources. `ends`: the end of a bounded Kafka source, by (input, partition).

        `kafka_source`: the operator id of one whose positions the subtask keeps. `checkpoints_over`: the newest
        checkpoint that is known to be complete: late barriers up to it count for nothing.
        """
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
        self._owned_by = owner
        self._kafka_source = kafka_source
        self._checkpoints = Checkpointing(checkpoints_over)
        self._parts: list[Part] = []
        """Cut, and not yet both complete and committed."""
        self._uncommitted = 0
        """How many of them the open transaction holds."""
        self._declined: list[Decline] = []
        self._stopping: int | None = None
        """The savepoint that stops the task when it is confirmed."""
        self._stopped = False
        self._drained = False
        self._waiting: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self._refused = False
        """Whether input was dropped that came while the task was stopping."""
        self._standing: list[ConsumedOffset] = []
        """What is committed once for the generation, and again when brokers might forget it."""
        self._flushed = 0
        self.state_writer: StateWriter | None = None
        """Where changes go besides the changelog; None where the vertex keeps no state."""
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
        if key == MARKER:
            return
        if key == ORIGIN_KEY:
            operator_id, origin = read_origin(message)
            self._owner(operator_id).restore_from(origin)
        else:
            self._owner(key.decode(errors="replace")).restore(message)

    def replay(self, key: bytes, message: bytes) -> None:
        """As `restore`, for what lies in the changelog behind the files of the last checkpoint."""
        self.restore(key, message)
        if self.state_writer is not None and key != MARKER:
            self.state_writer.add(key, message)

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

    def begin_generation(
        self, in_flight: Iterable[tuple[int, Batch]], standing: Sequence[ConsumedOffset] = ()
    ) -> None:
        """Once it is open: takes what was in flight, by input, and commits that with a position of every input.

        `standing` is committed with it: where the changelog begins, and what a source has settled.
        """
        for operator in self._chain.operators:
            operator.begin_time_anew()
        for input_index, batch in in_flight:
            if len(batch):
                self._process(batch, self._operator_inputs[input_index])
        if self._gate is not None:
            for i in range(len(self._input_topics)):
                self._positions.advance(i, self._subtask, self._positions.get(i, self._subtask) or 0)
        self._positions.move_all()
        self._standing = list(standing)
        self.commit(standing=self._standing)

    def keep(self, standing: Sequence[ConsumedOffset]) -> None:
        """As `standing` of `begin_generation`, where an earlier attempt has committed it."""
        self._standing = list(standing)

    # Input.

    @property
    def ended(self) -> bool:
        """Whether nothing comes in any more, and it is known whether that is the end or a stop."""
        if self._stopping is not None:
            return self._stopped
        return self._stopped or (self._ended if self._gate is None else self._gate.ended)

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
        self._positions.advance(input_index, partition, offset + 1)
        header = header_of(data)
        if self._checkpoints.active and self._checkpoints.holds((input_index, header.sender)):
            if not header.tick:
                self._do(self._checkpoints.hold(Held(input_index, offset, data)))
            return
        self._receive(gate, input_index, offset, header, data)

    def _receive(self, gate: InputGate, input_index: int, offset: int, header: Header, data: bytes) -> None:
        if not gate.admits(input_index, offset, header):
            return
        codec, checkpoints = self._codecs[input_index], self._checkpoints
        batch = EMPTY if header.barrier else codec.read_payload(data, HEADER_SIZE)
        if len(batch):
            if checkpoints.active:
                self._do(checkpoints.capture((input_index, header.sender), data))
            self._process(batch, self._operator_inputs[input_index])
        gate.conclude(input_index, header)
        self._follow_gate(gate)
        if header.barrier:
            checkpoint = read_barrier(data)
            channel = input_index, header.sender
            self._do(checkpoints.barrier(channel, checkpoint, gate.unended, _microseconds()))
        elif header.ends and checkpoints.active:
            self._do(checkpoints.ended((input_index, header.sender), _microseconds()))

    def take_records(
        self, input_index: int, partition: int, first: int, following: int, data: bytes, skipped: int = 0
    ) -> None:
        """What a Kafka source has read at these offsets, behind the prefix (BufferCodec.payload).

        `skipped` messages among them were bad, and are counted.
        """
        if not self.admits(input_index, partition, first, following):
            return
        if self._stopping is not None:
            take = partial(self.take_records, input_index, partition, first, following, data, skipped)
            self._wait(take, len(data))
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
        if self._stopping is not None:
            return Polled(None, wait_s=UNTIL_WOKEN_S)
        polled = self._source[1].poll(limit)
        if polled.batch is not None:
            self._process(polled.batch, 0)
        self._ended = polled.ended
        return polled

    def advance_clock(self, clock: int) -> None:
        """Of a source: processing time has come so far (ms). No record that is taken later is older."""
        if self._gate is None and clock > self._clock and self._stopping is None:
            self._clock = clock
            self._chain.advance_clock(clock)
            self._note_pending()

    def finish(self) -> None:
        """Once the input has ended: brings all operators to their end, unless it was stopped, and commits."""
        self._finished = True
        for number in self._checkpoints.pending:
            self._do(self._checkpoints.abort(number))
        if self._gate is not None and self._gate.stopped:
            self._stopped = True
        if not self._stopped:
            self._clock = END_OF_TIME
            if not self._drained:
                self._chain.finish()
        self.commit()

    def _process(self, batch: Batch, input_index: int) -> None:
        self.records_in += len(batch)
        self.dirty = True
        self._chain.process(batch, input_index)

    def _follow_gate(self, gate: InputGate) -> None:
        if gate.ended or self._stopping is not None:
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

    @property
    def may_commit(self) -> bool:
        """Whether no savepoint is being aligned."""
        return not self._checkpoints.aligning

    @property
    def commit_due(self) -> bool:
        """Whether a checkpoint waits for a commit, and it is possible."""
        return self._uncommitted > 0 and self.may_commit

    def commit(self, *, tell_all: bool = False, standing: Sequence[ConsumedOffset] = ()) -> bool:
        """One transaction: output, changes of state, consumed offsets. Whether there was anything to commit.

        `tell_all`: every channel is told the time with it. Nothing is committed while a savepoint is being aligned.
        """
        if not self.may_commit:
            return False
        self._flush(tell_all=tell_all)
        offsets = [
            *moved_offsets(
                self._input_topics, self._positions, self._gate, self._ends, self._owned_by.generation
            ),
            *standing,
        ]
        if offsets or self._transaction.active:
            self._transaction.commit(offsets)
            self._positions.settle()
            self.records_out += self._flushed
            self._flushed = 0
            committed = True
        else:
            committed = False
        self.dirty = False
        if self._uncommitted:
            self._uncommitted = 0
            for part in self._parts:
                part.committed = True
        if committed:
            for operator in self._chain.operators:
                operator.committed()
        return committed

    def _flush(self, *, tell_all: bool = False) -> None:
        """Puts output and changes of state into the transaction."""
        self._chain.before_commit()
        ends = self._finished
        self._flushed += self._writer.pending
        for each in self._writer.flush(
            self._clock, ends=ends, stops=self._stopped, tell_all=ends or tell_all
        ):
            self._send(each.topic, each.partition, each.data)
        if self._changelog is None:
            return
        for key, changes in self._changes():
            for change in changes:
                self._transaction.send(self._changelog, change, key=key, partition=self._subtask)
                if self.state_writer is not None:
                    self.state_writer.add(key, change)

    def recommit(self) -> None:
        """Every position is to be committed again, moved or not: brokers forget those that were not for long."""
        self._positions.move_all()
        if self._standing:
            self.commit(standing=self._standing)
        elif not self.moved and self._source is None and not self._transaction.active:
            self._transaction.commit(())

    def close(self) -> None:
        """Closes operators and source, whatever goes wrong with one. Raises the first error."""
        try:
            self._chain.close()
        finally:
            if self.state_writer is not None:
                self.state_writer.close()
            if self._source is not None:
                self._source[1].close()

    # Checkpoints.

    def trigger(self, checkpoint: Checkpoint) -> None:
        """Begins a checkpoint, as a subtask without senders, or whose senders have ended or are ending."""
        unended = frozenset() if self._gate is None else self._gate.unended
        self._do(self._checkpoints.trigger(checkpoint, unended, _microseconds()))

    def confirm(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: if it stops the task, that has ended now."""
        if self._stopping == checkpoint_id:
            self._stopped = True

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint will not be completed: what waits for it goes on.

        Raises TaskError where the task has come too far towards its stop to go on: another attempt does, or for
        ProgressLost, where time was brought to its end, the job from an earlier checkpoint.
        """
        self._parts = [part for part in self._parts if part.checkpoint_id != checkpoint_id or part.complete]
        self._do(self._checkpoints.abort(checkpoint_id))
        if self._stopping != checkpoint_id or self._stopped:
            return
        self._stopping = None
        if self._drained:
            raise ProgressLost(
                f"savepoint {checkpoint_id}, with which the job was to be drained, was aborted after its time had come"
                " to its end: the job has to go back to a checkpoint"
            )
        if self._refused:
            raise TaskError(
                f"savepoint {checkpoint_id} was aborted: the source begins again where it stopped"
            )
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for take in waiting:
            take()
        if self._gate is not None:
            self._follow_gate(self._gate)

    def give_up_aligning(self, reason: str) -> None:
        """The savepoint that waits for barriers is declined, and what was held back goes on."""
        self._do(self._checkpoints.give_up_aligning(reason))

    @property
    def pending_checkpoints(self) -> tuple[int, ...]:
        """The ids of what waits for barriers."""
        return self._checkpoints.pending

    def take_parts(self) -> list[Part]:
        """Parts whose barriers have all come and whose cut is committed: to be finished by whoever asks; each once."""
        if not self._parts:
            return []
        ready = [part for part in self._parts if part.committed and part.complete]
        self._parts = [part for part in self._parts if not (part.committed and part.complete)]
        return ready

    def take_declined(self) -> list[Decline]:
        """Checkpoints that the subtask has no part in, each once."""
        declined, self._declined = self._declined, []
        return declined

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case TakeCut(pending):
                    self._cut(pending)
                case Complete(pending):
                    for part in self._parts:
                        part.complete = part.complete or part.pending is pending
                case Decline(checkpoint_id):
                    self._declined.append(action)
                    self._parts = [part for part in self._parts if part.checkpoint_id != checkpoint_id]
                case Release(held):
                    self._release(held)

    def _release(self, held: tuple[Held, ...]) -> None:
        gate, checkpoints = self._gate, self._checkpoints
        assert gate is not None
        for each in held:
            header = header_of(each.data)
            if checkpoints.active and checkpoints.holds((each.input_index, header.sender)):
                self._do(checkpoints.hold(each))
            else:
                self._receive(gate, each.input_index, each.offset, header, each.data)

    def _cut(self, pending: Pending) -> None:
        """What has been processed by now is the checkpoint's; see the head of this file."""
        began = time.monotonic_ns()
        checkpoint = pending.checkpoint
        if checkpoint.options.drains:
            self._drained = True
            self._chain.finish()
        self._flush()
        for each in self._writer.barrier(self._clock, checkpoint):
            self._send(each.topic, each.partition, each.data)
        part = Part(self._owned_by, pending, self._inline(), has_changelog=self._changelog is not None)
        if self._changelog is not None:
            number = str(checkpoint.checkpoint_id).encode()
            self._transaction.send(
                self._changelog, number, key=MARKER, partition=self._subtask, delivered=part.marked
            )
        if self.state_writer is not None:
            part.state = self.state_writer.cut(checkpoint.options)
        self._parts.append(part)
        self._uncommitted += 1
        self.dirty = True
        if checkpoint.options.stops:
            self._stopping = checkpoint.checkpoint_id
        part.sync_duration = (time.monotonic_ns() - began) // 1000

    def _inline(self) -> Mapping[str, OperatorState]:
        """The positions of a Kafka source."""
        if self._kafka_source is None:
            return {}
        positions = {
            self._input_topics[i]: {str(partition): offset for partition, offset in those.items()}
            for i, those in self._positions.by_input().items()
        }
        return {self._kafka_source: OperatorState(inline=json.dumps(positions).encode())}

    def _wait(self, take: Callable[[], None], size: int) -> None:
        """Keeps input until it is known whether the task stops."""
        self._waiting_bytes += size
        if self._waiting_bytes > LIMIT:
            self._refused = True
            self._waiting.clear()
        if not self._refused:
            self._waiting.append(take)

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


def _microseconds() -> int:
    return time.time_ns() // 1000


Clock = Callable[[], int]
"""Milliseconds since the epoch; never falls."""
