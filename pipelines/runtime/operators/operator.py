"""The contract of an operator: batches and times are pushed in, and pushed on to its output.

All calls come from one thread: `restore` for what the changelog holds, `open`, then any of the middle ones, then
`finish` (only if the input ended), then `close` (always).

Two clocks pass through an operator. The *watermark* is event time: no record with a timestamp <= it follows; it is
NO_WATERMARK until somebody assigns one, and END_OF_TIME when the input has ended. The *clock* is processing time, the
wall clock of the process: an operator is told of it when it has come to `next_clock`, and of END_OF_TIME at the end.

Between two `before_commit` calls lies one transaction: what was emitted, what `take_changes` gave and the input's
positions are committed together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ....schemas.types import OperatorConfig
from ...types import PICKLED, RecordType
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..state_backend.stateful import Origin
from .task_context import TaskContext


class SendMessage(Protocol):
    """Adds a message to the task's transaction. `partition` None: by key, or any. `delivered` is told its offset."""

    def __call__(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        delivered: Callable[[int], None] | None = None,
    ) -> None: ...


class OperatorOutput(Protocol):
    """Where an operator pushes to: operators chained behind it, and channels."""

    def emit(self, batch: Batch) -> None:
        """Records of the main output."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Records of a side output; nobody may be listening."""

    def emit_watermark(self, watermark: int) -> None:
        """Event time has come so far (ms), on every output."""

    def emit_idle(self, idle: bool) -> None:
        """Whether to go on without this one's watermark, on every output."""


class OperatorSetup(msgspec.Struct, frozen=True):
    """What an operator is made of."""

    config: OperatorConfig
    context: TaskContext
    cluster: str
    job_id: str
    send: SendMessage
    input_types: tuple[RecordType, ...] = (PICKLED,)
    """Of each input."""
    require_topic: Callable[[str], None] = lambda topic: None
    """Raises TaskError where there is no topic of that name."""
    wall_clock: Callable[[], int] = lambda: 0
    """Milliseconds since the epoch; never falls."""
    generation: int = 0
    """How often the job went back to a checkpoint."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """OperatorConfig.parameters, read."""
        read: Mapping[str, Any] = json.loads(self.config.parameters or "{}")
        return read

    def record_type_parameter(self, parameter: str) -> RecordType:
        """A record type among the parameters; pickled where they do not say."""
        form = self.parameters.get(parameter)
        return PICKLED if form is None else RecordType.from_json(form)


class Operator:
    """One operator of one subtask; subclasses take a Setup."""

    output: OperatorOutput
    """Set before anything else is called."""

    def open(self) -> None:
        """Before the first record; the state, if any, is restored."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Takes records, never none."""
        raise NotImplementedError

    def advance_watermark(self, watermark: int) -> None:
        """Event time has come so far. Emits what that makes due, then passes it on."""
        self.output.emit_watermark(watermark)

    @property
    def next_clock(self) -> int:
        """The processing time at which something is due (ms); END_OF_TIME where nothing waits for a time."""
        return MAX_WATERMARK

    def advance_clock(self, clock: int) -> None:
        """Processing time has come so far. Emits what that makes due; whoever calls tells the next operator."""

    def set_idle(self, idle: bool) -> None:
        """Whether the inputs have fallen silent: passes it on."""
        self.output.emit_idle(idle)

    def finish(self) -> None:
        """All input has ended; both clocks are at END_OF_TIME already. Emits what is held back still."""

    @property
    def wants_commit(self) -> bool:
        """Whether time has made something due that only a commit can do, and that no output shows."""
        return False

    def before_commit(self) -> None:
        """The transaction is about to be committed. Emits what was gathered to be sent at once."""

    def take_changes(self) -> Iterable[bytes]:
        """The changes of state since the last call, for the changelog."""
        return ()

    def full(self, sections: Sequence[range]) -> Iterator[tuple[range | None, bytes]]:
        """All state as messages for `restore`, as of the last `take_changes` (state/stateful.py)."""
        return iter(())

    def committed(self) -> None:
        """The transaction is committed: what it promised can be done (files shown to readers)."""

    def restore_from(self, origin: Origin | None) -> None:
        """What is restored from here on was written by that subtask, before a change of parallelism; None: by this."""

    def begin_time_anew(self) -> None:
        """What was restored may have come to the end of time, by a savepoint that drained the job: time goes on."""

    def restore(self, message: bytes) -> None:
        """Applies what `take_changes` gave to an earlier attempt, in order. Raises ValueError for what is none."""
        raise ValueError(f"{type(self).__name__} keeps no state")

    def close(self) -> None:
        """At the end, also after a failure."""
