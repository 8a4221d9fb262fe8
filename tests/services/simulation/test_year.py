"""A year of a cluster on a virtual clock: masters and TaskExecutors come and go, jobs run, fail, end and are cancelled,
checkpoints and savepoints are taken and deleted, snapshots are created and lost at random, the log is archived and cut.

- A standby that restarts from whatever snapshots are left has the leader's states. So has a replay of the whole log
  from the archive and the topic.
- The states of a running job and of the ResourceManager do not grow. What others keep of a job that has ended, and of a
  TaskExecutor that is gone, is small. The topic keeps some weeks.

Four months by default; `YEARS=5 pytest tests/services/simulation/test_year.py` simulates five years, with a seed each.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tailrace.infra.storage.storage import Storage
from tailrace.schemas import dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    address,
    instance_of,
    kind_of,
)
from tailrace.services.history.log_position import first_offset
from tailrace.services.history.retention.archived_log import ArchivedLog
from tailrace.services.history.retention.cut import RetentionPolicy
from tailrace.services.history.retention.log_archive import ClusterArchive
from tailrace.services.history.retention.retention import apply_retention, find_oldest_snapshot
from tailrace.services.job_master.state import StartedJob, TerminatedJob
from tailrace.services.log import Codec, EventLog
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.simulation.task_behavior import Subtask, TaskEnd
from tailrace.services.snapshots.builder import all_roles, create_snapshot
from tailrace.services.snapshots.encoding import encode
from tailrace.services.snapshots.recovery import restore_newest
from tailrace.services.snapshots.state_hash import StateHasher
from tailrace.services.snapshots.store import SnapshotStore

from ..simulated_cluster.cluster import SECOND, graph
from ..simulated_cluster.jobs import with_options
from .what_if.history_builder import BEGIN, HistoryBuilder, RandomTaskBehavior

YEARS = int(os.environ.get("YEARS", "0"))
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
MONTH_S = 30 * DAY_S
MONTHS = 12 if YEARS else 4
LASTING = "lasting"
TASK_EXECUTORS = 4
CONSTANT = (LASTING, RESOURCE_MANAGER)
"""What does not grow."""
GROWS_WITH_JOBS = {DISPATCHER: 500, TerminatedJob.__name__: 1_500}
"""The bytes for each job that was ever submitted."""
GROWS_WITH_TASK_EXECUTORS = {"leadership": 200, TASK_EXECUTOR: 4_000}
"""The bytes for each resource id that was ever used."""
BASE_BYTES = 10_000
RETENTION = RetentionPolicy(max_age=int(10 * DAY_S * SECOND))
TOPIC_S = 40 * DAY_S
"""The age of the oldest event in the topic: the retention, a segment, and the time between snapshots that are left."""


class YearBehavior(RandomTaskBehavior):
    """The tasks of the lasting job fail after some days; those of the others finish after an hour, or fail before."""

    def end(self, subtask: Subtask, ended: int) -> TaskEnd | None:
        if subtask[0] != LASTING:
            return super().end(subtask, ended)
        draw = random.Random(f"{self._seed}/end/{subtask}/{ended}")
        after = int(draw.expovariate(1 / (9 * DAY_S)) * SECOND)
        return TaskEnd(after, ExecutionState.FAILED, "it broke")


class Year:
    """A cluster, its log, its snapshots, and a standby."""

    def __init__(self, seed: int, path: Path) -> None:
        self.draw = random.Random(seed)
        self.store = SnapshotStore(Storage.open(f"file://{path}/snapshots"), "studio")
        codec = Codec("studio.log")
        self.log = MemoryEventLog(codec, topic="studio.log")
        self.archive = ClusterArchive(Storage.open(f"file://{path}/archive"), "studio")
        self.archived_log = ArchivedLog(self.log, self.archive, codec=codec)
        self.restarts = self.submitted = 0
        self.started: list[str] = []
        self.present: list[str] = []
        configuration = {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
            "execution.checkpointing.interval": "12 h",
        }
        behavior = YearBehavior(seed, failures=0.1, mean_s=HOUR_S, trouble=0.1)
        self.studio = HistoryBuilder(configuration, behavior, seed)
        for record in self.studio.world.log:
            self.log.append([Event(record.header, record.body)])
        observe = self.studio.world.on_event

        def on_event(record: Record, changed: Sequence[str]) -> None:
            self.log.append([Event(record.header, record.body)])
            observe(record, changed)

        self.studio.world.on_event = on_event
        self.standby = all_roles()

    def plan(self) -> None:
        """Schedules all that happens to the cluster."""
        studio = self.studio
        for _ in range(TASK_EXECUTORS):
            self.start_task_executor()
        studio.schedule_at(HOUR_S, studio.submit, LASTING, with_options(graph(2), {}))
        for time in self.times(DAY_S):
            studio.schedule_at(time, self.submit)
        for time in self.times(3 * DAY_S):
            studio.schedule_at(time, self.replace_task_executor)
        for time in self.times(6 * DAY_S):
            studio.schedule_at(time, self.replace_master)
        for time in self.times(2 * DAY_S):
            studio.schedule_at(time, self.take_snapshot)
        for time in self.times(3 * DAY_S):
            studio.schedule_at(time, self.archive_and_cut)
        for time in self.times(5 * DAY_S):
            studio.schedule_at(time, self.restart_standby)
        for time in self.times(2 * DAY_S):
            studio.schedule_at(time, studio.request, dispatcher.TriggerSavepoint(job_id=LASTING))

    def times(self, mean_s: float) -> Iterator[float]:
        """Yields times of a year, in seconds from its begin."""
        time = DAY_S
        while (time := time + self.draw.expovariate(1 / mean_s)) < MONTHS * MONTH_S:
            yield time

    def submit(self) -> None:
        self.submitted += 1
        job_id = f"job-{self.submitted}"
        self.studio.submit(job_id, self.draw.randint(1, 3))
        if self.draw.random() < 0.3:
            now = (self.studio.world.now - BEGIN) / SECOND
            cancel = dispatcher.CancelJob(job_id=job_id)
            self.studio.schedule_at(now + self.draw.uniform(0, HOUR_S), self.studio.request, cancel)

    def start_task_executor(self) -> None:
        self.started.append(f"te-{len(self.started)}")
        self.present.append(self.started[-1])
        self.studio.start_workers(self.started[-1], slots=3)

    def replace_task_executor(self) -> None:
        """One dies, is silent, or leaves; it comes back, or another one comes."""
        gone = self.draw.choice(self.present)
        match self.draw.choice(("dies", "is silent", "leaves", "returns")):
            case "leaves":
                self.studio.workers.leave(gone, "asked to stop")
            case "returns":
                self.studio.workers.kill(gone, "killed", seen=True)
                self.studio.start_workers(gone, slots=3)
                return
            case how:
                self.studio.workers.kill(gone, "killed", seen=how == "dies")
        self.present.remove(gone)
        self.start_task_executor()

    def replace_master(self) -> None:
        leader = self.studio.world.session(DISPATCHER)
        assert leader is not None
        if self.draw.random() < 0.5:
            self.studio.world.kill(leader)
        self.studio.start_master()

    def take_snapshot(self) -> None:
        """Creates one; some of the present ones are lost."""
        create_snapshot(self.archived_log, self.store)
        for offset in self.store.offsets():
            if self.draw.random() < 0.2:
                self.store.delete(offset)

    def archive_and_cut(self) -> None:
        """The leader applies the retention of the log."""
        now = self.studio.world.now
        oldest = find_oldest_snapshot(self.log, self.store)
        apply_retention(self.log, self.archive, oldest, RETENTION, now, self.log.truncate)

    def restart_standby(self) -> None:
        """Starts the standby again, from the newest snapshot that is left."""
        self.restarts += 1
        self.standby = all_roles()
        restore_newest(self.standby, self.archived_log, self.store)
        self.check_agreement()

    def check_agreement(self) -> None:
        """The standby reads to the end of the log, and has the leader's states."""
        follow(self.standby, self.archived_log)
        assert self.standby.offset == self.studio.replica.offset
        assert StateHasher(self.standby).hashes() == StateHasher(self.studio.replica).hashes()

    def sizes(self) -> Counter[str]:
        """Returns the bytes of the states, by kind."""
        replica = self.studio.replica
        sizes = Counter({"leadership": len(encode(replica.leadership))})
        for role_address, state in replica.states.items():
            kind = kind_of(role_address)
            if kind == JOB_MASTER:
                kind = LASTING if instance_of(role_address) == LASTING else type(state).__name__
            sizes[kind] += len(encode(state))
        return sizes


