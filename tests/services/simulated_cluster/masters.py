"""Masters that stand by: the real Host, one turn at a time, in a simulated world, and an election that can go wrong.

An election gives a mandate to whoever stands first for a role. What can go wrong: a master does not hear that its
session has ended, and so keeps mandates that others have been given by then; one is given a mandate out of its turn;
it is not known for a while who should lead; a node is lost; nobody notices for a while that a master has died.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tailrace.schemas.event import EVERYONE, Event, Record
from tailrace.schemas.everyone import ClusterTerminated, ConfigurationChanged, LeaderElected
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Instruction, OutgoingEvent, kind_of
from tailrace.services.host.host import Host
from tailrace.services.log.event_log import Concerns, OnUnreadable

from ..async_simulator import MASTER_KINDS, MASTER_ROLES, AsyncSimulator, SimulatedProcess


class _MasterDied(Exception):
    """SIGKILL between two appends."""


class Election:
    """Who stands for what, in order; `masters` are told."""

    def __init__(self) -> None:
        self._clock = 100
        self._nodes: dict[str, list[tuple[int, SimulatedElection]]] = {}
        self._out_of_turn: dict[tuple[str, SimulatedElection], int] = {}

    def stand(self, role: str, mandates: SimulatedElection) -> None:
        """At the end of the row."""
        self._nodes.setdefault(role, []).append((self._tick(), mandates))
        self._tell()

    def leave(self, role: str, mandates: SimulatedElection) -> None:
        """Gives back what it has of the role."""
        self._nodes[role] = [each for each in self._nodes.get(role, []) if each[1] is not mandates]
        self._out_of_turn.pop((role, mandates), None)
        self._tell()

    def expire(self, mandates: SimulatedElection) -> None:
        """The session has ended: the others know."""
        for role in self._nodes:
            self._nodes[role] = [each for each in self._nodes[role] if each[1] is not mandates]
        self._tell()

    def mislead(self, role: str, mandates: SimulatedElection) -> None:
        """A mandate beside that of the one whose turn it is."""
        self._out_of_turn[role, mandates] = self._tick()
        self._tell()

    def heal(self) -> None:
        """Whoever has died stands no more, and everybody hears what is so."""
        self._out_of_turn.clear()
        for mandates in {each for row in self._nodes.values() for _, each in row if not each.alive()}:
            self.expire(mandates)

    def grants(self, mandates: SimulatedElection) -> dict[str, int | None]:
        """To whom it is told now."""
        first = {role: row[0] for role, row in self._nodes.items() if row}
        granted: dict[str, int | None] = {
            role: number for role, (number, each) in first.items() if each is mandates
        }
        for (role, each), number in self._out_of_turn.items():
            if each is mandates:
                granted[role] = number
        return granted

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _tell(self) -> None:
        rows = [each for row in self._nodes.values() for _, each in row]
        for mandates in dict.fromkeys([*rows, *(each for _, each in self._out_of_turn)]):
            mandates.hear()


class SimulatedElection:
    """Of one master; `deaf` while it does not hear what is so."""

    def __init__(self, election: Election, alive: Callable[[], bool]) -> None:
        self._election = election
        self.alive = alive
        self.elected_by = "a test"
        self.suspended = False
        self.deaf = False
        self._wishes: dict[str, None] = {}
        self._granted: dict[str, int | None] = {}

    def join(self, role: str) -> None:
        if role not in self._wishes:
            self._wishes[role] = None
            if not self.deaf:
                self._election.stand(role, self)

    def leave(self, role: str, *, for_ever: bool = False) -> None:
        self._wishes.pop(role, None)
        if role in self._granted:
            self._granted = {each: epoch for each, epoch in self._granted.items() if each != role}
        self._election.leave(role, self)

    def grants(self) -> Mapping[str, int | None]:
        return self._granted

    def confirm_leadership(self, role: str, epoch: int) -> None:
        pass

    def close(self) -> None:
        pass

    def hear(self) -> None:
        """What it is given, as it is now."""
        if not self.deaf and self._granted != (granted := self._election.grants(self)):
            self._granted = granted

    def expire(self) -> None:
        """Its session ends, and it does not know."""
        self.deaf = True
        self._election.expire(self)

    def notice(self) -> None:
        """It hears that its session has ended, and stands anew for all that it wants."""
        if self.deaf:
            self.deaf = False
            self._granted = {}
            for role in self._wishes:
                self._election.stand(role, self)
            self.hear()

    def lose(self, role: str) -> None:
        """Somebody has removed its node; it makes another."""
        if not self.deaf and role in self._wishes:
            self._election.leave(role, self)
            self._election.stand(role, self)


class SharedReplica(Replica):
    """Looks at the states as the world has folded them, up to its own position."""

    def __init__(self, world: AsyncSimulator) -> None:
        super().__init__([])
        self._world = world
        self.offset = len(world.log) - 1
        self.leadership = world.truth.leadership
        for address, state in world.truth.states.items():
            if kind_of(address) in MASTER_KINDS:
                self._note(address, state)

    def role(self, role_address: str, level: int | None = None) -> Any:
        return self._world.truth.role(role_address, level)

    def apply(self, record: Record) -> list[str]:
        self.offset = record.offset
        self.leadership = self._world.leaderships[record.offset]
        changed = [each for each in self._world.changed[record.offset] if kind_of(each[0]) in MASTER_KINDS]
        for address, state in changed:
            self._note(address, state)
        return [address for address, _ in changed]

    def _note(self, address: str, state: Any) -> None:
        self.states[address] = state
        if self.role(address).is_quiescent(state):
            self._awake.pop(address, None)
        else:
            self._awake[address] = None


class _Log:
    """The world's, as one master has it; it may die after some events of an append."""

    topic = "log"

    def __init__(self, master: Master) -> None:
        self._master = master
        self.only: int | None = None

    def append(self, events: Sequence[Event], most_bytes: int | None = None) -> list[int]:
        world = self._master.world
        first = len(world.log)
        for event in events[: self.only]:
            world.append([event], by_shell=isinstance(event.body, LeaderElected))
        if self.only is not None:
            raise _MasterDied
        return list(range(first, first + len(events)))

    def end(self) -> int:
        return len(self._master.world.log)

    def tail(
        self, start: int, *, concerns: Concerns | None = None, on_unreadable: OnUnreadable | None = None
    ) -> _Log:
        return self

    @property
    def position(self) -> int:
        return self._master.position

    def poll(self, timeout: float) -> list[Record]:
        return self._master.read(None)

    def close(self) -> None:
        pass


