"""The recent states of addresses.

A leader decides on what it has read, and its events come into the log after those that others sent meanwhile. To decide
again needs the state at that offset. States are frozen data that share what has not changed, so remembering them costs
little.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class RecentStates:
    """The states of many addresses, back to `horizon`."""

    def __init__(self, remembered: int, horizon: int = -1) -> None:
        """`remembered`: the number of changes, of all addresses together."""
        self._remembered = remembered
        self._now: dict[str, Any] = {}
        self._earlier: dict[str, deque[tuple[int, Any]]] = {}
        self._changes: deque[tuple[int, str]] = deque()
        self.horizon = horizon
        """States after this offset are known."""

    def on_states_changed(self, role_address: str, offset: int, state: Any) -> None:
        """The event at `offset` changed the state of the address."""
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
        """Returns the state of the address after an event at or above the horizon; None before its first."""
        found = self._now.get(role_address)
        for changed_at, before in reversed(self._earlier.get(role_address, ())):
            if changed_at <= offset:
                break
            found = before
        return found

    def first_change_behind(self, offset: int, role_address: str) -> int | None:
        """Returns the offset of the first event after `offset` that changed the state of the address, or None."""
        found = None
        for changed_at, _ in reversed(self._earlier.get(role_address, ())):
            if changed_at <= offset:
                break
            found = changed_at
        return found

    def all_states_at(self, offset: int) -> dict[str, Any]:
        """Returns all states after the event at `offset`, by address."""
        states = {address: self.states_at(offset, address) for address in self._now}
        return {address: state for address, state in states.items() if state is not None}
