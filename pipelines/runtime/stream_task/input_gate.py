"""The input gate: which buffers count, and how far time has come (Flink's StatusWatermarkValve).

Rules:
1. Below the position of an input nothing counts again: Spark may hand over twice.
2. A sender's buffers of one attempt have ascending sequence numbers without a gap; a gap means that a
   buffer was lost, and the task must not go on. An attempt that goes on in another process, because its
   TaskExecutor was restarted, begins at 0 again: it has fenced itself, and what it had not committed is gone.
3. The watermark is the least of all senders', and never falls; a sender that has not spoken yet holds it.
4. When all senders have ended, the input has.

What cannot be heard again after a restart is who has ended: it is committed with the positions.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..buffers import END_OF_TIME, NO_WATERMARK, Header
from ..failures import TaskError


class InputGate:
    """The inputs of a subtask. Takes, per input, its number of senders and the committed position."""

    def __init__(
        self, senders: Sequence[int], positions: Sequence[int], ended: Sequence[frozenset[int]]
    ) -> None:
        self._positions = list(positions)
        self._watermarks = [[NO_WATERMARK] * count for count in senders]
        self._sequences: list[dict[int, tuple[int, int]]] = [{} for _ in senders]
        self._ended = [set(known) for known in ended]
        for index, known in enumerate(ended):
            for sender in known:
                self._watermarks[index][sender] = END_OF_TIME
        self._watermark = self._least()

    @property
    def watermark(self) -> int:
        """No record with a timestamp <= this follows (ms)."""
        return self._watermark

    @property
    def ended(self) -> bool:
        """Whether every sender of every input has ended."""
        return self._watermark == END_OF_TIME

    @property
    def positions(self) -> tuple[int, ...]:
        """Per input, the offset of the next buffer that counts."""
        return tuple(self._positions)

    def ended_senders(self) -> tuple[frozenset[int], ...]:
        """Per input, the senders that have ended."""
        return tuple(frozenset(known) for known in self._ended)

    def admits(self, input_index: int, offset: int) -> bool:
        """Whether the buffer at this offset has not been taken yet."""
        return offset >= self._positions[input_index]

    def take(self, input_index: int, offset: int, header: Header) -> None:
        """Notes a buffer that counts. Raises TaskError where one before it was lost."""
        self._follow(input_index, offset, header)
        self._positions[input_index] = offset + 1

    def conclude(self, input_index: int, header: Header) -> None:
        """After the buffer's records: its watermark and end hold now."""
        watermarks = self._watermarks[input_index]
        if header.ends:
            self._ended[input_index].add(header.sender)
            watermarks[header.sender] = END_OF_TIME
        elif header.watermark <= watermarks[header.sender]:
            return
        else:
            watermarks[header.sender] = header.watermark
        self._watermark = max(self._watermark, self._least())

    def _follow(self, input_index: int, offset: int, header: Header) -> None:
        last = self._sequences[input_index].get(header.sender)
        self._sequences[input_index][header.sender] = header.attempt, header.sequence
        if last is None or last[0] != header.attempt or header.sequence in (0, last[1] + 1):
            return
        raise TaskError(
            f"a buffer was lost: input {input_index} has, at offset {offset}, number {header.sequence} of"
            f" sender {header.sender} (attempt {header.attempt}), after number {last[1]};"
            " restart the job from a checkpoint"
        )

    def _least(self) -> int:
        return min((watermark for each in self._watermarks for watermark in each), default=NO_WATERMARK)
