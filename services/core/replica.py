"""The states of all roles, replayed from the log. Hosts, time travel and tests share this code.

An event changes the states of its sender and its recipient only (of all active roles if it is sent to EVERYONE). Fenced
events and illegal events change nothing, in every replica alike.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Protocol

from ...infra.logging_setup import logger
from ...schemas.event import EVERYONE, Record
from ...schemas.everyone import FeatureLevelRaised, LeaderElected, SnapshotTaken, StateHash
from .feature_level import FIRST_LEVEL, RolesAt
from .index_validation import IndexDiverged, IndexErrors
from .leadership import LeadershipState
from .role import CLIENT, JOB_MASTER, AnyRole, IllegalEvent, kind_of

_STORY = 8
_MOST_FOREIGN = 1 << 12
_WARNINGS_PER_S = 10
_YOUNG_OBJECTS = 50_000
_log = logger(__name__)

OnIllegal = Callable[[IllegalEvent, tuple[Record, ...]], None]
_ABOUT_STATES = (SnapshotTaken, StateHash)
"""What is said of states as a whole: no role folds it."""


class ReplicaListener(Protocol):
    """Looks at a replica while it folds, on its thread."""

    def on_position(self, offset: int) -> int:
        """Called before the first event at or behind a mark is folded, with its offset; returns the next mark."""
        ...

    def on_event(self, record: Record) -> None:
        """Called with each SnapshotTaken and StateHash that is not ignored."""
        ...


class _RoleSlot:
    """An address that is served here, while it is not at rest: its role's methods, looked up once, and its story."""

    __slots__ = ("at_rest", "evolve", "initial", "story")

    def __init__(self, role: AnyRole) -> None:
        self.use_level(role)
        self.story: deque[Record] = deque(maxlen=_STORY)

    def use_level(self, role: AnyRole) -> None:
        self.evolve = role.evolve
        self.initial = role.initial
        self.at_rest = role.is_quiescent


