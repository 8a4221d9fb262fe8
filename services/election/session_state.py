"""The states of a ZooKeeper session, as its listener sees them.

    state      connection  answer    session  lease   what holds in the state
               changes     proves it ends     lapses
    NEW        NEW         HELD      NEW      -       nothing is held
    HELD       SUSPENDED   HELD      NEW      NEW     what is held is certainly still held, within the lease
    SUSPENDED  SUSPENDED   HELD      NEW      NEW     what is held stays held within the lease, and is not used

NEW is also the state after a loss: the listener starts from scratch with the next connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class SessionState(StrEnum):
    """Whether what a session holds can be used."""

    NEW = "NEW"
    HELD = "HELD"
    SUSPENDED = "SUSPENDED"


class SessionEvent(StrEnum):
    """What happens to a session."""

    CONNECTION_CHANGED = "CONNECTION_CHANGED"
    """kazoo is SUSPENDED, or CONNECTED again."""
    PROVED = "PROVED"
    """The ensemble's leader has answered in the session, and the listener has checked its nodes."""
    LOST = "LOST"
    """The session has ended, and its ephemeral nodes vanish."""
    LEASE_LAPSED = "LEASE_LAPSED"
    """No answer proves that the session lives: by the local clock it may have ended."""


NEXT: Mapping[SessionState, Mapping[SessionEvent, SessionState]] = {
    SessionState.NEW: {
        SessionEvent.CONNECTION_CHANGED: SessionState.NEW,
        SessionEvent.PROVED: SessionState.HELD,
        SessionEvent.LOST: SessionState.NEW,
    },
    SessionState.HELD: {
        SessionEvent.CONNECTION_CHANGED: SessionState.SUSPENDED,
        SessionEvent.PROVED: SessionState.HELD,
        SessionEvent.LOST: SessionState.NEW,
        SessionEvent.LEASE_LAPSED: SessionState.NEW,
    },
    SessionState.SUSPENDED: {
        SessionEvent.CONNECTION_CHANGED: SessionState.SUSPENDED,
        SessionEvent.PROVED: SessionState.HELD,
        SessionEvent.LOST: SessionState.NEW,
        SessionEvent.LEASE_LAPSED: SessionState.NEW,
    },
}


def transition(state: SessionState, event: SessionEvent) -> SessionState:
    """The next state. Raises ValueError where the event can't happen."""
    try:
        return NEXT[state][event]
    except KeyError:
        raise ValueError(f"a session that is {state.value} can't have the event {event.value}") from None
