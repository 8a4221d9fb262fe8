"""The terms under which a process leads roles.

A term of a role starts when the process reads its own claim back unfenced, and ends when it steps down. A job without a
claim is led in the Dispatcher's term (services/core/leadership.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER, JOB_MASTER, kind_of


class LeaderTerm(NamedTuple):
    """`since` is the offset of the claim: whatever is said in the term was said knowing that."""

    epoch: int
    since: int


class HeldTerms:
    """Changed by the host's thread only; asked by any."""

    def __init__(self, leadership: Callable[[], LeadershipState]) -> None:
        self._leadership = leadership
        self._of: dict[str, LeaderTerm] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __contains__(self, role: str) -> bool:
        """Whether there is a term of this very role."""
        return role in self._of

    def term_for(self, role_address: str) -> LeaderTerm | None:
        """The term in which an address speaks; None where the process does not lead it."""
        term = self._of.get(role_address)
        if term is None and kind_of(role_address) == JOB_MASTER:
            term = self._of.get(DISPATCHER)
            if term is not None and self._leadership().is_claimed(role_address):
                return None
        return term

    def roles(self) -> list[str]:
        """Those that there are terms of."""
        return list(self._of)

    def begin(self, role: str, term: LeaderTerm) -> None:
        self._of[role] = term

    def end(self, role: str) -> None:
        self._of.pop(role, None)
