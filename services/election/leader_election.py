"""The right to claim leadership of a role, as the host sees it (Flink's LeaderElectionService).

An election grants roles. The host claims a granted role in the log, and leads once it reads its claim back unfenced. A
wrong grant, or a late revocation, does no harm: the log decides.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol


class LeaderElection(Protocol):
    """Of one process. All methods but `close` return at once; all may be called from any thread."""

    @property
    def elected_by(self) -> str:
        """Who gives the mandates, as LeaderElected says it; empty: nobody."""
        ...

    @property
    def suspended(self) -> bool:
        """Whether it is not known for the moment who should lead: decide nothing, and keep everything."""
        ...

    def join(self, role: str) -> None:
        """Takes part in the election of a role; a second time does nothing."""
        ...

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        """Takes part no more. `for_ever`: the role will never be led again, and nothing of it is to be left."""
        ...

    def grants(self) -> Mapping[str, int | None]:
        """The roles that this process should lead -> the epoch to claim; None: one more than the last.

        The same object for as long as nothing has changed.
        """
        ...

    def confirm_leadership(self, role: str, epoch: int) -> None:
        """The log says so too: this process leads the role under this epoch, and whoever looks for the role's leader
        may be told. For a role that was granted; a second time does nothing."""
        ...

    def close(self) -> None:
        """Gives everything back: another process may be elected at once. May take seconds."""
        ...


class StandaloneLeaderElection:
    """`high-availability.type: none`: whoever starts is given what it contends for."""

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
            self._granted = {each: epoch for each, epoch in self._granted.items() if each != role}

    def grants(self) -> Mapping[str, int | None]:
        return self._granted

    def confirm_leadership(self, role: str, epoch: int) -> None:
        pass

    def close(self) -> None:
        self._granted = {}
