"""A Replica with observers that are told of each event and of the states that it has changed, such as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...schemas.event import Record
from .feature_level import RolesAt
from .index_validation import IndexErrors
from .replica import OnFalseHeader, Replica
from .role import AnyRole


class ReplicaObserver(Protocol):
    """Called on the thread that folds: it must be quick, and must not fail."""

    def on_event(self, record: Record, changed: Sequence[str], states: Mapping[str, object]) -> None:
        """An event has changed the states of these addresses; `states` are those after it."""
        ...


class ObservedReplica(Replica):
    """A Replica that tells observers."""

    def __init__(
        self,
        roles: Iterable[AnyRole] | RolesAt,
        observers: Sequence[ReplicaObserver],
        *,
        on_false_header: OnFalseHeader | None = None,
        index_errors: Mapping[str, IndexErrors] | None = None,
    ) -> None:
        """The other parameters are those of Replica."""
        super().__init__(roles, on_false_header=on_false_header, index_errors=index_errors)
        self._observers = observers

    def apply(self, record: Record) -> list[str]:
        """As Replica.apply."""
        changed = super().apply(record)
        for observer in self._observers:
            observer.on_event(record, changed, self.states)
        return changed
