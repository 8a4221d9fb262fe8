"""Masters fail over at random times, and nothing else fails: no request is lost, and no task is restarted."""

from __future__ import annotations

import random

import pytest

from tailrace.schemas import client, dispatcher
from tailrace.schemas.everyone import LeaderElected, TaskExecutorLost
from tailrace.schemas.types import JobGraph, JobStatus
from tailrace.services.core.role import kind_of

from ..submitted_tasks import submitted_tasks
from .simulated_cluster.chaos import ALWAYS, Chaos
from .simulated_cluster.cluster import SECOND, graph
from .simulated_cluster.jobs import (
    co_located,
    in_a_line,
    in_groups,
    in_single_slots,
    shared_slots,
    with_options,
)
from .simulated_cluster.master_chaos import MASTER_FAULT_ACTIONS
from .simulated_cluster.masters import StandbyWorld

WORKERS, SLOTS = 3, 40
MOST_JOBS = 6


def job_that_runs(draw: random.Random) -> JobGraph:
    """Starts a job for which there are enough slots."""
    shape = draw.choice((graph, shared_slots, in_groups, in_single_slots, co_located, in_a_line))
    job = shape(draw.randint(1, 3))
    return with_options(job, {"execution.checkpointing.interval": "1 s"}) if draw.random() < 0.5 else job


class OnlyMasters(Chaos):
    """Chaos with faults of elections only."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw, stands_by=True)
        self.world.task_failures = self.world.driver_failures = 0.0
        self.no_more_trouble()
        self.steps = draw.choice((40, 120))
        weights = {
            **ALWAYS,
            **MASTER_FAULT_ACTIONS,
            "start_master": 1.0,
            "kill_master": 1.0,
            "master_dies_between": 2.0,
            "stall_master": 2.0,
            "go_on": 3.0,
            "duplicate": 1.0,
            "ask_for_checkpoint": 1.0,
        }
        self._kinds, self._weights = list(weights), list(weights.values())

    def _configuration(self) -> dict[str, str]:
        # However long nobody leads, nobody loses patience.
        return {"slot.request.timeout": "10 h", "taskmanager.slot.timeout": "10 h"}

    def begin(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            self.world.start_master()
        for number in range(WORKERS):
            self.world.start_worker(f"te-{number}", SLOTS)
        self.submit()

    def step(self, kind: str) -> None:
        if not self._world.masters and self.draw.random() < 0.5:
            self.world.start_master()
        super().step(kind)

    def submit(self) -> None:
        if len(self.job_ids) <= MOST_JOBS:
            body = dispatcher.SubmitJob(job_id=self._new_job(), job_graph=job_that_runs(self.draw))
            self.world.request(body, admitted=self.draw.choice((1, 1, 2)))

    def tick(self) -> None:
        self.world.tick(self.draw.choice((0.1, 1, 5)))

    def settle(self) -> None:
        """Settles without telling the masters the current grants."""
        for _ in range(5):
            self.world.turn()

    def master_dies_between(self) -> None:
        """Kills a master after it has appended only some of its events."""
        if (master := self._master()) is not None:
            master.fold()
            master.decide(only=self.draw.randint(0, 4))

    def stall_master(self) -> None:
        if (master := self._master()) is not None:
            master.stalled = True


def run(seed: int) -> StandbyWorld:
    """Runs the steps until all faults are healed and the cluster is idle."""
    chaos = OnlyMasters(random.Random(seed))
    chaos.begin()
    for _ in range(chaos.steps):
        (kind,) = chaos.draw.choices(chaos._kinds, chaos._weights)
        chaos.step(kind)
    world = chaos._world
    if not world.masters:
        world.start_master()
    world.settle()
    for _ in range(3):
        world.tick(10)
        world.settle()
    chaos.invariants.always()
    chaos.invariants.settled()
    return world


@pytest.mark.parametrize("seed", range(25))
def test_failover_loses_no_request_and_restarts_no_task(seed: int) -> None:
    world = run(seed)
    records = [record for record in world.log if world.admitted[record.offset]]
    asked = {record.body.job_id for record in records if isinstance(record.body, dispatcher.SubmitJob)}
    answered = {
        entry.body.job_id
        for entry in records
        if isinstance(entry.body, client.JobAccepted | client.JobRejected)
    }
    assert asked == answered
    submitted = submitted_tasks(item.body for item in records)
    assert {task.attempt_number for task in submitted} == {0}
    assert not [element for element in records if isinstance(element.body, TaskExecutorLost)]
    running = {attempt for process in world.workers.values() for attempt in process.running}
    for address, state in world.truth.states.items():
        if kind_of(address) == "job_master":
            assert state.status in (JobStatus.RUNNING, JobStatus.FINISHED), address
            assert state.status is not JobStatus.RUNNING or set(state.current_attempts.values()) <= running


@pytest.mark.parametrize("seed", range(25, 30))
def test_every_role_has_leader_as_soon_as_grants_are_known(seed: int) -> None:
    world = run(seed)
    world.heal()
    for _ in range(3):
        world.turn()
    sessions = {master.session for master in world.masters}
    for role in ("dispatcher", "resource_manager", *world.truth.active_addresses):
        if kind_of(role) in ("dispatcher", "resource_manager", "job_master"):
            leader = world.truth.leadership.leader(role)
            assert leader is not None
            assert leader.session in sessions, role
            assert [master.session for master in world.masters if master.leads_address(role)] == [
                leader.session
            ]


def test_failover_of_dispatcher_includes_all_jobs() -> None:
    world = StandbyWorld()
    world.start_master()
    world.start_master()
    world.start_worker("te-1", 1)
    for number in range(50):
        world.request(
            dispatcher.SubmitJob(job_id=f"j{number}", job_graph=job_that_runs(random.Random(number)))
        )
    world.settle()
    before = len(world.log)
    world.now += SECOND
    world.kill_master()
    world.election.heal()
    (successor,) = world.masters
    successor.fold()
    successor.decide()
    successor.fold()
    claims = [record.body.role for record in world.log[before:] if isinstance(record.body, LeaderElected)]
    assert claims == ["dispatcher", "resource_manager"]
    assert all(successor.leads_address(f"job_master/j{number}") for number in range(50))
