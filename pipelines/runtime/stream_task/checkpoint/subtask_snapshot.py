"""A subtask's snapshot for one checkpoint, until it is in storage and can be acknowledged.

It can be acknowledged when all barriers have arrived, the transaction with the snapshot's marker is committed, and its
files are written. The task does the first two; `finish` does the last, in any thread.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from itertools import chain

import msgspec

from .....infra.storage.storage import Storage
from .....schemas.types import CheckpointMetrics, InFlightState, OperatorState, SubtaskState
from ....checkpoint.layout import base_of
from ....checkpoint.state_files import Sections, in_flight_key, in_flight_message, in_flight_type
from ....types import RecordType
from ...common.failures import TaskError
from ...records.buffers import decode_header
from ...records.type_evolution import to_layout
from ..input.barrier_handler import PendingCheckpoint
from ..state.state_writer import StateSnapshot


class SubtaskId(msgspec.Struct, frozen=True):
    """The subtask that a snapshot belongs to."""

    head: str
    """The operator that receives the records of channels."""
    subtask: int
    generation: int
    name: str
    """The prefix of its file names; no other attempt has the same."""
    behind: str = ""
    """The last operator of the stateless prefix, which has processed the records of channels."""
    input_types: tuple[RecordType, ...] = ()
    """The record types of channels, after that prefix."""


class PendingSubtaskSnapshot:
    """A snapshot that is taken but not acknowledged. All methods but `finish` are for the task thread."""

    def __init__(
        self, owner: SubtaskId, pending: PendingCheckpoint, inline: Mapping[str, OperatorState]
    ) -> None:
        self._owner = owner
        self._pending = pending
        self._inline = inline
        self.state: StateSnapshot | None = None
        """The state of the operators; None if none has any."""
        self.accumulators: Mapping[str, float] = {}
        """The accumulators, if the task stops after the snapshot: it may be lost before it reports them at its end."""
        self.changelog_offset = -1
        """The offset after the marker, when the snapshot is committed."""
        self.sync_duration = 0
        """In microseconds."""
        self.committed = False
        self.is_complete = False
        """Whether every sender's barrier has arrived."""

    @property
    def checkpoint_id(self) -> int:
        """The id of the snapshot's checkpoint."""
        return self._pending.number

    @property
    def pending(self) -> PendingCheckpoint:
        """The checkpoint's state in the barrier handler, with its times and sizes."""
        return self._pending

    def marked(self, offset: int) -> None:
        """Records the offset of the marker in the changelog."""
        self.changelog_offset = offset + 1

    def finish(self) -> tuple[SubtaskState, CheckpointMetrics]:
        """Writes the records in flight, and waits for the state. Call it once, after the snapshot is committed and
        complete.

        Raises CheckpointError, TaskError if it cannot be written.
        """
        if self.changelog_offset < 0:
            raise TaskError("Kafka did not report the end of the checkpoint in the changelog in time")
        began = time.monotonic_ns()
        pending = self._pending
        in_flight = self._write_in_flight()
        operators = dict(self._inline)
        written = 0
        if self.state is not None:
            operators |= self.state.finish()
            written = self.state.bytes_written
        flying = sum(file.length for state in in_flight for file in state.files)
        state = SubtaskState(
            operators=operators,
            in_flight=in_flight,
            changelog_offset=self.changelog_offset,
            generation=self._owner.generation,
            stops=pending.checkpoint.options.stops,
            accumulators=self.accumulators,
            size=flying + sum(file.length for operator in operators.values() for file in operator.files),
        )
        return state, CheckpointMetrics(
            start_delay=max(0, pending.began - pending.checkpoint.timestamp),
            alignment_duration=max(0, pending.ended - pending.began),
            sync_duration=self.sync_duration,
            async_duration=(time.monotonic_ns() - began) // 1000,
            bytes_written=written + flying,
            bytes_in_flight=flying,
        )

    def _write_in_flight(self) -> tuple[InFlightState, ...]:
        captured = self._pending.captured
        if not captured:
            return ()
        owner, directory = self._owner, self._pending.checkpoint.options.directory
        storage = Storage.open(base_of(directory))
        found = []
        with Sections(storage, posixpath.join(directory, f"{owner.name}.in-flight")) as file:
            for input_index, buffers in sorted(captured.items()):
                stretch = file.add(
                    in_flight_key(owner.head, input_index, owner.subtask),
                    chain(
                        [in_flight_type(msgspec.json.encode(to_layout(owner.input_types[input_index])))],
                        (in_flight_message(decode_header(data).sender, data) for data in buffers),
                    ),
                )
                found.append(
                    InFlightState(
                        operator_id=owner.head,
                        input=input_index,
                        partition=owner.subtask,
                        files=(stretch,),
                        passed=owner.behind,
                    )
                )
        return tuple(found)
