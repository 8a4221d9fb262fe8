"""Processes of two releases in any order: a feature level that the older one does not know is raised late enough.

A level is refused while a live master or a registered TaskExecutor does not know it. A process of the older release
that starts later stops at it. The roles follow the rules of the level at which they decide, and no task restarts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.schemas import client, dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE
from tailrace.schemas.everyone import FeatureLevelRaised, TaskExecutorLost
from tailrace.services.core import leadership
from tailrace.services.core.feature_level import FEATURE_LEVEL, UnknownFeatureLevel
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Instruction, OutgoingEvent
from tailrace.services.dispatcher.role import RaiseFeatureLevel
from tailrace.services.processes.feature_level_check import find_refusal

from ..submitted_tasks import submitted_tasks
from .async_simulator import MASTER_ROLES, SimulatedProcess
from .next_level import GREETING, NEXT, roles_at
from .simulated_cluster.cluster import graph
from .simulated_cluster.masters import Master, StandbyWorld

B = TypeVar("B", bound=Body)
RESOURCE_IDS = ("te-1", "te-2")
SLOTS = 4
CONFIGURATION = {"taskmanager.restart-grace": "1 h"}


@dataclass(eq=False)
class UpgradedMaster(Master):
    """A master that answers requests for a feature level as the Dispatcher's shell does."""

    world: UpgradedWorld

    def _perform(self, address: str, instruction: Instruction) -> None:
        if not isinstance(instruction, RaiseFeatureLevel):
            super()._perform(address, instruction)
            return
        level, cause = instruction.level, instruction.cause
        reason = (
            "the leader does not know it"
            if level > self.known_level
            else self.world.refusal(self, level, cause)
        )
        if reason is None:
            self.emit(address, OutgoingEvent(EVERYONE, FeatureLevelRaised(level=level), cause))
        else:
            refused = client.FeatureLevelRejected(level=level, reason=reason)
            self.emit(address, OutgoingEvent(instruction.requester, refused, cause))


