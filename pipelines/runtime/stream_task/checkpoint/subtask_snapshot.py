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
    """Whose part it is."""

    head: str
    """The operator that receives what comes in on channels."""
    subtask: int
    generation: int
    name: str
    """Of its files; no other attempt has the same."""
    behind: str = ""
    """The last operator of the stateless prefix, which what comes in on channels has passed."""
    input_types: tuple[RecordType, ...] = ()
    """Of what comes in on channels, behind that prefix."""


class PendingSubtaskSnapshot:
    """Made at the cut. Everything but `finish` is the task's thread's."""

    def __init__(
        self, owner: SubtaskId, pending: PendingCheckpoint, inline: Mapping[str, OperatorState]
    ) -> None:
        self._owner = owner
        self._pending = pending
        self._inline = inline
        self.state: StateSnapshot | None = None
        """Of the operators; None where none keeps any."""
        self.accumulators: Mapping[str, float] = {}
        """All that was counted, where the task stops behind the cut: it may be lost before it says so at its end."""
        self.changelog_offset = -1
        """Behind the marker, once the cut is committed."""
        self.sync_duration = 0
        """Microseconds."""
        self.committed = False
        self.is_complete = False
        """Whether every sender's barrier has come."""

    @property
    def checkpoint_id(self) -> int:
        """Whose part it is."""
        return self._pending.number

    @property
    def pending(self) -> PendingCheckpoint:
        """How it went until all barriers had come."""
        return self._pending

    def marked(self, offset: int) -> None:
        """The marker lies at this offset of the changelog."""
        self.changelog_offset = offset + 1

    def finish(self) -> tuple[SubtaskState, CheckpointMetrics]:
        """Writes what was in flight, and waits for the state. Call once, when it is committed and complete.

        Raises CheckpointError, TaskError where it cannot be written.
        """
        if self.changelog_offset < 0:
            raise TaskError("where the checkpoint ends in the changelog was not told by Kafka in time")
        began = time.monotonic_ns()
        pending = self._pending
        in_flight = self._write_in_flight()
        operators = dict(self._inline)
        written = 0
        if self.state is not None:
            operators |= self.state.finish()
            written = self.state.bytes_written
        flying = sum(file.length for each in in_flight for file in each.files)
        state = SubtaskState(
            operators=operators,
            in_flight=in_flight,
            changelog_offset=self.changelog_offset,
            generation=self._owner.generation,
            stops=pending.checkpoint.options.stops,
            accumulators=self.accumulators,
            size=flying + sum(file.length for each in operators.values() for file in each.files),
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
                    in_flight_key(owner.head, input_index, owner.subtask, owner.behind),
                    chain(
                        [in_flight_type(msgspec.json.encode(to_layout(owner.input_types[input_index])))],
                        (in_flight_message(decode_header(data).sender, data) for data in buffers),
                    ),
                )
                found.append(
                    InFlightState(
                        operator_id=owner.head, input=input_index, partition=owner.subtask, files=(stretch,)
                    )
                )
        return tuple(found)