class Replica:
    """States by address. Not safe for use by several threads."""

    def __init__(
        self,
        roles: Iterable[AnyRole] | RolesAt,
        *,
        only: Callable[[str], bool] | None = None,
        on_illegal: OnIllegal | None = None,
        index_errors: Mapping[str, IndexErrors] | None = None,
    ) -> None:
        """`roles`: as they are at each feature level, or, where they are the same at all of them, just they.
        `index_errors`: by kind of role, what recomputes the indexes of its states after each event; None: nothing does.
        """
        same = None if callable(roles) else tuple(roles)
        self._roles_at: RolesAt = roles if callable(roles) else lambda _: same or ()
        self._at_levels: dict[int, Mapping[str, AnyRole]] = {}
        self._roles = self._roles_at_level(FIRST_LEVEL)
        self._only = only
        self._on_illegal = on_illegal or IllegalEventReporter()
        self._index_errors = index_errors
        self._serving: dict[str, _RoleSlot] = {}
        self._foreign: set[str] = set()
        """Addresses that are not served here, as far as they were met lately."""
        self._admitted: dict[str, int] = {}
        """Sender -> the epoch under which it is heard, as far as it was since the last LeaderElected."""
        self._awake: dict[str, None] = {}
        self._watcher: ReplicaListener | None = None
        self._mark = sys.maxsize
        self.telling = True
        """Whether people are told of illegal events. Not of those that were told of when they were new."""
        self.states: MutableMapping[str, Any] = {}
        self.leadership = LeadershipState()
        self.offset = -1
        """The offset of the last event that was folded, fenced ones included."""

    @property
    def active_addresses(self) -> list[str]:
        """The addresses whose states are not at rest: an event to EVERYONE concerns them, and no others."""
        return list(self._awake)

    def is_active(self, role_address: str) -> bool:
        """Whether the address has a state, and one that is not at rest."""
        return role_address in self._awake

    def role(self, role_address: str, level: int | None = None) -> AnyRole:
        """The role that serves an address, now or at a feature level."""
        roles = self._roles if level is None else self._roles_at_level(level)
        return roles[kind_of(role_address)]

    def serves(self, role_address: str) -> bool:
        """Whether the address has a state here, once something was said to it."""
        return kind_of(role_address) in self._roles and (self._only is None or self._only(role_address))

    def watch(self, watcher: ReplicaListener, mark: int = sys.maxsize) -> None:
        """The one that looks on; by default it is told of SnapshotTaken and StateHash only."""
        self._watcher, self._mark = watcher, mark

    def restore(self, states: Mapping[str, Any], leadership: LeadershipState, offset: int) -> None:
        """Continues where another replica was behind the event at `offset`; nothing was folded here yet."""
        self.states, self.leadership, self.offset = dict(states), leadership, offset
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
        """As `restore`, with the mapping itself as states, of which none is looked at: `awake` are not at rest."""
        self.states, self.leadership, self.offset = states, leadership, offset
        self._admitted = {}
        self._use_level(leadership.feature_level)
        for role_address in awake:
            if self._serve(role_address) is not None:
                self._awake[role_address] = None

    def accepts(self, record: Record) -> bool:
        """Whether the event, which comes next, is not fenced."""
        header = record.header
        if self._admitted.get(header.sender) != header.sender_epoch:
            return self._accepts(record)
        return type(record.body) is not LeaderElected or self.leadership.accepts(record)

    def apply(self, record: Record) -> list[str]:
        """Folds one event; returns the addresses whose state has changed."""
        offset, header, body = record.offset, record.header, record.body
        if offset >= self._mark and self._watcher is not None:
            self._mark = self._watcher.on_position(offset)
        self.offset = offset
        sender, recipient = header.sender, header.recipient
        # As `admits`, without the price of a call for every event.
        if self._admitted.get(sender) != header.sender_epoch and not self._accepts(record):
            return []
        if type(body) is LeaderElected:
            if not self.leadership.accepts(record):
                return []
            self.leadership = self.leadership.evolve(record)
            self._admitted = {}
            role = body.role
            # A claim begins no job, and wakes none.
            if kind_of(role) == JOB_MASTER and role not in self._awake:
                return []
            return [role] if self._fold(role, record) else []
        if recipient == EVERYONE:
            if type(body) is FeatureLevelRaised:
                self.leadership = self.leadership.evolve(record)
                self._use_level(self.leadership.feature_level)
                # Whoever asked for it does so no more.
                return [sender] if self._fold(sender, record) else []
            if type(body) in _ABOUT_STATES:
                if self._watcher is not None:
                    self._watcher.on_event(record)
                return []
            return [each for each in self.active_addresses if self._fold(each, record)]
        foreign = self._foreign
        changed = [sender] if sender not in foreign and self._fold(sender, record) else []
        if recipient != sender and recipient not in foreign and self._fold(recipient, record):
            changed.append(recipient)
        return changed

    def recent_events(self, role_address: str) -> tuple[Record, ...]:
        """The last events that an address folded, oldest first; none of what is at rest."""
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

    def _accepts(self, record: Record) -> bool:
        """As the Leadership does, which is asked once for each sender and epoch: it changes seldom."""
        if not self.leadership.accepts(record):
            return False
        header = record.header
        # Clients, which come and go without end, are heard under any epoch.
        if type(record.body) is not LeaderElected and kind_of(header.sender) != CLIENT:
            self._admitted[header.sender] = header.sender_epoch
        return True

    def _serve(self, role_address: str) -> _RoleSlot | None:
        if not self.serves(role_address):
            # Clients come and go without end.
            if len(self._foreign) >= _MOST_FOREIGN:
                self._foreign.clear()
            self._foreign.add(role_address)
            return None
        served = self._serving[role_address] = _RoleSlot(self._roles[kind_of(role_address)])
        return served

    def _forget(self, role_address: str) -> None:
        """Keeps no more than the state."""
        self._awake.pop(role_address, None)
        self._serving.pop(role_address, None)

    def _fold(self, role_address: str, record: Record) -> bool:
        """Whether the event was a legal step of an address that is served here, and one that changed its state."""
        served = self._serving.get(role_address) or self._serve(role_address)
        if served is None:
            return False
        before = self.states.get(role_address)
        try:
            after = served.evolve(served.initial(role_address) if before is None else before, record)
        except IllegalEvent as error:
            if self.telling:
                self._on_illegal(error, self.recent_events(role_address))
            if before is not None and role_address not in self._awake:
                self._forget(role_address)
            return False
        if after is before:
            # At rest or awake, as it was.
            if role_address in self._awake:
                served.story.append(record)
            else:
                self._forget(role_address)
            return False
        self.states[role_address] = after
        if self._index_errors is not None and (errors := [*self._index_errors[kind_of(role_address)](after)]):
            raise IndexDiverged(role_address, record.offset, errors)
        if served.at_rest(after):
            self._forget(role_address)
        else:
            self._awake[role_address] = None
            served.story.append(record)
        return True


def tune_gc_for_replay() -> None:
    """For processes that fold: has the garbage collector look at young objects less often.

    States are trees of frozen data that stay. Looking every 700 objects, as Python does by default, took a third of all
    folding and found nothing (docs/notes/event-cost.md).
    """
    gc.set_threshold(_YOUNG_OBJECTS)


class IllegalEventReporter:
    """Tells people of illegal events, but not of thousands: when a large job fails, each of its tasks may say one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = -1
        self._told = 0
        self._passed_over = 0

    def __call__(self, error: IllegalEvent, story: tuple[Record, ...]) -> None:
        second = int(self._clock())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told == _WARNINGS_PER_S:
            self._passed_over += 1
            return
        self._told += 1
        events = [f"{record.offset} {record.body.AVRO_NAME} from {record.header.sender}" for record in story]
        more = {"passed_over": self._passed_over} if self._passed_over else {}
        self._passed_over = 0
        _log.warning("ignored an illegal event", error=str(error), story=events, **more)
