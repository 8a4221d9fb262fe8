"""The epochs under which a process currently leads roles.

A term of a role starts when the process reads its own claim back unfenced, and ends when it steps down. An unclaimed
JobMaster is led in the Dispatcher's term (services/core/leadership.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER, JOB_MASTER, kind_of


class LeaderTerm(NamedTuple):
    """`since` is the offset of the claim: every event of the term was sent after the process had read it."""

    epoch: int
    since: int


class HeldTerms:
    """Changed on the host's thread only; readable from any thread."""

    def __init__(self, leadership: Callable[[], LeadershipState]) -> None:
        self._leadership = leadership
        self._of: dict[str, LeaderTerm] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __contains__(self, role: str) -> bool:
        """Returns whether there is a term of exactly this role."""
        return role in self._of

    def term_for(self, role_address: str) -> LeaderTerm | None:
        """Returns the term in which this process leads the address; None if it does not."""
        term = self._of.get(role_address)
        if term is None and kind_of(role_address) == JOB_MASTER:
            term = self._of.get(DISPATCHER)
            if term is not None and self._leadership().is_claimed(role_address):
                return None
        return term

    def roles(self) -> list[str]:
        """Returns the roles with a term."""
        return list(self._of)

    def begin(self, role: str, term: LeaderTerm) -> None:
        self._of[role] = term

    def end(self, role: str) -> None:
        self._of.pop(role, None)
