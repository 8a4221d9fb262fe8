"""Who was not heard for a time, and since when.

Of a TaskExecutor that was lost it is known when somebody noticed; if it was by its silence, it had ended
`heartbeat.timeout` before, or when it last said something, or did not say what it owed. Who said that late had hung;
and a master that was deposed while it owed something had ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....schemas.event import Record
from ....schemas.everyone import LeaderElected
from ...configuration.options.heartbeat import HEARTBEAT_TIMEOUT
from ...core.replica import Replica
from ...core.role import DISPATCHER, TASK_EXECUTOR, Time, address, instance_of, kind_of
from ...dispatcher.state import DispatcherState
from .external_events import HeartbeatOutage, MastersEnded, RolePaused, RoleResumed, WorkerEnded
from .last_events import LastEventTimes
from .recording import Recording
from .unmet_obligations import LATE_AFTER, UnmetObligations


@dataclass
class _Outage:
    """Of a TaskExecutor that was declared lost for its silence, and may speak again."""

    session: str
    since: Time
    noticed: Time
    reason: str


class OutageDetector:
    """Adds to a Recording who hung or ended without a word. Looks at a replica that somebody else has fold."""

    def __init__(self, replica: Replica, recording: Recording, voices: LastEventTimes) -> None:
        self._replica = replica
        self._recording = recording
        self._voices = voices
        self._owing = UnmetObligations(replica, recording.start)
        self._silent: dict[str, _Outage] = {}
        self._words: dict[str, Time] = {}
        """Sessions -> when each has said something last."""
        self._ended: dict[str, Time] = {}
        """Sessions of masters that were deposed -> since when they had owed something."""
        self._doubtful: dict[str, str] = {}
        """TaskExecutors that are led and not registered at the beginning -> session."""

    def suspect(self, resource_id: str) -> None:
        """Whether that TaskExecutor lives at the beginning only its words can tell."""
        self._doubtful[resource_id] = self.session(address(TASK_EXECUTOR, resource_id)) or ""
        self._recording.dead_sessions.add(resource_id)

    def session(self, role_address: str) -> str | None:
        """Of whoever leads it."""
        leader = self._replica.leadership.leader(role_address)
        return None if leader is None else leader.session

    def advance_time(self, now: Time) -> None:
        """It is that late; to be told before what is said then is folded."""
        self._owing.advance_time(now)

    def on_session_event(self, record: Record, now: Time) -> None:
        """An event that is not fenced, before it is folded: who speaks, and who should."""
        header = record.header
        sender, session = header.sender, self.session(header.sender)
        if isinstance(record.body, LeaderElected):
            return
        if kind_of(sender) == TASK_EXECUTOR:
            self._on_alive(instance_of(sender), session or "", now)
        if session is None:
            return
        self._ended.pop(session, None)
        if header.decided:
            since = self._owing.overdue_since(session)
            if since is not None and now - since > LATE_AFTER:
                self._record_hang(sender, self._outage_start(session, since), now)
            self._owing.on_session_event(session, now)
        self._words[session] = now

    def on_event(self, record: Record, changed: Iterable[str], now: Time) -> None:
        """The event, and the addresses whose states it has changed."""
        self._owing.on_states_changed(changed, now)
        if isinstance(record.body, LeaderElected):
            self._owing.on_elected(now)

    def on_session_started(self, resource_id: str) -> None:
        """Another process of a TaskExecutor: the one before speaks no more."""
        self._doubtful.pop(resource_id, None)
        if (silence := self._silent.pop(resource_id, None)) is not None:
            self._record_end(resource_id, silence)

    def on_deposed(self, role_address: str, successor: str) -> None:
        """Another session leads what a master has led."""
        before = self.session(role_address)
        if before is None or before == successor:
            return
        if (since := self._owing.overdue_since(before)) is not None:
            self._ended.setdefault(before, self._outage_start(before, since))

    def on_lost(self, resource_id: str, reason: str, now: Time) -> Time:
        """A TaskExecutor is given up for its silence; returns since when it must have been silent."""
        state = self._replica.states.get(DISPATCHER)
        known = state.configuration if isinstance(state, DispatcherState) else None
        session = self.session(address(TASK_EXECUTOR, resource_id)) or ""
        owed = self._owing.overdue_since(session)
        at_latest = now - HEARTBEAT_TIMEOUT.of(known or {})
        if owed is not None:
            at_latest = min(self._outage_start(session, owed), at_latest)
        start, heard = self._recording.start, self._voices.last_event_time(resource_id)
        since = max(start, at_latest if heard is None or heard <= start else max(heard + 1, at_latest))
        self._silent[resource_id] = _Outage(session, since, now, reason)
        return since

    def finish(self) -> None:
        """All events have been seen: who has not spoken again had ended."""
        for resource_id, silence in self._silent.items():
            self._record_end(resource_id, silence)
        for session, since in self._ended.items():
            self._recording.add(since, MastersEnded(session))

    def _record_end(self, resource_id: str, silence: _Outage) -> None:
        noticed = silence.noticed - silence.since
        self._recording.add(
            silence.since, WorkerEnded(resource_id, silence.reason, seen=False, noticed=noticed)
        )

    def _on_alive(self, resource_id: str, session: str, now: Time) -> None:
        own, silence = address(TASK_EXECUTOR, resource_id), self._silent.get(resource_id)
        if silence is not None and silence.session == session:
            del self._silent[resource_id]
            unheard = HeartbeatOutage(resource_id, silence.reason, silence.since, now)
            self._recording.add(silence.noticed, unheard)
            self._record_hang(own, silence.since, now)
            self._owing.on_session_event(session, now)
        elif self._doubtful.get(resource_id) == session:
            # It lives: nothing was heard of it at the beginning.
            del self._doubtful[resource_id]
            self._recording.dead_sessions.discard(resource_id)
            if now > self._recording.start:
                self._record_hang(own, self._recording.start, now)
                self._owing.on_session_event(session, now)

    def _outage_start(self, session: str, since: Time) -> Time:
        """When it fell silent, that owes something since then. Decisions take no time in a simulation: there it would
        owe that a bit earlier."""
        if session not in self._words:
            return max(self._recording.start, since - LATE_AFTER)
        return max(self._words[session] + 1, since - LATE_AFTER)

    def _record_hang(self, role_address: str, since: Time, now: Time) -> None:
        """Whoever leads it did nothing since then, and goes on now."""
        self._recording.add(since, RolePaused(role_address))
        self._recording.add(now, RoleResumed(role_address))
        if kind_of(role_address) == TASK_EXECUTOR:
            self._recording.scripts.on_resumed(instance_of(role_address), since, now)
