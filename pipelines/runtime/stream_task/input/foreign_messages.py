"""Messages of a channel that no task of the job has written: they fail the attempt, and the job goes back.

One that was there before the generation began is left out: the job has gone back because of it, or it is older still.
Should it be what has become of a buffer, then the numbers of its sender show it.
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
