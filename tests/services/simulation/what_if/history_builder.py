"""Builds histories for what-ifs: a simulated cluster with events by hand or by a seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.schemas import dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event, Record
from tailrace.schemas.job_master import StartJob
from tailrace.schemas.types import ExecutionState, Header, JobGraph, Origin
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import Time
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES
from tailrace.services.simulation.cluster import SimulatedCluster
from tailrace.services.simulation.latencies import Latencies, Work
from tailrace.services.simulation.master_effects import FindRecordedEffect
from tailrace.services.simulation.task_behavior import (
    CheckpointContribution,
    Subtask,
    TaskBehavior,
    TaskEnd,
    TaskStart,
    UniformTaskBehavior,
)
from tailrace.services.task_executor.instructions import TriggerTasks
from tailrace.services.task_executor.resources import Task

from ...simulated_cluster.cluster import SECOND, graph, new_replica
from ...simulated_cluster.jobs import any_job, with_options

BEGIN = 1_000 * SECOND
RECORDED_S = 300


class RandomTaskBehavior:
    """Tasks that take time, fail sometimes, and finish; deterministic per seed."""

    def __init__(
        self, seed: int, *, failures: float = 0.3, mean_s: float = 20.0, trouble: float = 0.0
    ) -> None:
        """`trouble`: how often tasks decline or ignore checkpoints, and failures lose their progress."""
        self._seed = seed
        self._failures = failures
        self._mean_s = mean_s
        self._trouble = trouble

    def start(self, task: Task, now: Time) -> TaskStart:
        draw = random.Random(f"{self._seed}/start/{task.execution_attempt_id}")
        return TaskStart(int(draw.uniform(0.1, 0.6) * SECOND))

    def stop(self, task: Task, now: Time) -> TaskEnd:
        # No two at the same moment: which of them is heard first would be anybody's guess.
        draw = random.Random(f"{self._seed}/stop/{task.execution_attempt_id}")
        return TaskEnd(int(draw.uniform(0.02, 0.08) * SECOND), ExecutionState.CANCELED)

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        draw = random.Random(f"{self._seed}/end/{subtask}/{ended}")
        after = int(draw.expovariate(1 / self._mean_s) * SECOND)
        if ended < 2 and draw.random() < self._failures:
            if draw.random() < self._trouble:
                return TaskEnd(after, ExecutionState.FAILED, "its changelog is gone", is_progress_lost=True)
            return TaskEnd(after, ExecutionState.FAILED, "it broke")
        return TaskEnd(after)

    def contribution(self, task: Task, told: TriggerTasks, now: Time) -> CheckpointContribution:
        what = task.execution_attempt_id, told.checkpoint_id
        draw = random.Random(f"{self._seed}/part/{what}")
        after, kind = int(draw.uniform(0.01, 0.05) * SECOND), draw.random()
        if kind < self._trouble:
            return CheckpointContribution(after, "it can't be written")
        return CheckpointContribution(after if kind < 1 - self._trouble / 3 else 10_000 * SECOND)


class VaryingLatencies(Latencies):
    """Workers with different latencies."""

    def take(self, work: Work, *what: object) -> Time:
        factor = 1.0
        if work in (Work.START_WORKER, Work.BOOT, Work.REGISTER):
            factor = random.Random(f"{work}/{what}").uniform(0.3, 3)
        return int(super().take(work, *what) * factor)


class HistoryBuilder:
    """A cluster in a Simulator; tests schedule events with `schedule_at`."""

    def __init__(
        self,
        configuration: Mapping[str, str] | None = None,
        life: TaskBehavior | None = None,
        seed: int = 0,
        told: FindRecordedEffect = lambda *_: None,
        latencies: Latencies | None = None,
    ) -> None:
        """`told`: the answers of masters' shells that differ from the usual ones."""
        latencies = latencies or Latencies(seed)
        cluster = SimulatedCluster(
            new_replica(on_illegal=lambda *_: None),
            cluster="studio",
            now=BEGIN,
            behavior=life or UniformTaskBehavior(latencies),
            latencies=latencies,
            find_recorded=told,
        )
        self.replica, self.world, self.storage = cluster.replica, cluster.simulator, cluster.storage
        self.attempts, self.workers, self.masters = cluster.tasks, cluster.task_executors, cluster.masters
        self._sessions = self._requests = 0
        self.configuration = {**DIRECTORIES, **(configuration or {})}
        self.start_master()

    def start_master(self) -> None:
        """Starts a jobmanager, which takes the leadership."""
        self._sessions += 1
        session = f"master-{self._sessions}"
        for role in ("dispatcher", "resource_manager"):
            self.world.elect_leader(role, session, "sim")
        if self._sessions == 1:
            self.masters.configure(self.configuration)

    def start_workers(self, *resource_ids: str, slots: int = 2) -> None:
        for id_ in resource_ids:
            self.workers.start(id_, slots, delay=10_000)

    def request(self, body: Body) -> None:
        """Appends a client's request."""
        self._requests += 1
        header = Header(
            event_id=f"request-{self._requests}",
            time=self.world.now,
            sender="client/test",
            sender_epoch=0,
            recipient="dispatcher",
            origin=Origin(topic="studio.submissions", partition=0, offset=self._requests - 1),
        )
        self.world.inject(Event(header, body))

    def submit(self, job_id: str, job_graph: JobGraph | int = 1) -> None:
        result = graph(job_graph) if isinstance(job_graph, int) else job_graph
        self.request(dispatcher.SubmitJob(job_id=job_id, job_graph=result))

    def schedule_at(self, seconds: float, what: object, *arguments: object, **named: object) -> None:
        """Schedules an action so many seconds after the beginning."""
        self.world.schedule_at(BEGIN + int(seconds * SECOND), functools.partial(what, *arguments, **named))  # type: ignore[arg-type]

    def run(self, seconds: float) -> MemoryHistory:
        """Returns the history up to that many seconds after the beginning; its position is the end."""
        self.world.run(BEGIN + int(seconds * SECOND))
        return MemoryHistory(tuple(self.world.log))


