"""The right to claim leadership of a role, as the host sees it.

An election grants leadership; the host claims a granted role in the log, and leads once it has read its claim back
unfenced. A wrong grant, or one whose end is noticed late, does no harm: the log decides.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol


class LeaderElection(Protocol):
    """The election of one process. All methods except `close` return at once. Thread-safe."""

    @property
    def elected_by(self) -> str:
        """Who grants leadership, as LeaderElected records it; empty: nobody."""
        ...

    @property
    def suspended(self) -> bool:
        """Whether it is currently unknown who should lead: decide nothing, keep all state."""
        ...

    def join(self, role: str) -> None:
        """Joins the election of a role; idempotent."""
        ...

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        """Leaves the election. `for_ever`: no process will lead the role again, so remove all its nodes."""
        ...

    def grants(self) -> Mapping[str, int | None]:
        """Returns the roles that this process should lead -> the epoch to claim; None: the last epoch plus one.

        Returns the same object as long as nothing changes.
        """
        ...

    def confirm_leadership(self, role: str, epoch: int) -> None:
        """Confirms that the log accepted the claim: this process leads the role under this epoch and may be published
        as its leader. Only for a granted role; idempotent."""
        ...

    def close(self) -> None:
        """Returns all grants, so that another process may be elected at once. May take seconds."""
        ...


class StandaloneLeaderElection:
    """`high-availability.type: none`: every process is granted the roles that it asks for."""

    elected_by = ""
    suspended = False

    def __init__(self) -> None:
        self._granted: Mapping[str, int | None] = {}
        self._lock = threading.Lock()

    def join(self, role: str) -> None:
        with self._lock:
            if role not in self._granted:
                self._granted = {**self._granted, role: None}

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        del for_ever
        with self._lock:
            self._granted = {other: epoch for other, epoch in self._granted.items() if other != role}

    def grants(self) -> Mapping[str, int | None]:
        return self._granted

    def confirm_leadership(self, role: str, epoch: int) -> None:
        pass

    def close(self) -> None:
        self._granted = {}
