"""All state of a subtask: its owners, its restore, and its changes.

Messages are the same in the changelog and in files of a checkpoint: each belongs to the operator whose id is its key,
and only that operator interprets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...common.failures import ProgressLostError, TaskError, one_line
from ...operators.chain import OperatorChain
from ...operators.user_functions import typed_by
from ...state_backend.accumulators import CHANGELOG_KEY, Accumulators
from ...state_backend.stateful import ORIGIN_KEY, Stateful, read_origin
from ..input.sources.source import Source
from . import progress_entry
from .state_writer import StateWriter

MARKER: Final = b"~checkpoint"
"""In place of an operator id, in the changelog: earlier messages are part of the checkpoint with this id."""


class SubtaskState:
    """The state of the operators, of a source that the subtask reads itself, and of the accumulators."""

    def __init__(
        self,
        chain: OperatorChain,
        source: tuple[str, Source] | None,
        accumulators: Accumulators,
        where: str,
    ) -> None:
        """`where` names the changelog in error messages."""
        self._chain = chain
        self._source = source
        self._accumulators = accumulators
        self._where = where
        self.writer: StateWriter | None = None
        """The writer of changes to storage; None if the vertex has no state."""

    @property
    def by_id(self) -> Mapping[str, Stateful]:
        """The owners of state, by operator id."""
        source = {} if self._source is None else {self._source[0]: self._source[1]}
        return {**self._chain.by_id, **source, CHANGELOG_KEY: self._accumulators}

    @property
    def counted(self) -> Mapping[str, float]:
        """The values of the accumulators as of the last `changes`."""
        return self._accumulators.committed()

    def restore(self, key: bytes, message: bytes) -> None:
        """Applies a message. Raises TaskError for state that belongs to no operator here."""
        if key in (MARKER, progress_entry.KEY):
            return
        if key == ORIGIN_KEY:
            operator_id, origin = read_origin(message)
            self._owner(operator_id).restore_from(origin)
        else:
            self._owner(key.decode(errors="replace")).restore(message)

    def replay(self, key: bytes, message: bytes, place: Callable[[], str]) -> None:
        """Restores a message that is not in the files of the last checkpoint. `place` returns the message's location.

        Raises ProgressLost for a message that no task of the job wrote.
        """
        try:
            self.restore(key, message)
        except (ProgressLostError, OSError, MemoryError):
            raise
        except Exception as error:  # invalid bytes may make their readers raise any error
            raise ProgressLostError(
                f"{place()} is not a change of state of this job: {one_line(error)}. Somebody else has written"
                " to the topic; the job must roll back to a checkpoint"
            ) from error
        if self.writer is not None and key not in (MARKER, progress_entry.KEY):
            self.writer.add(key, message)

    def changes(self) -> Iterable[tuple[bytes, Iterable[bytes]]]:
        """Yields key and messages of the changes since the last call."""
        for operator_id, operator in self._chain.by_id.items():
            with typed_by(self._chain.configs[operator_id]):
                yield operator_id.encode(), list(operator.take_changes())
        if self._source is not None:
            yield self._source[0].encode(), self._source[1].take_changes()
        counted = self._accumulators.take_changes()
        if counted is not None:
            yield CHANGELOG_KEY.encode(), (counted,)

    def _owner(self, operator_id: str) -> Stateful:
        owner = self.by_id.get(operator_id)
        if owner is None:
            raise TaskError(
                f"there is state of an operator {operator_id!r} that is not in this vertex ({self._where})"
            )
        return owner
