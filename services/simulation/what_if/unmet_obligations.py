"""Who owes something, and since when: who does not say for long what he owes is paused, or has ended.

The same roles that are simulated are asked, so this is known of all that a role decides; what shells have yet to do, it
is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.deadline_heap import DeadlineHeap
from ...core.replica import Replica
from ...core.role import Time

LATE_AFTER: Time = 1_000_000
"""Who takes longer to say what he owes was paused, or had ended."""


class UnmetObligations:
    """Of all who lead something; looks at a replica that somebody else has fold."""

    def __init__(self, replica: Replica, now: Time) -> None:
        self._replica = replica
        self._since: dict[str, dict[str, Time]] = {}
        """Session -> address -> since when it owes something."""
        self._sessions: dict[str, str] = {}
        """Address -> the session of which that is known."""
        self._missed: dict[str, Time] = {}
        """Sessions that have let pass what they owed -> since when."""
        self._deadlines = DeadlineHeap()
        self.on_states_changed(replica.active_addresses, now)

    def advance_time(self, now: Time) -> None:
        """It is that late; to be told before what is said then is folded."""
        while (due := self._deadlines.earliest()) is not None and due <= now:
            self.on_states_changed(self._deadlines.pop_expired(due), due)

    def on_states_changed(self, addresses: Iterable[str], now: Time) -> None:
        """Their states have changed."""
        for each in tuple(addresses):
            self._update_obligation(each, now)

    def on_elected(self, now: Time) -> None:
        """Somebody has taken a lead, and owes from now on what others owed before him."""
        self.on_states_changed(self._sessions, now)

    def overdue_since(self, session: str) -> Time | None:
        """Since when it owes something, or did not say for long what it owed; None: it owes nothing."""
        times = [*self._since.get(session, {}).values()]
        if session in self._missed:
            times.append(self._missed[session])
        return min(times, default=None)

    def on_session_event(self, session: str, now: Time) -> None:
        """It is there: what it still owes, it owes since now."""
        self._missed.pop(session, None)
        for each in self._since.get(session, ()):
            self._since[session][each] = now

    def _update_obligation(self, role_address: str, now: Time) -> None:
        replica = self._replica
        leader, state = replica.leadership.leader(role_address), replica.states.get(role_address)
        session = None if leader is None or state is None else leader.session
        before = self._sessions.get(role_address)
        if before is not None and before != session:
            self._forget(role_address)
        if session is None or state is None:
            self._deadlines.set(role_address, None)
            return
        role = replica.role(role_address)
        owes, deadline = bool(role.decide(state, now)), role.deadline(state)
        self._deadlines.set(role_address, None if deadline is not None and deadline <= now else deadline)
        if owes:
            self._sessions[role_address] = session
            self._since.setdefault(session, {}).setdefault(role_address, now)
        else:
            since = self._since.get(session, {}).get(role_address)
            if since is not None and now - since > LATE_AFTER:
                self._missed.setdefault(session, since)
            self._forget(role_address)

    def _forget(self, role_address: str) -> None:
        session = self._sessions.pop(role_address, None)
        if session is not None:
            of_session = self._since[session]
            del of_session[role_address]
            if not of_session:
                del self._since[session]
