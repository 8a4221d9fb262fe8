"""Masters that stand by: the real Host, one turn at a time, in a simulated world, and an election that can go wrong.

An election gives a mandate to whoever stands first for a role. What can go wrong: a master does not hear that its
session has ended, and so keeps mandates that others have been given by then; one is given a mandate out of its turn;
it is not known for a while who should lead; a node is lost; nobody notices for a while that a master has died.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.schemas.event import EVERYONE
from tailrace.schemas.everyone import ConfigurationChanged
from tailrace.services.core.role import Instruction, OutgoingEvent

from ..async_simulator import MASTER_ROLES, AsyncSimulator, SimulatedProcess


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


@dataclass(eq=False)
class Master(SimulatedProcess):
    """A jobmanager that stands by, and leads what it is given."""

    world: StandbyWorld
    mandates: SimulatedElection = field(init=False)

    def __post_init__(self) -> None:
        self.election = self.mandates = SimulatedElection(self.world.election, self.is_alive)
        super().__post_init__()

    def end(self) -> None:
        if self.is_alive():
            self.world.masters.remove(self)

    def perform(self, address: str, instructions: Sequence[Instruction]) -> None:
        """As the real shells: they find out in each term what has become of workers and of the configuration."""
        if address == "resource_manager" and (address, "") not in self.begun:
            self.begun.add((address, ""))
            self.look_for_survivors()
        if address == "dispatcher" and (address, "") not in self.begun:
            self.begun.add((address, ""))
            if self.states[address].configuration != self.world.configuration:
                body = ConfigurationChanged(configuration=self.world.configuration)
                self.mean_to_say(address, OutgoingEvent(EVERYONE, body, None))
        super().perform(address, instructions)


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
            master.core.next_join(each)
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
