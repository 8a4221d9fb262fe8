"""The contract of an operator: batches and times are pushed in, and pushed on to its output.

All calls come from one thread: `restore` for the messages of the changelog, `open`, then any of the processing methods,
then `finish` (only if the input ended), then `close` (always).

Two clocks pass through an operator. The *watermark* is event time: no record with a timestamp <= it follows. It is
NO_WATERMARK until an operator assigns one, and END_OF_TIME when the input has ended. The *clock* is processing time,
the wall clock of the process: an operator receives it when it reaches `next_clock`, and END_OF_TIME at the end.

The operations between two `before_commit` calls are one transaction: emitted records, the changes of `take_changes` and
the positions of the input are committed together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from ....schemas.types import OperatorConfig
from ...types import PICKLED, RecordType
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..spark.file_requests import SparkFiles
from ..state_backend.entry_store import OpenStore, open_heap_store
from ..state_backend.stateful import Origin
from .async_calls import AsyncCalls
from .task_context import TaskContext

UNLIMITED: Final = 1 << 40
"""As `room`: more records than any batch has."""
MessageHeaders = list[tuple[str, bytes | None]]
"""Names and values, in order."""


class SendMessage(Protocol):
    """Adds a message to the task's transaction. `value` None: a tombstone. `partition` None: by key, or any.
    `delivered` is called with its offset."""

    def __call__(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        headers: MessageHeaders | None = None,
        delivered: Callable[[int], None] | None = None,
    ) -> None: ...


class OperatorOutput(Protocol):
    """The target of an operator: the operators chained behind it, and channels."""

    def emit(self, batch: Batch) -> None:
        """Emits records of the main output."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Emits records of a side output; it may have no consumer."""

    def emit_watermark(self, watermark: int) -> None:
        """Emits the event time (ms) on every output."""

    def emit_idle(self, idle: bool) -> None:
        """Emits on every output whether this one is idle, so that others need not wait for its watermark."""


class OperatorSetup(msgspec.Struct, frozen=True):
    """The parts that an operator is built from."""

    config: OperatorConfig
    context: TaskContext
    cluster: str
    job_id: str
    send: SendMessage
    input_types: tuple[RecordType, ...] = (PICKLED,)
    """The record type of each input."""
    require_topic: Callable[[str], int] = lambda topic: 1
    """Returns the number of partitions of a topic. Raises TaskError if there is no topic of that name."""
    wall_clock: Callable[[], int] = lambda: 0
    """Milliseconds since the epoch; never decreases."""
    generation: int = 0
    """The number of rollbacks of the job."""
    is_rescaled: bool = False
    """Whether the attempt begins the generation, from a checkpoint in which its vertex had another parallelism."""
    open_store: OpenStore = open_heap_store
    spark: SparkFiles | None = None
    """Writes files; None: there is no Spark."""
    async_calls: AsyncCalls | None = None
    """Runs what asynchronous operators await; None: there are none here."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parsed OperatorConfig.parameters."""
        read: Mapping[str, Any] = json.loads(self.config.parameters or "{}")
        return read

    def record_type_parameter(self, parameter: str) -> RecordType:
        """Returns a record type among the parameters; PICKLED if there is none."""
        form = self.parameters.get(parameter)
        return PICKLED if form is None else RecordType.from_json(form)


class Operator:
    """One operator of one subtask. Subclasses take an OperatorSetup."""

    output: OperatorOutput
    """Set before any call."""

    def open(self) -> None:
        """Called before the first record. The state, if there is any, is already restored."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Takes records, never an empty batch."""
        raise NotImplementedError

    @property
    def room(self) -> int:
        """Returns how many records an asynchronous operator takes at once; 0 or less: its task reads no input."""
        return UNLIMITED

    @property
    def has_pending(self) -> bool:
        """Whether results of an asynchronous operator are to come."""
        return False

    def on_woken(self) -> None:
        """Emits what an asynchronous operator has to emit. Called after `AsyncCalls.wake`."""

    def advance_watermark(self, watermark: int) -> None:
        """Advances event time: emits what is due, then passes the watermark on."""
        self.output.emit_watermark(watermark)

    @property
    def next_clock(self) -> int:
        """Returns the processing time at which something is due (ms); END_OF_TIME if nothing waits for a time."""
        return MAX_WATERMARK

    def advance_clock(self, clock: int) -> None:
        """Advances processing time: emits what is due. The caller calls the next operator."""

    def set_idle(self, idle: bool) -> None:
        """Sets whether all inputs are idle, and passes it on."""
        self.output.emit_idle(idle)

    def finish(self) -> None:
        """Called when all input has ended; both clocks are at END_OF_TIME already. Emits records that are still held
        back."""

    @property
    def wants_commit(self) -> bool:
        """Whether work is due that only a commit can do, and that no output shows."""
        return False

    def before_commit(self) -> None:
        """Called before the commit of a transaction. Emits records that were collected to be sent together."""

    def take_changes(self) -> Iterable[bytes]:
        """Returns the changes of state since the last call, for the changelog."""
        return ()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """Returns all state as messages for `restore`, as of the last `take_changes` (state/stateful.py)."""
        return iter(())

    def committed(self) -> None:
        """Called after the commit of a transaction: actions that depend on it are now allowed (publishing files)."""

    def restore_from(self, origin: Origin | None) -> None:
        """Sets the old subtask that wrote the messages that are restored next, before a change of parallelism; None:
        this one."""

    def begin_time_anew(self) -> None:
        """Called after a restore: a savepoint that drained the job had advanced time to its end; now time continues."""

    def restore(self, message: bytes) -> None:
        """Applies the changes of an earlier attempt (`take_changes`), in order. Raises ValueError for an invalid
        one."""
        raise ValueError(f"{type(self).__name__} has no state")

    def close(self) -> None:
        """Called at the end, also after a failure."""
