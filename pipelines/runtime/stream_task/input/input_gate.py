"""The input gate: how far time has come at a subtask's channels, and who has ended (Flink's StatusWatermarkValve).

Rules:
1. A sender's buffers of one attempt have ascending sequence numbers without a gap; a gap means that a
   buffer was lost, and the task must not go on. An attempt that goes on in another process, because its
   TaskExecutor was restarted, begins at 0 again: it has fenced itself, and what it had not committed is gone.
2. A tick, which tells the time outside of transactions, has the number of the next buffer, and takes no number. It may
   get lost, come late, or be a fenced attempt's: one that is not the sender's latest word counts for nothing. One with
   a greater number is of an older process of the attempt; a buffer that was lost shows at the next one. To a gate that
   has heard nothing else from the attempt a tick tells the time, but not which number follows.
3. The watermark is the least of all senders that are not idle, and never falls; a sender that has not spoken yet holds
   it. If all that have not ended are idle, so is the subtask, and the watermark is the greatest of theirs: nobody is
   left to wait for.
4. When all senders have ended, the input has, and event time is at END_OF_TIME.
5. What a sender of an older generation of the job has said counts for nothing. One of a newer generation means that
   this attempt is the past: it must end.
6. Who begins a generation hears every sender from its first buffer on. Where that is not so, the channel was made anew
   and the position that an older generation had in it says nothing.

What cannot be heard again after a restart is who has ended: it is committed with the positions. All else is
repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...common.failures import ProgressLostError, TaskError
from ...records.buffers import MAX_WATERMARK, NO_WATERMARK, BufferError, BufferHeader


class _Sender:
    """What one sender has told on one input."""

    __slots__ = ("attempt", "has_ended", "idle", "sequence", "watermark")

    def __init__(self, ended: bool) -> None:
        self.watermark = NO_WATERMARK
        self.attempt = -1
        self.sequence: int | None = None
        self.idle = False
        self.has_ended = ended


class InputGate:
    """The channels of a subtask. Takes, per input, its senders' subtasks and those that have ended already."""

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
        """Whether nobody is to wait for this subtask's watermark."""
        self.ended = False
        """Whether every sender of every input has ended."""
        self.stopped = False
        """Whether a sender was stopped with a savepoint: nothing that is held back is due by its end."""
        self._look()

    @property
    def active_senders(self) -> frozenset[tuple[int, int]]:
        """(input, sender) of all that have not ended."""
        return frozenset(
            (i, sender)
            for i, those in enumerate(self._senders)
            for sender, said in those.items()
            if not said.has_ended
        )

    def ended_senders(self, input_index: int) -> frozenset[int]:
        """The senders of an input that have ended."""
        return frozenset(each for each, said in self._senders[input_index].items() if said.has_ended)

    def checked(self, input_index: int, header: BufferHeader) -> BufferHeader:
        """The header, if somebody who sends here may have written it. Raises BufferError."""
        if header.sender not in self._senders[input_index]:
            raise BufferError(f"its sender would be {header.sender}, which does not send to this subtask")
        return header

    def admits(self, input_index: int, offset: int, header: BufferHeader) -> bool:
        """Notes a buffer of one who sends here, before its records are taken; False where it tells nothing new.

        Raises ProgressLost where a buffer before it was lost, TaskError where it is of a newer generation of the job.
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
                " the job has to go back to a checkpoint"
            )
        sender.sequence = header.sequence
        return True

    def conclude(self, input_index: int, header: BufferHeader) -> None:
        """After the buffer's records: its times, idleness and end hold now."""
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
            return  # time stands still behind a savepoint that stops the job, until all have ended
        active = [sender.watermark for sender in present if not sender.idle]
        self.idle = not active
        reached = min(active) if active else max(sender.watermark for sender in present)
        self.watermark = max(self.watermark, reached)
