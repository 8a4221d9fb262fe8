"""The states of roles, folded from the log: the part that hosts, time travel and tests share.

An event concerns its sender and its recipient (everyone, if it says so) and is handed to no other. What fencing
ignores, and what a role calls illegal, changes nothing, in every replica alike.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import structlog

from ..schemas.event import EVERYONE, Record
from ..schemas.everyone import LeaderElected, SnapshotTaken, StateHash
from .leadership import Leadership
from .roles import JOB_MASTER, AnyRole, IllegalEvent, kind_of

_STORY = 8
_WARNINGS_PER_S = 10
_YOUNG_OBJECTS = 50_000
_log = structlog.get_logger(__name__)

OnIllegal = Callable[[IllegalEvent, tuple[Record, ...]], None]
_ABOUT_STATES = (SnapshotTaken, StateHash)
"""What is said of states as a whole: no role folds it."""


class Watcher(Protocol):
    """Looks at a replica while it folds, on its thread."""

    def reached(self, offset: int) -> int:
        """Called before the first event at or behind a mark is folded, with its offset; returns the next mark."""
        ...

    def told(self, record: Record) -> None:
        """Called with each SnapshotTaken and StateHash that is not ignored."""
        ...


class Replica:
    """States by address. Not safe for use by several threads."""

    def __init__(
        self,
        roles: Iterable[AnyRole],
        *,
        only: Callable[[str], bool] | None = None,
        on_illegal: OnIllegal | None = None,
    ) -> None:
        self._roles: Mapping[str, AnyRole] = {role.kind: role for role in roles}
        self._only = only
        self._on_illegal = on_illegal or Warnings()
        self._serving: dict[str, AnyRole] = {}
        self._stories: dict[str, deque[Record]] = {}
        self._awake: dict[str, None] = {}
        self._watcher: Watcher | None = None
        self._mark = sys.maxsize
        self.telling = True
        """Whether people are told of illegal events. Not of those that were told of when they were new."""
        self.states: dict[str, Any] = {}
        self.leadership = Leadership()
        self.offset = -1
        """The offset of the last event that was folded, fenced ones included."""

    @property
    def awake(self) -> list[str]:
        """The addresses whose states are not at rest: an event to EVERYONE concerns them, and no others."""
        return list(self._awake)

    def is_awake(self, role_address: str) -> bool:
        """Whether the address has a state, and one that is not at rest."""
        return role_address in self._awake

    def role(self, role_address: str) -> AnyRole:
        """The role that serves an address."""
        return self._roles[kind_of(role_address)]

    def serves(self, role_address: str) -> bool:
        """Whether the address has a state here, once something was said to it."""
        return kind_of(role_address) in self._roles and (self._only is None or self._only(role_address))

    def watch(self, watcher: Watcher, mark: int = sys.maxsize) -> None:
        """The one that looks on; by default it is told of SnapshotTaken and StateHash only."""
        self._watcher, self._mark = watcher, mark

    def restore(self, states: Mapping[str, Any], leadership: Leadership, offset: int) -> None:
        """Continues where another replica was behind the event at `offset`; nothing was folded here yet."""
        self.states, self.leadership, self.offset = dict(states), leadership, offset
        for role_address, state in self.states.items():
            role = self._role_serving(role_address)
            if role is None or role.at_rest(state):
                self._forget(role_address)
            else:
                self._awake[role_address] = None

    def apply(self, record: Record) -> list[str]:
        """Folds one event; returns the addresses whose state has changed."""
        if record.offset >= self._mark and self._watcher is not None:
            self._mark = self._watcher.reached(record.offset)
        self.offset = record.offset
        if not self.leadership.admits(record):
            return []
        if isinstance(record.body, LeaderElected):
            self.leadership = self.leadership.evolve(record)
            role = record.body.role
            # A claim begins no job, and wakes none.
            if kind_of(role) == JOB_MASTER and role not in self._awake:
                return []
            return [role] if self._fold(role, record) else []
        sender, recipient = record.header.sender, record.header.recipient
        if recipient == EVERYONE:
            if isinstance(record.body, _ABOUT_STATES):
                if self._watcher is not None:
                    self._watcher.told(record)
                return []
            return [each for each in self.awake if self._fold(each, record)]
        changed = [sender] if self._fold(sender, record) else []
        if recipient != sender and self._fold(recipient, record):
            changed.append(recipient)
        return changed

    def story(self, role_address: str) -> tuple[Record, ...]:
        """The last events that an address folded, oldest first; none of what is at rest."""
        return tuple(self._stories.get(role_address, ()))

    def _role_serving(self, role_address: str) -> AnyRole | None:
        role = self._roles.get(kind_of(role_address))
        if role is None or not (self._only is None or self._only(role_address)):
            return None
        # Only what is served is remembered: clients come and go without end.
        self._serving[role_address] = role
        self._stories[role_address] = deque(maxlen=_STORY)
        return role

    def _forget(self, role_address: str) -> None:
        """Keeps no more than the state."""
        for each in (self._awake, self._serving, self._stories):
            each.pop(role_address, None)

    def _fold(self, role_address: str, record: Record) -> bool:
        """Whether the event was a legal step of an address that is served here, and one that changed its state."""
        role = self._serving.get(role_address) or self._role_serving(role_address)
        if role is None:
            return False
        before = self.states.get(role_address)
        try:
            after = role.evolve(role.initial(role_address) if before is None else before, record)
        except IllegalEvent as error:
            if self.telling:
                self._on_illegal(error, self.story(role_address))
            if before is not None and role_address not in self._awake:
                self._forget(role_address)
            return False
        self.states[role_address] = after
        if role.at_rest(after):
            self._forget(role_address)
        else:
            self._awake[role_address] = None
            self._stories[role_address].append(record)
        return after is not before


def spare_the_collector() -> None:
    """For processes that fold: has the garbage collector look at young objects less often.

    States are trees of frozen data that stay. Looking every 700 objects, as Python does by default, took a third of all
    folding and found nothing (docs/notes/event-cost.md).
    """
    gc.set_threshold(_YOUNG_OBJECTS)


class Warnings:
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