class UpgradedWorld(StandbyWorld):
    """Masters and TaskExecutors, of which each knows FEATURE_LEVEL or NEXT."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(CONFIGURATION, draw)
        self.truth = Replica(roles_at, on_illegal=lambda error, _: self.illegal.append(str(error)))
        self.started_at: dict[SimulatedProcess, int] = {}
        """The end of the log when the process started."""
        self.refusals = 0
        self.passed: dict[int, tuple[int, int]] = {}
        """By the request that was not refused: the position of the leader then, and the end of the log."""

    def start_master(self) -> None:
        start = len(self.log)
        master = UpgradedMaster(self, MASTER_ROLES)
        self.masters.append(master)
        self.started_at[master] = start

    def restart_worker(self, resource_id: str) -> None:
        """SIGKILL, and a new process under the same resource id."""
        if resource_id in self.workers:
            self.kill_worker(resource_id)
        start = len(self.log)
        self.start_worker(resource_id, SLOTS)
        self.started_at[self.workers[resource_id]] = start

    def refusal(self, leader: UpgradedMaster, level: int, request: int) -> str | None:
        """Returns why a leader refuses the level that a request names."""
        processes = {master.candidate: master for master in self.started_at if isinstance(master, Master)}
        candidates = [processes[candidate] for candidate in self.election.candidates()]
        known = {master.session: master.known_level for master in candidates}
        workers = leader.states["resource_manager"]
        reason = find_refusal(level, self.leaderships[leader.position - 1], workers, known)
        if reason is None:
            self.passed.setdefault(request, (leader.position, len(self.log)))
        self.refusals += reason is not None
        return reason


@dataclass
class Upgrade:
    """A run of random steps."""

    draw: random.Random
    world: UpgradedWorld = field(init=False)
    old_share: float = field(init=False)
    """The probability that a process that is started is of the older release."""

    def __post_init__(self) -> None:
        world = self.world = UpgradedWorld(self.draw)
        world.known_level = self.draw.choice((FEATURE_LEVEL, NEXT))
        self.old_share = self.draw.choice((0.05, 0.3, 0.6))
        for _ in range(self.draw.randint(1, 3)):
            world.start_master()
        for resource_id in RESOURCE_IDS:
            world.restart_worker(resource_id)
        world.settle()

    def run(self) -> None:
        """Takes the steps, then replaces what is old, and raises the level."""
        for _ in range(self.draw.choice((5, 20, 60))):
            self.draw.choice((self.move, self.move, self.restart, self.restart, self.submit, self.request))()
            self.check()
        world = self.world
        world.known_level = NEXT
        for master in [master for master in world.masters if master.known_level < NEXT]:
            self.replace_master(master)
        if not world.masters:
            world.start_master()
        for resource_id in RESOURCE_IDS:
            process = world.workers.get(resource_id)
            if process is None or process.known_level < NEXT:
                world.restart_worker(resource_id)
        world.settle()
        self.request()
        world.settle()
        self.submit(SLOTS + 1)
        world.settle()
        self.check()
        assert world.truth.leadership.feature_level == NEXT
        assert world.truth.states["dispatcher"].raising is None
        assert self.events_of(client.JobAccepted)[-1].name.startswith(GREETING)
        assert not world.illegal

    def move(self) -> None:
        """Some processes do some of what is due."""
        for process in self.world.processes():
            match self.draw.randrange(4):
                case 0:
                    process.fold(self.draw.randint(1, 5))
                case 1:
                    process.fold()
                    process.decide()
                case 2:
                    process.append_pending(self.draw.randint(0, 2))
                case _:
                    process.receive_barriers()

    def submit(self, most: int = SLOTS) -> None:
        """Submits a job, if there are not so many yet."""
        jobs = len(self.events_of(dispatcher.SubmitJob))
        if jobs < most:
            self.world.request(dispatcher.SubmitJob(job_id=f"j{jobs}", job_graph=graph(1)))

    def request(self) -> None:
        """Requests the level."""
        self.world.request(dispatcher.RaiseFeatureLevel(level=NEXT))

    def restart(self) -> None:
        """Replaces a process by one of any release; one of the older release does not start at the new level."""
        world = self.world
        world.known_level = FEATURE_LEVEL if self.draw.random() < self.old_share else NEXT
        too_old = world.known_level < world.truth.leadership.feature_level
        try:
            if self.draw.random() < 0.5:
                world.restart_worker(self.draw.choice(RESOURCE_IDS))
            elif world.masters:
                self.replace_master(self.draw.choice(world.masters))
            else:
                world.start_master()
        except UnknownFeatureLevel:
            assert too_old
        else:
            assert not too_old

    def replace_master(self, master: Master) -> None:
        """Ends a master in order, or by SIGKILL, and starts another one."""
        if self.draw.random() < 0.7:
            master.candidate.close()
        master.end()
        self.world.start_master()
        self.world.election.heal()

    def check(self) -> None:
        """Checks the laws for all that has happened."""
        world = self.world
        raised = next(
            (at for at, known in enumerate(world.leaderships) if known.feature_level == NEXT), len(world.log)
        )
        for record in world.log:
            if isinstance(record.body, client.JobAccepted) and world.admitted[record.offset]:
                is_greeted = record.body.name.startswith(GREETING)
                assert is_greeted == ((record.header.decided_at or 0) >= raised)
        for process in world.outdated:
            position, end = world.passed[world.log[raised].header.cause or 0]
            assert world.started_at[process] >= (position if process.slots else end)
        assert {
            attempt.attempt_number for attempt in submitted_tasks(record.body for record in world.log)
        } <= {0}
        assert not self.events_of(TaskExecutorLost)

    def events_of(self, kind: type[B]) -> list[B]:
        return [record.body for record in self.world.log if isinstance(record.body, kind)]


@settings(max_examples=example_count(100))
@given(st.integers(0, 2**32))
def test_level_is_raised_only_when_all_processes_know_it_and_no_task_restarts(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # The log is read by a release that knows NEXT, and processes stop as `known_level` of their world says.
        patch.setattr(leadership, "FEATURE_LEVEL", NEXT)
        Upgrade(random.Random(seed)).run()
