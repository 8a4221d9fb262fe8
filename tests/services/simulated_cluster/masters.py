"""Standby masters in a simulated world, and an election with faults.

An election grants leadership to the first candidate that joined. Its faults: a master does not detect the end of its
session, so it keeps a grant while another one has it; one is granted leadership out of its turn; the election is
suspended for a while; a node is lost; the end of a dead master's session is detected late.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tailrace.schemas.event import EVERYONE
from tailrace.schemas.everyone import ConfigurationChanged
from tailrace.services.core.role import Instruction, OutgoingEvent
from tailrace.services.election.leader_election import Grant

from ..async_simulator import MASTER_ROLES, AsyncSimulator, SimulatedProcess


class Election:
    """The candidates in order: the first one leads."""

    def __init__(self) -> None:
        self._clock = 100
        self._nodes: list[tuple[int, SimulatedElection]] = []
        self._out_of_turn: dict[SimulatedElection, int] = {}

    def add(self, candidate: SimulatedElection) -> None:
        """The candidate joins the election, behind the others."""
        self._nodes.append((self._tick(), candidate))
        self._notify()

    def remove(self, candidate: SimulatedElection) -> None:
        """The candidate leaves the election, and loses its grant."""
        self._out_of_turn.pop(candidate, None)
        self.expire(candidate)

    def expire(self, candidate: SimulatedElection) -> None:
        """The session of the candidate has ended: it leaves the election."""
        self._nodes = [node for node in self._nodes if node[1] is not candidate]
        self._notify()

    def grant_wrongly(self, candidate: SimulatedElection) -> None:
        """Grants leadership to a candidate that is not the first."""
        self._out_of_turn[candidate] = self._tick()
        self._notify()

    def candidates(self) -> list[SimulatedElection]:
        """Returns the candidates, the leader first; dead ones until their sessions end."""
        return [candidate for _, candidate in self._nodes]

    def heal(self) -> None:
        """Removes dead candidates and wrong grants."""
        self._out_of_turn.clear()
        self._nodes = [node for node in self._nodes if node[1].alive()]
        self._notify()

    def grant(self, candidate: SimulatedElection) -> Grant | None:
        """Returns the grant of the candidate."""
        if candidate in self._out_of_turn:
            return Grant(self._out_of_turn[candidate])
        if self._nodes and self._nodes[0][1] is candidate:
            return Grant(self._nodes[0][0])
        return None

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _notify(self) -> None:
        for candidate in dict.fromkeys([*(election for _, election in self._nodes), *self._out_of_turn]):
            candidate.refresh()


class SimulatedElection:
    """The LeaderElection of one master. While `is_partitioned` its grant does not change."""

    def __init__(self, election: Election, alive: Callable[[], bool]) -> None:
        self._election = election
        self.alive = alive
        self.elected_by = "a test"
        self.is_suspended = False
        self.is_partitioned = False
        self.is_withdrawn = False
        self.grant: Grant | None = None

    def join(self) -> None:
        self._election.add(self)

    def rejoin(self) -> None:
        self.grant = None
        self._election.remove(self)
        if not self.is_partitioned and not self.is_withdrawn:
            self._election.add(self)

    def withdraw(self) -> None:
        """Kafka delivers nothing to its process: another master must be able to lead."""
        self.is_withdrawn = True
        self.rejoin()

    def restore(self) -> None:
        """Kafka answers its process again."""
        if self.is_withdrawn:
            self.is_withdrawn = False
            self.rejoin()

    def confirm_leadership(self, epoch: int) -> None:
        pass

    def close(self) -> None:
        self.grant = None
        self._election.remove(self)

    def refresh(self) -> None:
        """Takes the current grant."""
        if not self.is_partitioned:
            self.grant = self._election.grant(self)

    def expire(self) -> None:
        """Its session ends, and it does not detect that."""
        self.is_partitioned = True
        self._election.expire(self)

    def reconnect(self) -> None:
        """It detects the end of its session, and joins the election again."""
        if self.is_partitioned:
            self.is_partitioned = False
            self.rejoin()

    def recreate_node(self) -> None:
        """Its node was deleted: it creates another one."""
        if not self.is_partitioned and not self.is_withdrawn:
            self._election.remove(self)
            self._election.add(self)


@dataclass(eq=False)
class Master(SimulatedProcess):
    """A jobmanager that leads while it has a grant."""

    world: StandbyWorld
    candidate: SimulatedElection = field(init=False)
    terms: frozenset[str] = frozenset()
    """The addresses for which its shells have started a term."""

    def __post_init__(self) -> None:
        self.election = self.candidate = SimulatedElection(self.world.election, self.is_alive)
        super().__post_init__()

    def end(self) -> None:
        if self.is_alive():
            self.world.masters.remove(self)

    def perform(self, address: str, instructions: Sequence[Instruction]) -> None:
        """In a new term the shells look for workers and announce the configuration, as real ones do."""
        is_new_term, self.terms = address not in self.terms, self.terms | {address}
        if is_new_term and address == "resource_manager":
            self.look_for_survivors()
        configuration = self.world.configuration
        if is_new_term and address == "dispatcher" and self.states[address].configuration != configuration:
            body = ConfigurationChanged(configuration=configuration)
            self.emit(address, OutgoingEvent(EVERYONE, body, None))
        super().perform(address, instructions)

    def retire(self, address: str) -> None:
        super().retire(address)
        self.terms -= {address}


class StandbyWorld(AsyncSimulator):
    """A world with several masters, of which any number stands by."""

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
        return next((master for master in self.masters if leader and master.session == leader.session), None)

    def is_alive(self, process: SimulatedProcess) -> bool:
        return process in self.masters or super().is_alive(process)

    def start_master(self) -> None:
        """Starts one more."""
        self.masters.append(Master(self, MASTER_ROLES))

    def kill_master(self) -> None:
        """SIGKILL of the one that leads the Dispatcher, or of another; its session expires later."""
        if self.masters:
            (self.master or self.masters[0]).end()

    def heal(self) -> None:
        """All masters know the current grant."""
        super().heal()
        self.election.heal()
        for master in self.masters:
            master.candidate.is_suspended = False
            master.candidate.reconnect()
            master.candidate.restore()
            master.candidate.refresh()
