"""The states of roles, folded from the log. Hosts, time travel and tests share this class.

An event is folded by its sender and its recipient only; by all active addresses if the recipient is EVERYONE. Events
that no process can have sent, fenced events and illegal events change nothing, in every replica alike.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Protocol

from ...infra.logging_setup import logger
from ...schemas.dispatcher import JobsForgotten
from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import (
    FeatureLevelRaised,
    LeaderElected,
    SchemasRegistered,
    SnapshotTaken,
    StateHash,
    TaskExecutorsForgotten,
)
from .event_senders import find_header_fault
from .feature_level import FIRST_LEVEL, RolesAt
from .index_validation import IndexDiverged, IndexErrors
from .leadership import LeadershipState
from .role import CLIENT, DISPATCHER, JOB_MASTER, AnyRole, IllegalEvent, kind_of

_STORY = 8
_MOST_FOREIGN = 1 << 12
_WARNINGS_PER_S = 10
_YOUNG_OBJECTS = 50_000
_log = logger(__name__)

OnIllegal = Callable[[IllegalEvent, tuple[Record, ...]], None]
OnFalseHeader = Callable[[Record, str], None]
"""Called with each event that no process can have sent, and the reason."""
_ABOUT_STATES = (SnapshotTaken, StateHash)
"""Events about whole states. No role folds them."""


_UNDER_ANY_EPOCH = (LeaderElected, SchemasRegistered)


class ReplicaListener(Protocol):
    """Observes a replica on its thread while it folds."""

    def on_position(self, offset: int) -> int:
        """Called with the offset of the first event at or after a mark, before it is folded; returns the next mark."""
        ...

    def on_event(self, record: Record) -> None:
        """Called with each SnapshotTaken and StateHash event that is not fenced."""
        ...


class _RoleSlot:
    """An active address that this replica serves: the methods of its role, looked up once, and its recent events."""

    __slots__ = ("at_rest", "evolve", "initial", "is_over", "story")

    def __init__(self, role: AnyRole) -> None:
        self.use_level(role)
        self.story: deque[Record] = deque(maxlen=_STORY)

    def use_level(self, role: AnyRole) -> None:
        self.evolve = role.evolve
        self.initial = role.initial
        self.at_rest = role.is_quiescent
        self.is_over = role.is_over


class Replica:
    """States by address. Not thread-safe."""

    def __init__(
        self,
        roles: Iterable[AnyRole] | RolesAt,
        *,
        only: Callable[[str], bool] | None = None,
        on_illegal: OnIllegal | None = None,
        on_false_header: OnFalseHeader | None = None,
        index_errors: Mapping[str, IndexErrors] | None = None,
    ) -> None:
        """`roles`: a function of the feature level, or the roles themselves if they are the same at all levels.
        `index_errors`: by kind of role, a function that checks the indexes of a state after each event; None: no check.
        """
        same = None if callable(roles) else tuple(roles)
        self._roles_at: RolesAt = roles if callable(roles) else lambda _: same or ()
        self._at_levels: dict[int, Mapping[str, AnyRole]] = {}
        self._roles = self._roles_at_level(FIRST_LEVEL)
        self._only = only
        self._on_illegal = on_illegal or IllegalEventReporter()
        self._on_false_header = on_false_header
        self._index_errors = index_errors
        self._serving: dict[str, _RoleSlot] = {}
        self._foreign: set[str] = set()
        """Cache of recently seen addresses that this replica does not serve."""
        self._admitted: dict[str, int] = {}
        """Sender -> its accepted epoch; a cache since the last LeaderElected."""
        self._awake: dict[str, None] = {}
        self._followers: list[set[str]] = []
        self._watcher: ReplicaListener | None = None
        self._mark = sys.maxsize
        self.telling = True
        """Whether illegal events are reported. Old ones are not: they were reported when they were new."""
        self.states: MutableMapping[str, Any] = {}
        self.leadership = LeadershipState()
        self.offset = -1
        """The offset of the last folded event, fenced ones included."""

    @property
    def active_addresses(self) -> list[str]:
        """The addresses whose states are not quiescent. Only they fold events to EVERYONE."""
        return list(self._awake)

    def is_active(self, role_address: str) -> bool:
        """Returns whether the address has a state that is not quiescent."""
        return role_address in self._awake

    def role(self, role_address: str, level: int | None = None) -> AnyRole:
        """Returns the role that serves an address, at the current or the given feature level."""
        roles = self._roles if level is None else self._roles_at_level(level)
        return roles[kind_of(role_address)]

    def serves(self, role_address: str) -> bool:
        """Returns whether this replica keeps a state for the address."""
        return kind_of(role_address) in self._roles and (self._only is None or self._only(role_address))

    def watch(self, watcher: ReplicaListener, mark: int = sys.maxsize) -> None:
        """Sets the listener. Without a mark it receives SnapshotTaken and StateHash only."""
        self._watcher, self._mark = watcher, mark

    def follow_changes(self) -> set[str]:
        """Returns a set to which the replica adds each address whose state it changes; first, all addresses. The caller
        empties it."""
        changed = set(self.states)
        self._followers.append(changed)
        return changed

    def restore(self, states: Mapping[str, Any], leadership: LeadershipState, offset: int) -> None:
        """Continues from the state of another replica after the event at `offset`. This replica must not have folded
        anything."""
        self.states, self.leadership, self.offset = dict(states), leadership, offset
        for changed in self._followers:
            changed.update(states)
        self._admitted = {}
        self._use_level(leadership.feature_level)
        for role_address, state in self.states.items():
            served = self._serve(role_address)
            if served is None or served.at_rest(state):
                self._forget(role_address)
            else:
                self._awake[role_address] = None

    def resume(
        self, states: MutableMapping[str, Any], awake: Iterable[str], leadership: LeadershipState, offset: int
    ) -> None:
        """Like `restore`, but keeps the mapping itself and reads none of its states. `awake` lists the addresses
        that are not quiescent."""
        self.states, self.leadership, self.offset = states, leadership, offset
        self._admitted = {}
        self._use_level(leadership.feature_level)
        for role_address in awake:
            if self._serve(role_address) is not None:
                self._awake[role_address] = None

    def accepts(self, record: Record) -> bool:
        """Returns whether a process can have sent the next event, and it is not fenced."""
        return self.leadership.accepts(record)

    def apply(self, record: Record) -> list[str]:
        """Folds one event; returns the addresses whose state changed."""
        offset, header, body = record.offset, record.header, record.body
        if offset >= self._mark and self._watcher is not None:
            self._mark = self._watcher.on_position(offset)
        self.offset = offset
        sender, recipient = header.sender, header.recipient
        # This is `accepts`, with a cache of the senders' epochs.
        if find_header_fault(record, self.leadership.feature_level) is not None or (
            self._admitted.get(sender) != header.sender_epoch and not self._has_present_epoch(record)
        ):
            return self._ignore(record)
        if type(body) is LeaderElected:
            if not self.leadership.has_present_epoch(record):
                return self._ignore(record)
            self.leadership = self.leadership.evolve(record)
            self._admitted = {}
            return [body.role] if self._fold(body.role, record) else []
        if recipient == EVERYONE:
            if type(body) is FeatureLevelRaised:
                self.leadership = self.leadership.evolve(record)
                self._use_level(self.leadership.feature_level)
                # The requester no longer requests it.
                return [sender] if self._fold(sender, record) else []
            if type(body) is SchemasRegistered:
                self.leadership = self.leadership.evolve(record)
                return []
            if type(body) is TaskExecutorsForgotten:
                return self._forget_task_executors(record, body)
            if type(body) in _ABOUT_STATES:
                if self._watcher is not None:
                    self._watcher.on_event(record)
                return []
            return [
                role_address for role_address in self.active_addresses if self._fold(role_address, record)
            ]
        if type(body) is JobsForgotten:
            changed = [sender] if self._fold(sender, record) else []
            for job_id in body.job_ids:
                if (role_address := f"{JOB_MASTER}/{job_id}") in self.states:
                    self._fold(role_address, record)
                    changed.append(role_address)
            return [role_address for role_address in changed if role_address in self.states]
        foreign = self._foreign
        changed = [sender] if sender not in foreign and self._fold(sender, record) else []
        if recipient != sender and recipient not in foreign and self._fold(recipient, record):
            changed.append(recipient)
        return changed

    def addresses_in_term(self, role: str) -> list[str]:
        """Returns the addresses that the leader of a role leads, if their states are not quiescent. With the Dispatcher
        come the jobs."""
        jobs = [job for job in self._awake if kind_of(job) == JOB_MASTER] if role == DISPATCHER else []
        return [role, *jobs] if self.is_active(role) else jobs

    def recent_events(self, role_address: str) -> tuple[Record, ...]:
        """Returns the last events that the address folded, oldest first; none if it is quiescent."""
        served = self._serving.get(role_address)
        return () if served is None else tuple(served.story)

    def _roles_at_level(self, level: int) -> Mapping[str, AnyRole]:
        if level not in self._at_levels:
            self._at_levels[level] = {role.kind: role for role in self._roles_at(level)}
        return self._at_levels[level]

    def _use_level(self, level: int) -> None:
        roles = self._roles_at_level(level)
        if roles is not self._roles:
            self._roles = roles
            for role_address, served in self._serving.items():
                served.use_level(roles[kind_of(role_address)])

    def _has_present_epoch(self, record: Record) -> bool:
        """Like LeadershipState.has_present_epoch, cached by sender and epoch because leadership seldom changes."""
        if not self.leadership.has_present_epoch(record):
            return False
        header = record.header
        # The number of clients is unbounded, so they are not cached.
        if type(record.body) not in _UNDER_ANY_EPOCH and kind_of(header.sender) != CLIENT:
            self._admitted[header.sender] = header.sender_epoch
        return True

    def _ignore(self, record: Record) -> list[str]:
        """Reports an event that is not folded, unless it is only fenced."""
        if self._on_false_header is not None and (fault := self.leadership.find_fault(record)) is not None:
            self._on_false_header(record, fault)
        return []

    def _serve(self, role_address: str) -> _RoleSlot | None:
        if not self.serves(role_address):
            # The number of clients is unbounded.
            if len(self._foreign) >= _MOST_FOREIGN:
                self._foreign.clear()
            self._foreign.add(role_address)
            return None
        served = self._serving[role_address] = _RoleSlot(self._roles[kind_of(role_address)])
        return served

    def _forget(self, role_address: str) -> None:
        """Keeps the state only."""
        self._awake.pop(role_address, None)
        self._serving.pop(role_address, None)

    def _forget_task_executors(self, record: Record, body: TaskExecutorsForgotten) -> list[str]:
        roles = self.leadership.forgotten_roles(record, body)
        self.leadership = self.leadership.evolve(record)
        self._admitted = {}
        for role in roles:
            if role in self.states:
                self._drop(role)
        sender = record.header.sender
        return [sender] if self._fold(sender, record) else []

    def _drop(self, role_address: str) -> None:
        """Drops the state of an address that nothing concerns any more."""
        self._forget(role_address)
        del self.states[role_address]
        for changed in self._followers:
            changed.add(role_address)

    def _fold(self, role_address: str, record: Record) -> bool:
        """Returns whether the event changed the state of an address that this replica serves."""
        served = self._serving.get(role_address) or self._serve(role_address)
        if served is None:
            return False
        before = self.states.get(role_address)
        try:
            after = served.evolve(served.initial(role_address) if before is None else before, record)
        except IllegalEvent as error:
            if self.telling:
                self._on_illegal(error, self.recent_events(role_address))
            if role_address not in self._awake:
                self._forget(role_address)
            return False
        if after is before:
            # The state stays quiescent or active, as before.
            if role_address in self._awake:
                served.story.append(record)
            else:
                self._forget(role_address)
            return False
        self.states[role_address] = after
        for changed in self._followers:
            changed.add(role_address)
        if self._index_errors is not None and (errors := [*self._index_errors[kind_of(role_address)](after)]):
            raise IndexDiverged(role_address, record.offset, errors)
        if served.at_rest(after):
            self._forget(role_address)
            if served.is_over(after):
                self._drop(role_address)
                return False
        else:
            self._awake[role_address] = None
            served.story.append(record)
        return True


def tune_gc_for_replay() -> None:
    """Lets the garbage collector scan young objects less often, for processes that fold.

    States are trees of frozen data that live long. With Python's default, a scan every 700 objects, the collector took
    a third of the folding time and found nothing (docs/notes/event-cost.md).
    """
    gc.set_threshold(_YOUNG_OBJECTS)


class IllegalEventReporter:
    """Logs illegal events, with a rate limit: when a large job fails, each of its tasks may send one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = -1
        self._reported_in_second = 0
        self._passed_over = 0

    def __call__(self, error: IllegalEvent, story: tuple[Record, ...]) -> None:
        second = int(self._clock())
        if second != self._second:
            self._second, self._reported_in_second = second, 0
        if self._reported_in_second == _WARNINGS_PER_S:
            self._passed_over += 1
            return
        self._reported_in_second += 1
        events = [f"{record.offset} {record.body.AVRO_NAME} from {record.header.sender}" for record in story]
        more = {"passed_over": self._passed_over} if self._passed_over else {}
        self._passed_over = 0
        _log.warning(
            "ignored an illegal event",
            offset=error.record.offset,
            cause=error.record.header.cause,
            error=str(error),
            story=events,
            **more,
        )