def follow(replica: Replica, log: EventLog) -> None:
    """Folds the log from where the replica is."""
    for batch in read_to_end(log, replica.offset + 1):
        for record in batch:
            replica.apply(record)


@pytest.mark.parametrize("seed", range(max(1, YEARS)))
def test_states_agree_and_stay_bounded(seed: int, tmp_path: Path) -> None:
    year = Year(seed, tmp_path)
    year.plan()
    sizes: list[Counter[str]] = []
    for month in range(1, MONTHS + 1):
        year.studio.run(month * MONTH_S)
        year.check_agreement()
        assert year.studio.world.find_owed_events() == []
        if month > 2:
            (oldest, *_) = next(iter(read_to_end(year.log, first_offset(year.log))))
            assert oldest.header.time > year.studio.world.now - TOPIC_S * SECOND
        sizes.append(year.sizes())
        for counts, number in (
            (GROWS_WITH_JOBS, year.submitted),
            (GROWS_WITH_TASK_EXECUTORS, len(year.started)),
        ):
            for kind, each in counts.items():
                assert sizes[-1][kind] < BASE_BYTES + number * each, kind
    for kind in CONSTANT:
        first, later = sizes[:2], sizes[2:]
        assert max(size[kind] for size in later) < 1.1 * max(size[kind] for size in first), kind
    assert isinstance(year.studio.replica.states[address(JOB_MASTER, LASTING)], StartedJob)
    assert year.restarts > 10
    for offset in year.store.offsets():
        year.store.delete(offset)
    year.restart_standby()