class MemoryHistory:
    """A History over a list of events, seen at `offset`."""

    cluster = "studio"

    def __init__(self, records: Sequence[Record], offset: int | None = None) -> None:
        self.records = tuple(records)
        self.offset = len(self.records) - 1 if offset is None else offset

    def at(self, offset: int) -> MemoryHistory:
        return MemoryHistory(self.records, offset)

    def replica(self) -> Replica:
        replica = new_replica(on_illegal=lambda *_: None)
        for record in self.records[: self.offset + 1]:
            replica.apply(record)
        return replica

    def before(self) -> Iterable[Sequence[Record]]:
        return [self.records[: self.offset + 1]]

    def after(self) -> Iterable[Sequence[Record]]:
        return [self.records[self.offset + 1 :]]

    def start_of(self, job_id: str) -> StartJob | None:
        for record in self.records:
            if isinstance(record.body, StartJob) and record.body.job_id == job_id:
                return record.body
        return None


@dataclass(frozen=True)
class Plan:
    """A cluster, and the events that it will get."""

    studio: HistoryBuilder
    draw: random.Random
    workers: list[str]
    jobs: list[str]


def any_history(seed: int) -> MemoryHistory:
    """Draws a cluster with random events: jobs are submitted and cancelled, tasks fail, TaskExecutors die, return
    and leave, masters change."""
    return any_plan(seed).studio.run(RECORDED_S)


def any_plan(seed: int, *, trouble: float = 0.0, told: FindRecordedEffect = lambda *_: None) -> Plan:
    """Draws the plan of `any_history`; `trouble` as in RandomTaskBehavior, `told` as in HistoryBuilder."""
    draw, interval = random.Random(seed), "execution.checkpointing.interval"
    configuration = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "5"}
    if active := draw.random() < 0.3:
        configuration |= {"resourcemanager.mode": "active", "slotmanager.number-of-slots.max": "6"}
    if draw.random() < 0.5:
        configuration["cluster.evenly-spread-out-slots"] = "true"
    if draw.random() < 0.4:
        configuration["taskmanager.restart-grace"] = "5 s"
    if draw.random() < 0.5:
        configuration["heartbeat.timeout"] = "20 s"
        configuration["heartbeat.interval"] = "5 s"
    if draw.random() < 0.4:
        configuration[interval] = draw.choice(("5 s", "20 s"))
    life = RandomTaskBehavior(seed, failures=draw.choice((0.0, 0.2, 0.5)), trouble=trouble)
    studio = HistoryBuilder(configuration, life, seed, told, VaryingLatencies(seed))
    names = [] if active else [f"te-{number}" for number in range(draw.randint(1, 4))]
    studio.start_workers(*names, slots=draw.randint(1, 3))
    jobs = [f"j{number}" for number in range(draw.randint(1, 5))]
    for job in jobs:
        made = any_job(draw)
        if made.configuration.get(interval) in ("100 ms", "1 s"):
            # There would be nothing but checkpoints.
            made = with_options(made, {interval: "10 s"})
        studio.schedule_at(draw.uniform(1, 60), studio.submit, job, made)
    if draw.random() < 0.5:
        studio.schedule_at(
            draw.uniform(5, 90), studio.request, dispatcher.CancelJob(job_id=draw.choice(jobs))
        )
    for name in names:
        fate = draw.choice(("lives", "lives", "dies", "dies silently", "returns", "leaves"))
        time = draw.uniform(5, 90)
        match fate:
            case "dies" | "dies silently":
                studio.schedule_at(time, studio.workers.kill, name, "killed", seen=fate == "dies")
            case "returns":
                studio.schedule_at(time, studio.workers.kill, name, "killed", seen=True)
                studio.schedule_at(time + draw.uniform(1, 10), studio.start_workers, name)
            case "leaves":
                studio.schedule_at(time, studio.workers.leave, name, "asked to stop")
            case _:
                pass
    if draw.random() < 0.3:
        studio.schedule_at(draw.uniform(10, 90), studio.start_master)
    return Plan(studio, draw, names, jobs)


def write(history: MemoryHistory, path: Path) -> Path:
    """Writes the file that `tailrace log export` writes."""
    log = MemoryEventLog(Codec("studio.log"), topic="studio.log")
    log.append([Event(record.header, record.body) for record in history.records])
    export(log, history.cluster, EventSelection(0, log.end()), path, ArchiveFormat.AVRO)
    return path
