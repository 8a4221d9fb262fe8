"""Latencies of effects: samples from a log, or defaults if the log has none.

The learner reads events in order, without states, and pairs requests with their results. The seed and the purpose
choose one of the samples, so two runs with the same seed differ only where they do different things. Samples are kept
per worker, so that a repeated effect of a worker takes as long as it took in the log.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from ...schemas import dispatcher, job_master, resource_manager, task_executor
from ...schemas.event import Record
from ...schemas.everyone import LeaderElected
from ...schemas.types import ExecutionState
from ..core.role import TASK_EXECUTOR, Time, instance_of, kind_of

_MAX_SAMPLES = 1_000
_MAX_OPEN = 100_000
MILLISECOND, SECOND = 1_000, 1_000_000


class Work(StrEnum):
    """What takes time."""

    CREATE_CHANNELS = "create channels"
    DELETE_CHANNELS = "delete channels"
    BUILD = "build a JobGraph"
    START_TASK = "start a task"
    """From SubmitTask to RUNNING."""
    STOP_TASK = "stop a task"
    """From CancelTask to its end."""
    CHECKPOINT = "acknowledge a checkpoint"
    STORE = "write or delete what storage holds of a checkpoint"
    START_WORKER = "start a worker's process"
    """From StartWorker to WorkerStarted."""
    BOOT = "bring up a worker"
    """From WorkerStarted to the process's first word."""
    REGISTER = "register a worker"
    """From that to RegisterTaskExecutor."""
    STOP_WORKER = "stop a worker"
    NOTICE_EXIT = "notice that a process has ended"


DEFAULT_LATENCIES: Mapping[Work, Time] = {
    Work.CREATE_CHANNELS: 100 * MILLISECOND,
    Work.DELETE_CHANNELS: 100 * MILLISECOND,
    Work.BUILD: 2 * SECOND,
    Work.START_TASK: 300 * MILLISECOND,
    Work.STOP_TASK: 50 * MILLISECOND,
    Work.CHECKPOINT: 50 * MILLISECOND,
    Work.STORE: 10 * MILLISECOND,
    Work.START_WORKER: 50 * MILLISECOND,
    Work.BOOT: 6 * SECOND,
    Work.REGISTER: 10 * MILLISECOND,
    Work.STOP_WORKER: 1 * SECOND,
    Work.NOTICE_EXIT: 50 * MILLISECOND,
}
"""What is taken where nothing was learnt: what it takes on a machine of two cores (docs/figures.md)."""
_WORKER_WORK = frozenset({Work.START_WORKER, Work.BOOT, Work.REGISTER})


class Latencies:
    """In microseconds. `see` learns; `take` gives. `fixed` are given whatever was learnt."""

    def __init__(self, seed: int = 0, fixed: Mapping[Work, Time] | None = None) -> None:
        self._seed = seed
        self._fixed = dict(fixed or {})
        self._samples: dict[Work, deque[Time]] = {}
        self._open: dict[tuple[Work, object], Time] = {}
        self._happens_again = False
        self._again: dict[tuple[Work, object], Time] = {}

    def take(self, work: Work, *what: object) -> Time:
        """How long it takes; the same for the same seed, samples and `what`."""
        if work in self._fixed:
            return self._fixed[work]
        if len(what) == 1 and (work, what[0]) in self._again:
            return self._again[work, what[0]]
        samples = self._samples.get(work)
        if not samples:
            return DEFAULT_LATENCIES[work]
        text = "\x1f".join(map(str, (self._seed, work, *what)))
        drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return samples[drawn % len(samples)]

    def start_learning(self) -> None:
        """What is seen next is what happens again."""
        self._happens_again = True

    def finish(self, end: Time) -> None:
        """Nothing is known of what was behind that time: what workers had not done by then, they do later."""
        for (work, key), began in self._open.items():
            if work in _WORKER_WORK:
                self._again.setdefault((work, key), max(DEFAULT_LATENCIES[work], end + 1 - began))

    def samples(self, work: Work) -> int:
        """How many were learnt from."""
        return len(self._samples.get(work, ()))

    def on_event(self, record: Record) -> None:
        """Learns from the next event, if there is anything to learn from it."""
        body, time = record.body, record.header.time
        match body:
            case job_master.UpdateTaskExecutionState(execution_attempt_id=attempt, execution_state=state):
                if state is ExecutionState.RUNNING:
                    self._on_work_ended(Work.START_TASK, attempt, time)
                elif state is ExecutionState.CANCELED:
                    self._on_work_ended(Work.STOP_TASK, attempt, time)
            case task_executor.SubmitTask(execution_attempt_id=attempt):
                self._on_work_started(Work.START_TASK, attempt, time)
            case task_executor.CancelTask(execution_attempt_id=attempt):
                self._on_work_started(Work.STOP_TASK, attempt, time)
            case task_executor.TriggerCheckpoint(job_id=job, checkpoint_id=number):
                self._on_work_started(Work.CHECKPOINT, (job, number), time)
            case job_master.AcknowledgeCheckpoint(job_id=job, checkpoint_id=number):
                self._on_work_ended(Work.CHECKPOINT, (job, number), time, last=False)
                self._on_work_started(Work.STORE, (job, number), time)
            case job_master.CheckpointCompleted(job_id=job, checkpoint=checkpoint):
                self._on_work_ended(Work.STORE, (job, checkpoint.checkpoint_id), time)
            case job_master.StartJob(job_id=job) | job_master.ResumeJob(job_id=job):
                self._on_work_started(Work.CREATE_CHANNELS, job, time)
            case job_master.ChannelsCreated(job_id=job):
                self._on_work_ended(Work.CREATE_CHANNELS, job, time)
            case dispatcher.JobReachedTerminalState(job_id=job):
                self._on_work_started(Work.DELETE_CHANNELS, job, time)
            case job_master.ChannelsDeleted(job_id=job):
                self._on_work_ended(Work.DELETE_CHANNELS, job, time)
            case dispatcher.SubmitJob(job_id=job, job_graph=None):
                self._on_work_started(Work.BUILD, job, time)
            case dispatcher.JobGraphBuilt(job_id=job) | dispatcher.JobGraphFailed(job_id=job):
                self._on_work_ended(Work.BUILD, job, time)
            case resource_manager.StartWorker(resource_id=resource_id):
                self._on_work_started(Work.START_WORKER, resource_id, time)
            case resource_manager.WorkerStarted(resource_id=resource_id):
                self._on_work_ended(Work.START_WORKER, resource_id, time)
                self._on_work_started(Work.BOOT, resource_id, time)
            case LeaderElected(role=role) if kind_of(role) == TASK_EXECUTOR:
                self._on_work_ended(Work.BOOT, instance_of(role), time)
                self._on_work_started(Work.REGISTER, instance_of(role), time)
            case resource_manager.RegisterTaskExecutor(resource_id=resource_id):
                self._on_work_ended(Work.REGISTER, resource_id, time)
            case _:
                pass

    def _on_work_started(self, work: Work, key: object, time: Time) -> None:
        if len(self._open) >= _MAX_OPEN:
            # What never came to an end.
            del self._open[next(iter(self._open))]
        self._open[work, key] = time

    def _on_work_ended(self, work: Work, key: object, time: Time, *, last: bool = True) -> None:
        began = self._open.pop((work, key), None) if last else self._open.get((work, key))
        if began is not None and time >= began:
            self._samples.setdefault(work, deque(maxlen=_MAX_SAMPLES)).append(time - began)
            if self._happens_again and work in _WORKER_WORK:
                self._again[work, key] = time - began
