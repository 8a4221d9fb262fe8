"""What states were a while ago.

A leader decides on what it has read, and its words come into the log behind what others said meanwhile. Whoever wants
to decide again needs the state of then. States are frozen data that share what has not changed, so that keeping the
last ones costs little more than the list of them.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class RecentStates:
    """The states of many addresses, back to `horizon`."""

    def __init__(self, remembered: int) -> None:
        """`remembered`: how many changes are kept, of all addresses together."""
        self._remembered = remembered
        self._now: dict[str, Any] = {}
        self._earlier: dict[str, deque[tuple[int, Any]]] = {}
        self._changes: deque[tuple[int, str]] = deque()
        self.horizon = -1
        """States behind this offset and later ones are known; those behind earlier ones may not be."""

    def on_states_changed(self, role_address: str, offset: int, state: Any) -> None:
        """The event at `offset` has made this the address's state."""
        earlier = self._earlier.get(role_address)
        if earlier is None:
            earlier = self._earlier[role_address] = deque()
        earlier.append((offset, self._now.get(role_address)))
        self._now[role_address] = state
        self._changes.append((offset, role_address))
        if len(self._changes) > self._remembered:
            self.horizon, oldest = self._changes.popleft()
            entries = self._earlier[oldest]
            entries.popleft()
            if not entries:
                del self._earlier[oldest]

    def states_at(self, offset: int, role_address: str) -> Any:
        """The address's state once the event at `offset`, which is not below the horizon, had been folded; None before
        its first."""
        found = self._now.get(role_address)
        for changed_at, before in reversed(self._earlier.get(role_address, ())):
            if changed_at <= offset:
                break
            found = before
        return found

    def first_change_behind(self, offset: int, role_address: str) -> int | None:
        """The offset of the first event behind `offset` that changed the address's state; None where there is none."""
        found = None
        for changed_at, _ in reversed(self._earlier.get(role_address, ())):
            if changed_at <= offset:
                break
            found = changed_at
        return found

    def all_states_at(self, offset: int) -> dict[str, Any]:
        """All states of then, by address."""
        states = {each: self.states_at(offset, each) for each in self._now}
        return {each: state for each, state in states.items() if state is not None}
