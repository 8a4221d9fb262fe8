"""Detects which processes hung or ended without an event, and since when.

A process that leads roles has to send the events that they owe. If it does not for more than a second, it hung; if
another process was elected meanwhile, it had ended. The roles themselves define what they owe, so this is known for all
decisions; work of shells that is not finished is unknown.

A TaskExecutor that was declared lost for missing heartbeats had ended `heartbeat.timeout` before, or after its last
event, or when it did not send an owed event. If it sends events later, it hung.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....schemas.event import Record
from ....schemas.everyone import LeaderElected
from ...configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ...core.deadline_heap import DeadlineHeap
from ...core.replica import Replica
from ...core.role import DISPATCHER, TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from .recording import Recording

LATE_AFTER: Time = 1_000_000
"""A process that sends an owed event later than this hung, or had ended."""


class UnmetObligations:
    """The owed events of each session, and since when they are owed. The caller folds the replica."""

    def __init__(self, replica: Replica, now: Time) -> None:
        self._replica = replica
        self._since: dict[str, dict[str, Time]] = {}
        """Session -> address -> since when it owes an event."""
        self._sessions: dict[str, str] = {}
        """Address with an obligation -> session."""
        self._missed: dict[str, Time] = {}
        """Sessions that never met an obligation -> since when they had it."""
        self._deadlines = DeadlineHeap()
        self.on_states_changed(replica.active_addresses, now)

    def advance_time(self, now: Time) -> None:
        """Checks the deadlines up to now; called before the events of that time are folded."""
        while (due := self._deadlines.earliest()) is not None and due <= now:
            self.on_states_changed(self._deadlines.pop_expired(due), due)

    def on_states_changed(self, addresses: Iterable[str], now: Time) -> None:
        """Handles changed states of these addresses."""
        for role_address in tuple(addresses):
            self._update(role_address, now)

    def on_elected(self, now: Time) -> None:
        """Handles an election: from now on the session owes the events of its predecessors."""
        self.on_states_changed(self._sessions, now)

    def overdue_since(self, session: str) -> Time | None:
        """Returns since when the session owes an event; None if it owes none."""
        times = [*self._since.get(session, {}).values()]
        if session in self._missed:
            times.append(self._missed[session])
        return min(times, default=None)

    def on_alive(self, session: str, now: Time) -> None:
        """Handles an action of the session: its remaining obligations count from now."""
        self._missed.pop(session, None)
        for role_address in self._since.get(session, ()):
            self._since[session][role_address] = now

    def _update(self, role_address: str, now: Time) -> None:
        replica = self._replica
        leader, state = replica.leadership.leader(role_address), replica.states.get(role_address)
        session = None if leader is None or state is None else leader.session
        if self._sessions.get(role_address) not in (None, session):
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
            return
        since = self._since.get(session, {}).get(role_address)
        if since is not None and now - since > LATE_AFTER:
            self._missed.setdefault(session, since)
        self._forget(role_address)

    def _forget(self, role_address: str) -> None:
        session = self._sessions.pop(role_address, None)
        if session is not None:
            del self._since[session][role_address]
            if not self._since[session]:
                del self._since[session]


class _Silence(NamedTuple):
    """A TaskExecutor was declared lost for its silence, and may send events again."""

    session: str
    since: Time
    detected_at: Time
    reason: str


class OutageDetector:
    """Adds outages to a Recording. The caller folds the replica."""

    def __init__(self, replica: Replica, recording: Recording, last_events: Mapping[str, Time]) -> None:
        """`last_events`: TaskExecutor -> the time of its last event; the caller updates it."""
        self._replica = replica
        self._recording = recording
        self._last_events = last_events
        self._obligations = UnmetObligations(replica, recording.start)
        self._silent: dict[str, _Silence] = {}
        self._last_of_session: dict[str, Time] = {}
        self._ended: dict[str, Time] = {}
        """Deposed sessions of masters -> since when they may have been dead."""
        self._doubtful: dict[str, str] = {}
        """TaskExecutors that have a leader and are not registered at the start -> session."""

    def suspect(self, resource_id: str) -> None:
        """Only the TaskExecutor's next event shows whether it lives at the start."""
        self._doubtful[resource_id] = self._session(address(TASK_EXECUTOR, resource_id)) or ""
        self._recording.dead_task_executors.add(resource_id)

    def before_event(self, record: Record, now: Time, *, is_accepted: bool) -> None:
        """Handles the next event, before it is folded: its sender is active, and should have sent others."""
        self._obligations.advance_time(now)
        sender, session = record.header.sender, self._session(record.header.sender)
        if not is_accepted or isinstance(record.body, LeaderElected):
            return
        if kind_of(sender) == TASK_EXECUTOR:
            self._on_alive(instance_of(sender), session or "", now)
        if session is None:
            return
        self._ended.pop(session, None)
        if record.header.decided:
            since = self._obligations.overdue_since(session)
            if since is not None and now - since > LATE_AFTER:
                self._record_pause(sender, self._outage_start(session, since), now)
            self._obligations.on_alive(session, now)
        self._last_of_session[session] = now

    def after_event(self, record: Record, changed: Iterable[str], now: Time) -> None:
        """Handles an event after it was folded; it has changed the states of these addresses."""
        self._obligations.on_states_changed(changed, now)
        if isinstance(record.body, LeaderElected):
            self._obligations.on_elected(now)

    def on_process_started(self, resource_id: str) -> None:
        """Handles the start of another process of a TaskExecutor: the previous one sends nothing any more."""
        self._doubtful.pop(resource_id, None)
        if (silence := self._silent.pop(resource_id, None)) is not None:
            self._record_end(resource_id, silence)

    def on_elected(self, role_address: str, successor: str) -> None:
        """Handles the election of a session for a role of masters."""
        before = self._session(role_address)
        if before is None or before == successor:
            return
        if (since := self._obligations.overdue_since(before)) is not None:
            self._ended.setdefault(before, self._outage_start(before, since))

    def on_lost(self, resource_id: str, reason: str, now: Time) -> Time:
        """Handles a TaskExecutor that is declared lost for missing heartbeats; returns since when it was silent."""
        state = self._replica.states.get(DISPATCHER)
        configuration = state.configuration if isinstance(state, DispatcherState) else None
        session = self._session(address(TASK_EXECUTOR, resource_id)) or ""
        owed = self._obligations.overdue_since(session)
        latest = now - HEARTBEAT_TIMEOUT.of(configuration or {})
        if owed is not None:
            latest = min(self._outage_start(session, owed), latest)
        start, last = self._recording.start, self._last_events.get(resource_id)
        since = max(start, latest if last is None or last <= start else max(last + 1, latest))
        self._silent[resource_id] = _Silence(session, since, now, reason)
        return since

    def finish(self) -> None:
        """Handles the end of the history: processes that sent nothing since had ended."""
        for resource_id, silence in self._silent.items():
            self._record_end(resource_id, silence)
        for session, since in self._ended.items():
            self._record_end_of_masters(session, since)

    def _session(self, role_address: str) -> str | None:
        leader = self._replica.leadership.leader(role_address)
        return None if leader is None else leader.session

    def _on_alive(self, resource_id: str, session: str, now: Time) -> None:
        own, silence = address(TASK_EXECUTOR, resource_id), self._silent.get(resource_id)
        if silence is not None and silence.session == session:
            del self._silent[resource_id]
            self._recording.add(
                silence.detected_at,
                lambda target: target.task_executors.lose_heartbeats(resource_id, silence.reason),
                silence=(silence.since, now),
            )
            self._record_pause(own, silence.since, now)
            self._obligations.on_alive(session, now)
        elif self._doubtful.get(resource_id) == session:
            # It lives: it sent nothing before the start.
            del self._doubtful[resource_id]
            self._recording.dead_task_executors.discard(resource_id)
            if now > self._recording.start:
                self._record_pause(own, self._recording.start, now)
                self._obligations.on_alive(session, now)

    def _outage_start(self, session: str, since: Time) -> Time:
        """Returns when a session stopped that has an obligation since then. Decisions take no time in a simulation,
        where it would have the obligation a little earlier."""
        last = self._last_of_session.get(session)
        return max(self._recording.start if last is None else last + 1, since - LATE_AFTER)

    def _record_end(self, resource_id: str, silence: _Silence) -> None:
        detected_after = silence.detected_at - silence.since
        self._recording.add(
            silence.since,
            lambda target: target.end_task_executor(resource_id, silence.reason, detected_after),
            is_absence=True,
        )

    def _record_end_of_masters(self, session: str, since: Time) -> None:
        self._recording.add(since, lambda target: target.simulator.kill(session), is_absence=True)

    def _record_pause(self, role_address: str, since: Time, until: Time) -> None:
        self._recording.add(since, lambda target: target.pause(role_address), is_absence=True)
        self._recording.add(until, lambda target: target.resume(role_address))
        if kind_of(role_address) == TASK_EXECUTOR:
            self._recording.task_times.on_resumed(instance_of(role_address), since, until)
