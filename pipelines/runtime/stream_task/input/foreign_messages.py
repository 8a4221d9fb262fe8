"""Messages on a channel that no task of the job wrote: they fail the attempt, and the job goes back to a checkpoint.

A foreign message from before the current generation is skipped: the job went back because of it, or it is older. If it
replaced a buffer, the sender's sequence numbers show the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...common.failures import ProgressLostError
from ...records.buffers import BufferError

log = logging.getLogger(__name__)


class ForeignMessageFilter:
    """Of the inputs of a subtask."""

    def __init__(self, input_topics: Sequence[str], subtask_index: int) -> None:
        self._input_topics = input_topics
        self._subtask_index = subtask_index
        self.passes_below: Mapping[int, int] = {}
        """By input, where the channel ended before this attempt began the generation."""

    def pass_over(self, input_index: int, offset: int, error: BufferError) -> None:
        """Leaves a message out. Raises ProgressLost for one that is not older than the generation."""
        failure = self.failure(input_index, offset, error)
        if offset >= self.passes_below.get(input_index, 0):
            raise failure
        log.warning("passed over, since the job has gone back meanwhile: %s", failure)

    def failure(self, input_index: int, offset: int, error: BufferError) -> ProgressLostError:
        """Says where the message is, and what is wrong with it."""
        topic = self._input_topics[input_index]
        return ProgressLostError(
            f"{topic} [{self._subtask_index}] at offset {offset} holds what is no buffer of this job: {error}."
            " Somebody else has written to the topic; the job has to go back to a checkpoint"
        )
