"""The cost of `decide`, `deadline` and `instructions` when no event is required, by the size of the states.

A cluster of 1,000, 10,000 and 100,000 registered slots, a quarter of them (at most 20,000) used by the running tasks of
one job: folded in memory by the real roles. Measured is the work of a host for an address that has changed: one each of
Dispatcher, ResourceManager and JobMaster, and a TaskExecutor with 100 slots. The cost has to be constant.
"""

from __future__ import annotations

import itertools
import timeit
from collections.abc import Sequence

from _report import conditions, report
from _scale import scaled
from _simulated import HARDWARE, SLOTS, all_to_all

from tailrace.schemas import dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    OutgoingEvent,
    Shell,
    address,
    kind_of,
    with_headers,
)
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.checkpoints.shell import CheckpointShell
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.simulation.fake_effects import NoOpTaskExecutorEffects, NoTopicJobMasterEffects
from tailrace.services.simulation.task_events import register_event
from tailrace.services.task_executor import TaskExecutor

SIZES = {"1k": scaled(1_000, least=500), "10k": scaled(10_000, least=500), "100k": scaled(100_000, least=500)}
LARGEST_JOB = scaled(20_000)
REPEAT, NUMBER = 7, 200
NOW = 1_700_000_000_000_000
JOB = address(JOB_MASTER, "job")


class InMemory:
    """A cluster in one thread: required events are folded at once; changed addresses decide next."""

    def __init__(self) -> None:
        self.replica = Replica([Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()])
        self._dirty: dict[str, None] = {}
        self._offset = -1
        self._shells: dict[str, Shell] = {
            JOB_MASTER: NoTopicJobMasterEffects(self.send, files=CheckpointShell(self.send)),
            TASK_EXECUTOR: NoOpTaskExecutorEffects(self.send),
        }

    def lead(self, role: str) -> None:
        """Appends the claim of a leader of the role."""
        body = LeaderElected(role=role, epoch=1, address="bench", session="bench")
        self._append(
            with_headers(
                [OutgoingEvent("*", body, None)],
                cluster="c",
                sender=role,
                epoch=1,
                decided_at=self._offset,
                now=NOW,
                numbers=itertools.count(),
            )
        )

    def send(self, sender: str, owed: OutgoingEvent) -> None:
        """Appends an event of a role or, without an epoch, of a client."""
        epoch = self.replica.leadership.epoch(sender)
        decided_at = self._offset
        self._append(
            with_headers(
                [owed],
                cluster="c",
                sender=sender,
                epoch=epoch,
                decided_at=decided_at,
                now=NOW,
                numbers=itertools.count(),
            )
        )

    def settle(self) -> None:
        """Runs until no role requires an event."""
        while self._dirty:
            item = next(iter(self._dirty))
            del self._dirty[item]
            role, state = self.replica.role(item), self.replica.states[item]
            for owed in role.decide(state, NOW):
                self.send(item, owed)
            shell = self._shells.get(kind_of(item))
            if shell is not None:
                state = self.replica.states[item]
                shell.perform(item, role.instructions(state), state)

    def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._offset += 1
            for item in self.replica.apply(Record(self._offset, event.header, event.body)):
                self._dirty[item] = None


def idle(slots: int) -> tuple[Replica, int]:
    """Returns an idle cluster, and its number of running tasks."""
    cluster = InMemory()
    for role in (DISPATCHER, RESOURCE_MANAGER):
        cluster.lead(role)
    for number in range(slots // SLOTS):
        worker = address(TASK_EXECUTOR, f"te-{number:04}")
        cluster.lead(worker)
        cluster.send(worker, register_event(f"te-{number:04}", SLOTS, hardware=HARDWARE))
    cluster.settle()
    graph = all_to_all(min(slots // 4, LARGEST_JOB) // 2, shared=False)
    body = dispatcher.SubmitJob(job_id="job", job_graph=graph, entry_point=None, parallelism=None)
    cluster.send("client/bench", OutgoingEvent(DISPATCHER, body, None))
    cluster.settle()
    return cluster.replica, sum(vertex.parallelism for vertex in graph.vertices)


def idle_us(replica: Replica, role_address: str) -> float:
    """Returns the microseconds of a host's calls of a role; the least of several runs, because noise only adds time."""
    role, state = replica.role(role_address), replica.states[role_address]

    def ask() -> object:
        return role.decide(state, NOW), role.deadline(state), role.instructions(state)

    owed = role.decide(state, NOW)
    if owed:
        raise RuntimeError(f"{role_address} is not idle: it owes {owed[0].body.AVRO_NAME}")
    return min(timeit.repeat(ask, number=NUMBER, repeat=REPEAT)) / NUMBER * 1e6


def main() -> None:
    figures: dict[str, float] = {}
    tasks = {}
    for name, slots in SIZES.items():
        replica, tasks[f"tasks_{name}"] = idle(slots)
        row = {
            kind_of(role_address): idle_us(replica, role_address)
            for role_address in (DISPATCHER, RESOURCE_MANAGER, JOB, address(TASK_EXECUTOR, "te-0000"))
        }
        figures[f"us_{name}"] = sum(row.values())
        figures |= {f"{kind}_us_{name}": value for kind, value in row.items()}
    figures = dict(sorted(figures.items(), key=lambda pair: not pair[0].startswith("us_")))
    figures["ratio_100k_1k"] = figures["us_100k"] / figures["us_1k"]
    notes = {f"us_{name}": f"{slots:,} slots: all four roles" for name, slots in SIZES.items()}
    notes["ratio_100k_1k"] = "aim: flat"
    report("decide_idle", figures, conditions(**tasks, repeat=REPEAT), notes)


if __name__ == "__main__":
    main()
