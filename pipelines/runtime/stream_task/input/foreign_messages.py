"""Handles messages on a channel that no task of the job wrote: they fail the attempt, and the job rolls back to a
checkpoint.

A foreign message from before the current generation is skipped: the job rolled back because of it, or it is older. If
it replaced a buffer, the sender's sequence numbers show the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...common.failures import ProgressLostError
from ...records.buffers import BufferError

log = logging.getLogger(__name__)


class ForeignMessageFilter:
    """The filter for the inputs of one subtask."""

    def __init__(self, input_topics: Sequence[str], subtask_index: int) -> None:
        self._input_topics = input_topics
        self._subtask_index = subtask_index
        self.passes_below: Mapping[int, int] = {}
        """By input: the end of the channel before this attempt began the generation."""

    def pass_over(self, input_index: int, offset: int, error: BufferError) -> None:
        """Skips a message that is older than the generation. Raises ProgressLost for any other."""
        failure = self.failure(input_index, offset, error)
        if offset >= self.passes_below.get(input_index, 0):
            raise failure
        log.warning("skipped, because the job has rolled back since: %s", failure)

    def failure(self, input_index: int, offset: int, error: BufferError) -> ProgressLostError:
        """Returns the error with the location and the defect of the message."""
        topic = self._input_topics[input_index]
        return ProgressLostError(
            f"{topic} [{self._subtask_index}] at offset {offset} is not a buffer of this job: {error}."
            " Another program has written to the topic; the job must roll back to a checkpoint"
        )
