"""The input gate: the event time of a subtask's channels, and which senders have ended (Flink's
StatusWatermarkValve).

Rules:
1. The buffers of one attempt of a sender have ascending sequence numbers without a gap. A gap means that a buffer was
   lost, and the task must not continue. An attempt that continues in another process, because its TaskExecutor was
   restarted, begins at 0 again: it has fenced itself, and its uncommitted output is gone.
2. A tick carries event time outside of transactions. It has the number of the next buffer and does not use up a number.
   A tick may be lost, late, or from a fenced attempt: only the sender's latest message counts. A tick with a greater
   number comes from an older process of the attempt; a lost buffer shows at the next buffer. If the gate has received
   nothing else from the attempt, a tick gives the time, but not the next number.
3. The watermark is the least of all senders that are not idle. It never decreases. A sender that has sent nothing yet
   holds it. If all senders that have not ended are idle, the subtask is idle too, and the watermark is their greatest:
   there is nothing left to wait for.
4. When all senders have ended, the input has ended, and event time is END_OF_TIME.
5. Messages of an older generation of the job are ignored. A message of a newer generation means that this attempt is
   outdated: it must end.
6. An attempt that begins a generation receives every sender from its first buffer. Otherwise the channel was created
   again, and a position from an older generation has no meaning in it.

The end of a sender cannot be received again after a restart, so it is committed with the positions. Everything else is
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...common.failures import ProgressLostError, TaskError
from ...records.buffers import MAX_WATERMARK, NO_WATERMARK, BufferError, BufferHeader


class _Sender:
    """The messages of one sender on one input."""

    __slots__ = ("attempt", "has_ended", "idle", "sequence", "watermark")

    def __init__(self, ended: bool) -> None:
        self.watermark = NO_WATERMARK
        self.attempt = -1
        self.sequence: int | None = None
        self.idle = False
        self.has_ended = ended


class InputGate:
    """The channels of a subtask. For each input it takes the subtask indexes of its senders, and those that have
    already ended."""

    def __init__(
        self,
        senders: Sequence[Iterable[int]],
        ended: Sequence[frozenset[int]],
        generation: int = 0,
        *,
        begins: bool = False,
    ) -> None:
        """`begins`: whether the attempt is the first of its generation to read anything."""
        self._generation = generation
        self._before_first = -1 if begins else None
        self._senders = [
            {sender: _Sender(sender in known) for sender in those}
            for those, known in zip(senders, ended, strict=True)
        ]
        self._all = [sender for those in self._senders for sender in those.values()]
        self.watermark = NO_WATERMARK
        """No record with a timestamp <= this follows (ms)."""
        self.idle = False
        """Whether this subtask is idle: receivers do not wait for its watermark."""
        self.ended = False
        """Whether every sender of every input has ended."""
        self.stopped = False
        """Whether a savepoint stopped a sender: then its end does not fire what is held back."""
        self._look()

    @property
    def active_senders(self) -> frozenset[tuple[int, int]]:
        """Returns (input, sender) of all senders that have not ended."""
        return frozenset(
            (i, sender)
            for i, those in enumerate(self._senders)
            for sender, said in those.items()
            if not said.has_ended
        )

    def ended_senders(self, input_index: int) -> frozenset[int]:
        """Returns the senders of an input that have ended."""
        return frozenset(sender for sender, said in self._senders[input_index].items() if said.has_ended)

    def checked(self, input_index: int, header: BufferHeader) -> BufferHeader:
        """Returns the header if one of the input's senders may have written it. Raises BufferError."""
        if header.sender not in self._senders[input_index]:
            raise BufferError(f"its sender is {header.sender}, which does not send to this subtask")
        return header

    def admits(self, input_index: int, offset: int, header: BufferHeader) -> bool:
        """Records a buffer of a valid sender, before its records are taken. Returns False if it is ignored.

        Raises ProgressLost if a buffer before it was lost, TaskError if it is of a newer generation of the job.
        """
        if header.generation != self._generation:
            if header.generation < self._generation:
                return False
            raise TaskError(
                f"superseded: input {input_index} has, at offset {offset}, a buffer of generation"
                f" {header.generation} of the job, and this attempt is of {self._generation}"
            )
        sender = self._senders[input_index][header.sender]
        if header.attempt != sender.attempt:
            if header.tick and header.attempt < sender.attempt:
                return False
            unheard = sender.attempt < 0
            sender.attempt, sender.sequence = header.attempt, self._before_first if unheard else None
        if sender.sequence is None:
            if not header.tick:
                sender.sequence = header.sequence
            return True
        expected = sender.sequence + 1
        if header.tick:
            return header.sequence == expected
        if header.sequence == 0:
            expected = 0
        if header.sequence != expected:
            raise ProgressLostError(
                f"a buffer was lost: input {input_index} has, at offset {offset}, number {header.sequence} of"
                f" sender {header.sender} (attempt {header.attempt}), after number {sender.sequence};"
                " the job must roll back to a checkpoint"
            )
        sender.sequence = header.sequence
        return True

    def conclude(self, input_index: int, header: BufferHeader) -> None:
        """Applies the times, idleness and end of a buffer after its records."""
        sender = self._senders[input_index][header.sender]
        changed = header.ends > sender.has_ended or header.idle is not sender.idle
        sender.idle = header.idle
        if header.ends:
            sender.has_ended = True
            self.stopped = self.stopped or header.stops
        if header.watermark > sender.watermark:
            sender.watermark, changed = header.watermark, True
        if changed:
            self._look()

    def _look(self) -> None:
        present = [sender for sender in self._all if not sender.has_ended]
        if not present:
            # A subtask without any channel has not ended: it is a source.
            if self._all:
                self.ended = True
                self.watermark = MAX_WATERMARK
                self.idle = False
            return
        if self.stopped:
            return  # after a savepoint that stops the job, time stands still until all have ended
        active = [sender.watermark for sender in present if not sender.idle]
        self.idle = not active
        reached = min(active) if active else max(sender.watermark for sender in present)
        self.watermark = max(self.watermark, reached)
