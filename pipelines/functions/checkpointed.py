"""The operator state of a function: lists that belong to a subtask, not to a key (Flink's CheckpointedFunction).

A list is redistributed when an operator has another parallelism: its elements go to the new subtasks in turn, or all of
them to each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from .rich import RichFunction
from .state import ListState, ListStateDescriptor

T = TypeVar("T")


class OperatorStateStore(ABC):
    """The lists of one subtask of an operator, by the name in their descriptor."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Returns a list whose elements go to the subtasks in turn at another parallelism."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Returns a list that each subtask has with the elements of all old ones at another parallelism."""


class FunctionInitializationContext(ABC):
    """The argument of `initialize_state`."""

    @property
    @abstractmethod
    def is_restored(self) -> bool:
        """Whether an earlier attempt, or the job that the checkpoint is of, had operator state."""

    @property
    @abstractmethod
    def operator_state_store(self) -> OperatorStateStore:
        """The operator state."""


class CheckpointedFunction(RichFunction, ABC):
    """A function with operator state, on a stream without keys. Derive from it and from MapFunction or the like."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Requests the state, and restores what the function keeps of it in memory. Called before `open`."""

    def snapshot_state(self) -> None:
        """Puts into the state what the function keeps in memory. Called before each commit: often, and also if no
        checkpoint follows."""