class _Shell:
    """Of all the roles of a master."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._master.perform(role_address, instructions)

    def retire(self, role_address: str) -> None:
        self._master.retire(role_address)

    def close(self) -> None:
        pass


@dataclass(eq=False)
class Master(SimulatedProcess):
    """A jobmanager."""

    world: StandbyWorld
    mandates: SimulatedElection = field(init=False)
    host: Host = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        world = self.world
        self.mandates = SimulatedElection(world.election, self.is_alive)
        self._log = _Log(self)
        self._replica = SharedReplica(world)
        self._began: set[str] = set()
        self._stop = threading.Event()
        self.states = self._replica.states
        self.host = Host(
            self._log,
            self._replica,
            cluster="sim",
            leads=MASTER_ROLES,
            process_address="sim",
            session=self.session,
            mandates=self.mandates,
            clock=lambda: world.now,
        )
        # It has no thread of its own: what its shells have to say waits for its turn.
        self.host.close()
        self.host._shells = dict.fromkeys(MASTER_KINDS, _Shell(self))
        self.host._position = self._replica.offset
        self.host._participant.start()

    def claims(self) -> None:
        """It is given what it stands for, not what it wants."""

    def is_busy(self) -> bool:
        return bool(
            self.position < len(self.world.log)
            or self.unsaid
            or self.host._dirty
            or self.mandates.grants() is not self.host._granted
        )

    def leads_address(self, address: str) -> bool:
        return self.host._terms.term_for(address) is not None

    def read(self, count: int | None) -> list[Record]:
        """The next events; the process ends with its cluster."""
        world = self.world
        end = len(world.log) if count is None else min(len(world.log), self.position + count)
        records = world.log[self.position : end]
        self.position = end
        if any(isinstance(each.body, ClusterTerminated) and world.admitted[each.offset] for each in records):
            self._stop.set()
        return records

    def fold(self, count: int | None = None) -> None:
        if self.is_alive():
            self.host._fold(self.read(count))
            if self._stop.is_set():
                self.end()

    def decide(self, only: int | None = None) -> None:
        if not self.is_alive():
            return
        self._log.only = only
        host = self.host
        try:
            host._participant.tick()
            host._follow_elections(self._log, self._stop)
            if self._stop.is_set():
                self.end()
            elif self._replica.offset >= host._appended_to and not self.mandates.suspended:
                host._decide()
                host._position = self.position - 1
        except _MasterDied:
            pass
        if only is not None:
            self.end()

    def end(self) -> None:
        if self.is_alive():
            self.world.masters.remove(self)

    def say(self, address: str, owed: OutgoingEvent) -> None:
        self.world.append(self.host.with_headers(address, [owed]), by_shell=True)

    def mean_to_say(self, address: str, owed: OutgoingEvent) -> None:
        self.unsaid += self.host.with_headers(address, [owed])

    def perform(self, address: str, instructions: Sequence[Instruction]) -> None:
        """What the real shells do; in each term for the first time."""
        if address == "resource_manager" and address not in self._began:
            self._began.add(address)
            self.look_for_survivors()
        if address == "dispatcher" and address not in self._began:
            if self.states[address].configuration == self.world.configuration:
                self._began.add(address)
            elif "configuration" not in self._began:
                self._began.add("configuration")
                body = ConfigurationChanged(configuration=self.world.configuration)
                self.mean_to_say(address, OutgoingEvent(EVERYONE, body, None))
        for instruction in instructions:
            if (address, instruction.key) not in self.begun:
                self.begun.add((address, instruction.key))
                self._perform(address, instruction)

    def retire(self, address: str) -> None:
        """Begins afresh if it is led again."""
        self.begun = {each for each in self.begun if each[0] != address}
        self._began.discard(address)
        if address == "dispatcher":
            self._began.discard("configuration")


class StandbyWorld(AsyncSimulator):
    """Of several masters, any number of which stand by."""

    def __init__(
        self, configuration: dict[str, str] | None = None, draw: random.Random | None = None
    ) -> None:
        super().__init__(configuration, draw)
        self.election = Election()
        self.masters: list[Master] = []

    def processes(self) -> list[SimulatedProcess]:
        return [*self.masters, *super().processes()]

    def leader(self, role: str) -> SimulatedProcess | None:
        leader = self.truth.leadership.leader(role)
        return next((each for each in self.masters if leader and each.session == leader.session), None)

    def is_alive(self, process: SimulatedProcess) -> bool:
        return process in self.masters or super().is_alive(process)

    def start_master(self) -> None:
        """One more."""
        self.masters.append(Master(self, MASTER_ROLES))

    def kill_master(self) -> None:
        """SIGKILL of the one that leads the Dispatcher, or another; its session goes on for a while."""
        if self.masters:
            (self.master or self.masters[0]).end()

    def settle(self, limit: int = 2_000) -> None:
        """Time passes only for jobs that wait for the moment in which somebody stands for them."""
        super().settle(limit)
        while dues := [due for master in self.masters for due in self._unled(master)]:
            self.now = max(self.now, min(dues))
            super().settle(limit)

    def _unled(self, master: Master) -> list[int]:
        dues = [
            master.host._participant._soon.get(each)
            for each in self.truth.active_addresses
            if not any(one.leads_address(each) for one in self.masters)
        ]
        return [due for due in dues if due is not None]

    def heal(self) -> None:
        """It is known to everybody who should lead."""
        super().heal()
        self.election.heal()
        for master in self.masters:
            master.mandates.suspended = False
            master.mandates.notice()
            master.mandates.hear()
