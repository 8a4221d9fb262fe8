"""The one loop that runs roles in a process (design, section 3).

Read a batch, evolve. A leader, once its own last append has come back: decide, append; then have the shells obey
what the states demand. Standbys do all but decide. Nothing is decided on what was only sent: the log is read back
first, so that a fenced leader's last words move nothing.

Taking the lead without ZooKeeper (`high-availability.type: none`): the host claims one epoch more than the last, and
leads once it has read its claim back unfenced; the host that it deposes sees the same event and stops.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..schemas.event import EVERYONE, Event, Record
from ..schemas.everyone import LeaderElected
from .deadlines import Deadlines
from .log import EventLog, Tail
from .log.event_log import OnUnreadable
from .replica import Replica, spare_the_collector
from .roles import Clock, Owed, Shell, Time, kind_of, seal
from .voice import Voice

_LONGEST_WAIT_S = 0.1


class Deposed(Exception):
    """Another process leads a role that this one led; it must stop, its tasks need not."""


def wall_clock() -> Time:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class Host:
    """Runs the roles of one process over one log.

    `leads` are the roles that the process leads; `concerns` the addresses whose events it reads, None for all.
    `run` raises Deposed, LogTruncated and LogUnavailable.
    """

    def __init__(
        self,
        log: EventLog,
        replica: Replica,
        *,
        cluster: str,
        leads: Iterable[str],
        process_address: str,
        session: str,
        clock: Clock = wall_clock,
        on_unreadable: OnUnreadable | None = None,
        concerns: Iterable[str] | None = None,
    ) -> None:
        self._log = log
        self._replica = replica
        self._cluster = cluster
        self._leads = tuple(leads)
        self._process_address = process_address
        self._session = session
        self._shells: Mapping[str, Shell] = {}
        self._clock = clock
        self._on_unreadable = on_unreadable
        self._concerns = frozenset(concerns) if concerns is not None else None
        self._epochs: dict[str, int] = {}
        self._failure: Exception | None = None
        self._said = 0
        self._counting = threading.Lock()
        self._voice = Voice(log.append, self.fail)
        self._appended_to = -1
        self._dirty: dict[str, None] = {}
        self._deadlines = Deadlines()
        self._position = -1
        self.leading = threading.Event()
        """Set once every role of `leads` is led."""

    def run(
        self,
        stop: threading.Event,
        shells: Mapping[str, Shell],
        finished: Callable[[Replica], bool] = lambda _: False,
    ) -> None:
        """Replays the log, takes the lead, and goes on until `stop` is set or the states say that all is done.

        `shells` are by kind of role.
        """
        self._shells = shells
        spare_the_collector()
        tail = self._tail()
        try:
            self._replica.telling = False
            self._catch_up(tail, self._log.end(), stop)
            self._replica.telling = True
            self._claim(tail, stop)
            self._position = self._replica.offset
            if not stop.is_set():
                self.leading.set()
            self._dirty = dict.fromkeys(self._replica.awake)
            while not stop.is_set() and not finished(self._replica):
                self._fold(tail.poll(self._patience()))
                if self._failure is not None:
                    raise self._failure
                if self._replica.offset >= self._appended_to:
                    self._decide()
                    self._position = tail.position - 1
        finally:
            self.leading.clear()
            tail.close()

    def say(self, role_address: str, owed: Owed) -> None:
        """Appends what a shell has to say on behalf of a role that this process leads; from any thread, at once.

        What can't be appended ends `run`: the instruction stands, and is obeyed again after a restart.
        """
        for event in self.sealed(role_address, [owed]):
            self._voice.say(event)

    def sealed(self, role_address: str, owed: Sequence[Owed]) -> list[Event]:
        """What a role that this process leads says, with its headers, for a way beside the log; from any thread.

        Raises KeyError where the process does not lead the role.
        """
        epoch = self._epochs[self._led_as(role_address)]
        # Shells know no more than that: what was folded since they have not been shown.
        known = max([self._position, *(each.cause for each in owed if each.cause is not None)])
        return self._seal(role_address, owed, epoch, self._clock(), known)

    @property
    def position(self) -> int:
        """Up to this offset the log has been folded, and the shells have seen what came of it; -1 before that."""
        return self._position

    def fail(self, error: Exception) -> None:
        """Ends `run` with an error that befell another thread of the process."""
        self._failure = self._failure or error

    def close(self) -> None:
        """Returns when all that was said is in the log."""
        self._voice.close()

    def _tail(self) -> Tail:
        wanted = self._concerns
        if wanted is None:
            return self._log.tail(0, on_unreadable=self._on_unreadable)
        return self._log.tail(
            0,
            concerns=lambda sender, recipient: (
                recipient in wanted or sender in wanted or recipient == EVERYONE
            ),
            on_unreadable=self._on_unreadable,
        )

    def _catch_up(self, tail: Tail, end: int, stop: threading.Event) -> None:
        while tail.position < end and not stop.is_set():
            self._fold(tail.poll(_LONGEST_WAIT_S))

    def _claim(self, tail: Tail, stop: threading.Event) -> None:
        missing = list(self._leads)
        while missing and not stop.is_set():
            now = self._clock()
            claims = []
            for role in missing:
                epoch = self._replica.leadership.epoch(role) + 1
                body = LeaderElected(
                    role=role, epoch=epoch, address=self._process_address, session=self._session
                )
                claims += self._seal(role, [Owed(EVERYONE, body, None)], epoch, now, self._replica.offset)
            self._catch_up(tail, self._log.append(claims)[-1] + 1, stop)
            # A claim that another process overtook is ignored by every reader: claim the next epoch.
            # Of all roles: one that was won already may have been claimed by another process since.
            missing = [role for role in self._leads if not self._is_mine(role)]
        self._epochs = {role: self._replica.leadership.epoch(role) for role in self._leads}

    def _is_mine(self, role: str) -> bool:
        leader = self._replica.leadership.leaders.get(role)
        return leader is not None and leader.session == self._session

    def _fold(self, batch: Iterable[Record]) -> None:
        apply, dirty = self._replica.apply, self._dirty
        for record in batch:
            for each in apply(record):
                dirty[each] = None
            if self._epochs and isinstance(record.body, LeaderElected):
                self._check_deposed(record.body)

    def _check_deposed(self, body: LeaderElected) -> None:
        if body.role in self._epochs and not self._is_mine(body.role):
            raise Deposed(
                f"{body.address} leads {body.role} of {self._cluster} since epoch {body.epoch}: this process stops "
                f"leading epoch {self._epochs[body.role]}; running tasks are not touched"
            )

    def _patience(self) -> float:
        if self._dirty and self._replica.offset >= self._appended_to:
            return 0.0
        earliest = self._deadlines.earliest()
        if earliest is None:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, max(0.0, (earliest - self._clock()) / 1e6))

    def _decide(self) -> None:
        now = self._clock()
        dirty, self._dirty = self._dirty, {}
        for each in self._deadlines.passed(now):
            dirty[each] = None
        events: list[Event] = []
        for each in dirty:
            role, state = self._replica.role(each), self._replica.states[each]
            owed = role.decide(state, now)
            if owed:
                epoch = self._epochs[self._led_as(each)]
                events += self._seal(each, owed, epoch, now, self._replica.offset)
            self._deadlines.put(each, role.deadline(state))
            shell = self._shells.get(kind_of(each))
            if shell is not None:
                shell.obey(each, role.instructions(state), state)
        if events:
            self._appended_to = self._log.append(events)[-1]

    def _led_as(self, role_address: str) -> str:
        return role_address if role_address in self._epochs else kind_of(role_address)

    def _seal(self, sender: str, owed: Sequence[Owed], epoch: int, now: Time, decided_at: int) -> list[Event]:
        with self._counting:
            count = self._said
            self._said += len(owed)
        return seal(
            owed,
            cluster=self._cluster,
            sender=sender,
            epoch=epoch,
            decided_at=decided_at,
            now=now,
            count=count,
        )
