"""The state of a subtask in storage: for each operator a FULL file and the changes since (DELTA files)."""

from __future__ import annotations

from collections.abc import Mapping

from ....schemas.types import CheckpointOptions, OperatorState
from ..state.stateful import Stateful


class Cut:
    """A subtask's state at a barrier, on its way to storage."""

    def finish(self) -> Mapping[str, OperatorState]:
        """Waits until all of it is in storage, and says where: by operator id.

        Called once, by another thread than the writer's other methods. Raises TaskError where it cannot be written: the
        checkpoint is to be declined, the task may go on.
        """
        raise NotImplementedError

    @property
    def bytes_written(self) -> int:
        """What is new in storage, once it is finished."""
        return 0


class StateWriter:
    """Of one attempt of a subtask. All calls come from the task's thread; it does no IO in them, but forks."""

    def __init__(
        self,
        stateful: Mapping[str, Stateful],
        key_groups: range,
        *,
        incremental: bool,
        name: str,
    ) -> None:
        """`stateful`: by operator id (Subtask.stateful); `key_groups`: the subtask's own.

        `incremental`: whether changes are written as they come: checkpoints are taken at intervals. `name` begins the
        names of all files: no other writer may ever have the same.
        """

    def continue_from(self, operators: Mapping[str, OperatorState]) -> None:
        """What was restored, by the same subtask in the same job, is in these files: go on behind them.

        Before `add`; what has been read of the changelog behind them is added then. Not called: the first cut is full.
        """

    def add(self, key: bytes, message: bytes) -> None:
        """A message that goes to the changelog."""

    def cut(self, options: CheckpointOptions) -> Cut:
        """All state as of the messages added so far, which are all that `take_changes` has given.

        A savepoint, or what is asked to be full, is written whole to where the options say.
        """
        raise NotImplementedError

    def close(self) -> None:
        """At the end, also after a failure; a cut that is not finished will not be."""
