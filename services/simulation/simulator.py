"""Runs real roles on a virtual clock, on a log in memory.

A process is a session that leads addresses: a jobmanager, or a TaskExecutor. Each process decides as a real host does
(services/core/decision.py): for all addresses that are due, on one state of the log. Its events are folded before the
next process decides. When no address is due, the clock jumps to the next scheduled action or deadline. Decisions take
no time; the effects of shells take as long as the shells schedule them.

The same roles, actions and times give the same log: nothing is random, and actions of the same time run in the order
in which they were scheduled.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace

from ...schemas.event import EVERYONE, Event, Record
from ...schemas.everyone import LeaderElected
from ..core.deadline_heap import DeadlineHeap
from ..core.decision import DecisionQueue
from ..core.instruction_tracker import InstructionTracker
from ..core.replica import Replica
from ..core.role import AnyRole, Instruction, OutgoingEvent, Time, kind_of, with_headers

MAX_TURNS = 10_000
"""The maximum number of turns without a jump of the clock."""


class LivelockError(Exception):
    """The roles send events without end."""


class SimulatorShell(Protocol):
    """Performs the instructions of one kind of role."""

    def perform(self, role_address: str, instruction: Instruction, state: Any) -> None:
        """Called once for each instruction of a process. Schedules the events that report the result."""
        ...


@dataclass(slots=True)
class _Process:
    """A session that leads addresses."""

    queue: DecisionQueue = field(default_factory=DecisionQueue)
    instructions: InstructionTracker = field(default_factory=InstructionTracker)
    held: list[Callable[[], None]] | None = None
    """The actions that wait until the paused process resumes; None: it is not paused."""


class Simulator:
    """Continues from a replica; `log` has the events since then. For one thread."""

    def __init__(
        self,
        replica: Replica,
        *,
        cluster: str,
        now: Time,
        on_event: Callable[[Record, Sequence[str]], object] = lambda *_: None,
    ) -> None:
        """`on_event` is called with each folded event, and with the addresses whose states it changed."""
        self.replica = replica
        self.cluster = cluster
        self.now = now
        self.log: list[Record] = []
        self.shells: Mapping[str, SimulatorShell] = {}
        """By kind of role."""
        self.on_event = on_event
        self._processes: dict[str, _Process] = {}
        """By session: those that are alive."""
        self._dead: set[str] = set()
        self._due: dict[str, None] = {}
        """The sessions that have to decide, in order."""
        self._deadlines = DeadlineHeap()
        """The deadlines by session."""
        self._actions: list[tuple[Time, int, Callable[[], None]]] = []
        self._scheduled = itertools.count()
        self._counts: dict[str, int] = {}
        self._mark(replica.active_addresses)

    def session(self, role_address: str) -> str | None:
        """Returns the session that leads an address, alive or not; None if no session does."""
        leader = self.replica.leadership.leader(role_address)
        return None if leader is None else leader.session

    def claim_offset(self, role_address: str) -> int | None:
        """Returns the offset of the claim by which the address is led."""
        leader = self.replica.leadership.leader(role_address)
        return None if leader is None else leader.offset

    def is_led(self, role_address: str) -> bool:
        """Returns whether a process that is alive leads the address."""
        session = self.session(role_address)
        return session is not None and session not in self._dead

    def is_paused(self, session: str) -> bool:
        """Returns whether the process is paused."""
        process = self._processes.get(session)
        return process is not None and process.held is not None

    def elect_leader(self, role: str, session: str, process_address: str) -> None:
        """Lets the session lead a role."""
        self.lead(LeaderElected(role=role, epoch=0, address=process_address, session=session))

    def lead(self, claim: LeaderElected) -> None:
        """Lets the session of a claim lead its role, in the next epoch."""
        self._dead.discard(claim.session)
        epoch = self.replica.leadership.epoch(claim.role) + 1
        self.append(claim.role, [OutgoingEvent(EVERYONE, replace(claim, epoch=epoch), None)], epoch=epoch)

    def kill(self, session: str) -> None:
        """Kills a process: it decides no more, and its scheduled actions are dropped."""
        self._dead.add(session)
        self._processes.pop(session, None)
        self._due.pop(session, None)
        self._deadlines.set(session, None)

    def pause(self, session: str) -> None:
        """Pauses a process until it resumes."""
        if session not in self._dead:
            process = self._process(session)
            process.held = process.held or []

    def resume(self, session: str) -> None:
        """Resumes a process: the actions that were due meanwhile run now."""
        if self.is_paused(session):
            process = self._process(session)
            for action in process.held or ():
                self.schedule_at(self.now, action)
            process.held = None
        self._mark(address for address in self.replica.active_addresses if self.session(address) == session)

    def schedule_at(self, time: Time, action: Callable[[], None]) -> None:
        """Schedules an action, not before the current time."""
        heapq.heappush(self._actions, (max(time, self.now), next(self._scheduled), action))

    def schedule_after(self, delay: Time, role_address: str, action: Callable[[], None]) -> None:
        """Schedules an action of the process that leads the address now. It is dropped if the process is dead by
        then, or no longer leads the address."""
        session = self.session(role_address)
        if session is not None:
            self.schedule_at(self.now + delay, lambda: self._run_by(session, role_address, action))

    def append_from_shell(self, role_address: str, owed: OutgoingEvent) -> None:
        """Appends an event of a shell, if a live process leads the address; an event of a paused process is appended
        when it resumes."""
        session = self.session(role_address)
        if session is None or session in self._dead:
            return
        held = self._process(session).held
        if held is not None:
            held.append(lambda: self.append_from_shell(role_address, owed))
        else:
            self.append(role_address, [owed])

    def append(
        self,
        sender: str,
        owed: Sequence[OutgoingEvent],
        *,
        epoch: int | None = None,
        decided_at: int | None = None,
    ) -> None:
        """Appends events of an address and folds them. `epoch`: by default that of its leader. `decided_at`: the offset
        at which its role decided to send them; None for the events of shells."""
        count = self._counts.get(sender, 0)
        self._counts[sender] = count + len(owed)
        events = with_headers(
            owed,
            cluster=self.cluster,
            sender=sender,
            epoch=self.replica.leadership.epoch(sender) if epoch is None else epoch,
            decided_at=self.replica.offset if decided_at is None else decided_at,
            now=self.now,
            numbers=itertools.count(count),
            decided=decided_at is not None,
        )
        for event in events:
            self.inject(event)

    def inject(self, event: Event) -> int:
        """Appends an event unchanged and folds it; returns its offset."""
        replica = self.replica
        record = Record(replica.offset + 1, event.header, event.body)
        before = replica.leadership
        changed = replica.apply(record)
        self.log.append(record)
        self._mark(changed)
        if isinstance(event.body, LeaderElected) and replica.leadership is not before:
            self._mark(replica.addresses_in_term(event.body.role))
        self.on_event(record, changed)
        return record.offset

    def run(self, until: Time) -> None:
        """Runs until nothing is due up to that time, which becomes the current one. Raises LivelockError."""
        while True:
            while self._actions and self._actions[0][0] <= self.now:
                heapq.heappop(self._actions)[2]()
                # The roles react before the next action happens, also if that has the same time.
                self.run_until_idle()
            self.run_until_idle()
            due = self.next_deadline()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
        self.now = max(self.now, until)

    def next_deadline(self) -> Time | None:
        """Returns when the next action or deadline is due, or None."""
        times = [self._actions[0][0]] if self._actions else []
        earliest = self._deadlines.earliest()
        return min(times + ([] if earliest is None else [earliest]), default=None)

    def run_until_idle(self) -> None:
        """Runs until no process has to decide. Raises LivelockError."""
        for _ in range(MAX_TURNS):
            if not self._run_once():
                return
        last = ", ".join(f"{each.header.sender}: {each.body.AVRO_NAME}" for each in self.log[-10:])
        raise LivelockError(f"the roles send events without end at offset {self.replica.offset}: {last}")

    def find_owed_events(self) -> list[tuple[str, OutgoingEvent]]:
        """Returns the events that the roles of all processes owe now, due or not."""
        replica = self.replica
        return [
            (address, owed)
            for address in replica.active_addresses
            if self.is_led(address) and not self.is_paused(self.session(address) or "")
            for owed in replica.role(address).decide(replica.states[address], self.now)
        ]

    def _run_once(self) -> bool:
        for session in self._deadlines.pop_expired(self.now):
            self._due[session] = None
        due = [each for each in self._due if not self.is_paused(each)]
        for session in due:
            if self._due.pop(session, ...) is None:
                self._decide(session, self._process(session))
        return bool(due)

    def _decide(self, session: str, process: _Process) -> None:
        replica, now, decided_at = self.replica, self.now, self.replica.offset

        def find(role_address: str) -> tuple[AnyRole, Any] | None:
            if self.session(role_address) != session:
                return None
            return replica.role(role_address), replica.states[role_address]

        turns = process.queue.decide(now, find)
        self._deadlines.set(session, process.queue.next_deadline())
        for role_address, state, decision in turns:
            if decision.error is not None:
                raise decision.error
            shell = self.shells.get(kind_of(role_address))
            if shell is not None:
                for instruction in process.instructions.take_new(role_address, decision.instructions):
                    shell.perform(role_address, instruction, state)
        for role_address, _, decision in turns:
            if decision.events:
                self.append(role_address, decision.events, decided_at=decided_at)

    def _run_by(self, session: str, role_address: str, action: Callable[[], None]) -> None:
        if session in self._dead or self.session(role_address) != session:
            return
        held = self._process(session).held
        if held is None:
            action()
        else:
            held.append(lambda: self._run_by(session, role_address, action))

    def _process(self, session: str) -> _Process:
        found = self._processes.get(session)
        if found is None:
            found = self._processes[session] = _Process()
        return found

    def _mark(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            session = self.session(address)
            if session is not None and session not in self._dead:
                self._process(session).queue.mark(address)
                self._due[session] = None
