"""Real roles on a virtual clock: they talk until nobody owes anything, then the clock jumps to what happens next.

A *session* leads addresses, as LeaderElected says it: a process of masters, or a TaskExecutor's. In a turn each session
decides for whatever has changed since its last one and for deadlines that have passed, all from one state of the log,
as services.host.host does, and has its shell begin what the states demand; then what it said is folded. Deciding takes
no time; what shells do takes as long as they say, in a heap of facts that are yet to come. A session may be dead, or
paused: then it decides nothing, and its facts do not happen, or happen when it goes on.

The same roles, facts and times give the same log: nothing is drawn here, and ties are broken by the order in which
facts were foretold.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from ...schemas.event import EVERYONE, Event, Record
from ...schemas.everyone import LeaderElected
from ..core.deadline_heap import DeadlineHeap
from ..core.decision import decide_role
from ..core.instruction_tracker import InstructionTracker
from ..core.replica import Replica
from ..core.role import Instruction, OutgoingEvent, Time, kind_of, with_headers

MAX_TURNS = 10_000
"""Without the clock moving: more are talk without end."""


class LivelockError(Exception):
    """The roles go on talking, though nothing happens."""


class SimulatorShell(Protocol):
    """What obeys for one kind of role."""

    def perform(self, role_address: str, instruction: Instruction, state: Any) -> None:
        """Begins what is demanded, once in each session: says when it will have happened (`World.later`)."""
        ...


class Simulator:
    """Goes on from a replica; `log` is what has been said here since. For one thread."""

    def __init__(
        self,
        replica: Replica,
        *,
        cluster: str,
        now: Time,
        on_event: Callable[[Record, Sequence[str]], object] = lambda *_: None,
    ) -> None:
        """`on_event` is told of each event that was folded, with the addresses whose states it changed."""
        self.replica = replica
        self.cluster = cluster
        self.now = now
        self.log: list[Record] = []
        self.shells: Mapping[str, SimulatorShell] = {}
        """By kind of role; to be given before the first turn."""
        self._on_event = on_event
        self._dead: set[str] = set()
        self._paused: dict[str, list[Callable[[], None]]] = {}
        """Sessions, with what happens when they go on."""
        self._facts: list[tuple[Time, int, Callable[[], None]]] = []
        self._foretold = 0
        self._dirty: dict[str, dict[str, None]] = {}
        """Session -> addresses whose states it has not looked at since they changed."""
        self._deadlines = DeadlineHeap()
        self._begun: dict[str, InstructionTracker] = {}
        self._counts: dict[str, int] = {}
        self._mark_dirty(replica.active_addresses)

    # Who leads

    def session(self, role_address: str) -> str | None:
        """The session that leads an address, whether it lives or not."""
        leader = self.replica.leadership.leader(role_address)
        return None if leader is None else leader.session

    def claim_offset(self, role_address: str) -> int | None:
        """The offset since which it is led as it is: the cause of what its shell says by itself."""
        leader = self.replica.leadership.leader(role_address)
        return None if leader is None else leader.offset

    def is_led(self, role_address: str) -> bool:
        """Whether somebody who lives leads it."""
        session = self.session(role_address)
        return session is not None and session not in self._dead

    def elect_leader(self, role: str, session: str, process_address: str) -> None:
        """The session takes the lead of a role."""
        self.lead(LeaderElected(role=role, epoch=0, address=process_address, session=session))

    def lead(self, claim: LeaderElected) -> None:
        """As `elect`, with all that a claim says, but for its epoch: that is the next one."""
        self._dead.discard(claim.session)
        epoch = self.replica.leadership.epoch(claim.role) + 1
        self._append(
            claim.role, [OutgoingEvent(EVERYONE, replace(claim, epoch=epoch), None)], epoch, decided=False
        )

    def kill(self, session: str) -> None:
        """It decides nothing more, and what it has begun does not happen."""
        self._dead.add(session)
        for known in (self._paused, self._begun, self._dirty):
            known.pop(session, None)

    def pause(self, session: str) -> None:
        """It does nothing until it resumes."""
        if session not in self._dead:
            self._paused.setdefault(session, [])

    def resume(self, session: str) -> None:
        """What would have happened meanwhile happens now."""
        for fact in self._paused.pop(session, ()):
            self.schedule_at(self.now, fact)
        self._mark_dirty(each for each in self.replica.active_addresses if self.session(each) == session)

    # What happens

    def schedule_at(self, time: Time, fact: Callable[[], None]) -> None:
        """Something will happen; not before now."""
        self._foretold += 1
        heapq.heappush(self._facts, (max(time, self.now), self._foretold, fact))

    def schedule_after(self, delay: Time, role_address: str, fact: Callable[[], None]) -> None:
        """As `at`, by the session that leads the address now: if that is dead or leads no more, it does not happen."""
        session = self.session(role_address)
        if session is not None:
            self.schedule_at(self.now + delay, lambda: self._run_by(session, role_address, fact))

    def append_from_shell(self, role_address: str, owed: OutgoingEvent) -> None:
        """A shell says what has happened; of who is paused, when it goes on."""
        held = self._paused.get(self.session(role_address) or "")
        if held is not None:
            held.append(lambda: self.append_from_shell(role_address, owed))
        elif self.is_led(role_address):
            self._append(role_address, [owed], self.replica.leadership.epoch(role_address), decided=False)

    def inject(self, event: Event) -> int:
        """A client's words, as they are; returns their offset."""
        return self._fold(event)

    def run(self, until: Time) -> None:
        """Until nothing is owed and nothing is due up to that time, which it is then. Raises TalkWithoutEnd."""
        while True:
            while self._facts and self._facts[0][0] <= self.now:
                heapq.heappop(self._facts)[2]()
                # What follows from it is said before the next thing happens, also where that is at the same time.
                self.run_until_idle()
            self.run_until_idle()
            due = self.next_deadline()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
        self.now = max(self.now, until)

    def next_deadline(self) -> Time | None:
        """When the next fact or deadline is due; None: never."""
        times = [self._facts[0][0]] if self._facts else []
        earliest = self._deadlines.earliest()
        return min(times + ([] if earliest is None else [earliest]), default=None)

    def run_until_idle(self) -> None:
        """Until nobody owes anything. Raises TalkWithoutEnd."""
        for _ in range(MAX_TURNS):
            if not self._run_once():
                return
        last = ", ".join(f"{each.header.sender}: {each.body.AVRO_NAME}" for each in self.log[-10:])
        raise LivelockError(f"the roles talk without end at offset {self.replica.offset}: {last}")

    def find_owed_events(self) -> list[tuple[str, OutgoingEvent]]:
        """What anybody who leads and lives owes now, looked at afresh."""
        replica = self.replica
        return [
            (each, owed)
            for each in replica.active_addresses
            if self.is_led(each) and self.session(each) not in self._paused
            for owed in replica.role(each).decide(replica.states[each], self.now)
        ]

    def _run_once(self) -> bool:
        """Whether anybody had anything to look at."""
        self._mark_dirty(self._deadlines.pop_expired(self.now))
        sessions = [each for each in self._dirty if each not in self._paused]
        for session in sessions:
            addresses = self._dirty.pop(session)
            if session not in self._dead:
                self._decide(session, addresses)
        return bool(sessions)

    def _decide(self, session: str, addresses: Iterable[str]) -> None:
        replica, now = self.replica, self.now
        decided_at = replica.offset
        said: list[tuple[str, Sequence[OutgoingEvent]]] = []
        for each in addresses:
            if self.session(each) != session:
                continue
            role, state = replica.role(each), replica.states[each]
            decision = decide_role(role, state, now)
            if decision.error is not None:
                raise decision.error
            if decision.events:
                said.append((each, decision.events))
            self._deadlines.set(each, decision.deadline)
            shell = self.shells.get(kind_of(each))
            if shell is not None:
                begun = self._begun.setdefault(session, InstructionTracker())
                for instruction in begun.take_new(each, decision.instructions):
                    shell.perform(each, instruction, state)
        for each, owed in said:
            self._append(each, owed, replica.leadership.epoch(each), decided=True, decided_at=decided_at)

    def _run_by(self, session: str, role_address: str, fact: Callable[[], None]) -> None:
        if session in self._dead or self.session(role_address) != session:
            return
        held = self._paused.get(session)
        if held is None:
            fact()
        else:
            held.append(lambda: self._run_by(session, role_address, fact))

    def _append(
        self,
        sender: str,
        owed: Sequence[OutgoingEvent],
        epoch: int,
        *,
        decided: bool,
        decided_at: int | None = None,
    ) -> None:
        count = self._counts.get(sender, 0)
        self._counts[sender] = count + len(owed)
        events = with_headers(
            owed,
            cluster=self.cluster,
            sender=sender,
            epoch=epoch,
            decided_at=self.replica.offset if decided_at is None else decided_at,
            now=self.now,
            numbers=itertools.count(count),
            decided=decided,
        )
        for event in events:
            self._fold(event)

    def _fold(self, event: Event) -> int:
        replica = self.replica
        record = Record(replica.offset + 1, event.header, event.body)
        before = replica.leadership
        changed = replica.apply(record)
        self.log.append(record)
        self._mark_dirty(changed)
        if isinstance(event.body, LeaderElected) and replica.leadership is not before:
            self._mark_dirty(self.replica.addresses_in_term(event.body.role))
        self._on_event(record, changed)
        return record.offset

    def _mark_dirty(self, addresses: Iterable[str]) -> None:
        for each in addresses:
            session = self.session(each)
            if session is not None:
                self._dirty.setdefault(session, {})[each] = None
