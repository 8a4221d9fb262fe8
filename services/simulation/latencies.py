"""The durations of effects, learned from a log.

A what-if learns from the part of the log before its start. Effects of single TaskExecutors that the log has after the
start take exactly as long as in the log.
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
    """The kinds of actions with a duration."""

    CREATE_CHANNELS = "create channels"
    DELETE_CHANNELS = "delete channels"
    BUILD = "build a JobGraph"
    START_TASK = "start a task"
    """From SubmitTask to RUNNING."""
    STOP_TASK = "stop a task"
    """From CancelTask to the end of the task."""
    CHECKPOINT = "acknowledge a checkpoint"
    STORE = "write or delete files of a checkpoint"
    START_WORKER = "start the process of a worker"
    """From StartWorker to WorkerStarted."""
    BOOT = "boot a worker"
    """From WorkerStarted to the claim of the process."""
    REGISTER = "register a worker"
    """From the claim to RegisterTaskExecutor."""
    STOP_WORKER = "stop a worker"
    NOTICE_EXIT = "detect the end of a process"


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
"""The latencies without samples: those of a machine with two cores (docs/figures.md)."""
_WORKER_WORK = frozenset({Work.START_WORKER, Work.BOOT, Work.REGISTER})


class Latencies:
    """In microseconds. `on_event` learns, `take` returns. `fixed` latencies are not learned."""

    def __init__(self, seed: int = 0, fixed: Mapping[Work, Time] | None = None) -> None:
        self._seed = seed
        self._fixed = dict(fixed or {})
        self._samples: dict[Work, deque[Time]] = {}
        self._open: dict[tuple[Work, object], Time] = {}
        self._is_recording = False
        self._recorded: dict[tuple[Work, object], Time] = {}

    def take(self, work: Work, *what: object) -> Time:
        """Returns the duration: the same for the same seed, samples and `what`."""
        if work in self._fixed:
            return self._fixed[work]
        if len(what) == 1 and (work, what[0]) in self._recorded:
            return self._recorded[work, what[0]]
        samples = self._samples.get(work)
        if not samples:
            return DEFAULT_LATENCIES[work]
        text = "\x1f".join(map(str, (self._seed, work, *what)))
        drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
        return samples[drawn % len(samples)]

    def start_recording(self) -> None:
        """Marks the start of the simulation: from here on, workers take exactly as long as in the log."""
        self._is_recording = True

    def finish(self, end: Time) -> None:
        """Marks the end of the log: actions of workers that are not finished then take longer."""
        for (work, key), began in self._open.items():
            if work in _WORKER_WORK:
                self._recorded.setdefault((work, key), max(DEFAULT_LATENCIES[work], end + 1 - began))

    def on_event(self, record: Record) -> None:
        """Learns from the next event."""
        body, time, begin, end = record.body, record.header.time, self._begin, self._end
        match body:
            case job_master.UpdateTaskExecutionState(
                execution_attempt_id=key, execution_state=ExecutionState.RUNNING
            ):
                end(Work.START_TASK, key, time)
            case job_master.UpdateTaskExecutionState(
                execution_attempt_id=key, execution_state=ExecutionState.CANCELED
            ):
                end(Work.STOP_TASK, key, time)
            case task_executor.SubmitTask(subtasks=subtasks):
                for subtask in subtasks:
                    begin(Work.START_TASK, subtask.execution_attempt_id, time)
            case task_executor.CancelTask(execution_attempt_id=key):
                begin(Work.STOP_TASK, key, time)
            case task_executor.TriggerCheckpoint(job_id=job, checkpoint_id=number):
                begin(Work.CHECKPOINT, (job, number), time)
            case job_master.AcknowledgeCheckpoint(job_id=job, checkpoint_id=number):
                end(Work.CHECKPOINT, (job, number), time, last=False)
                begin(Work.STORE, (job, number), time)
            case job_master.CheckpointCompleted(job_id=job, checkpoint=checkpoint):
                end(Work.STORE, (job, checkpoint.checkpoint_id), time)
            case job_master.StartJob(job_id=key) | job_master.ResumeJob(job_id=key):
                begin(Work.CREATE_CHANNELS, key, time)
            case job_master.ChannelsCreated(job_id=key):
                end(Work.CREATE_CHANNELS, key, time)
            case dispatcher.JobReachedTerminalState(job_id=key):
                begin(Work.DELETE_CHANNELS, key, time)
            case job_master.ChannelsDeleted(job_id=key):
                end(Work.DELETE_CHANNELS, key, time)
            case dispatcher.ProgramAccepted(job_id=key):
                begin(Work.BUILD, key, time)
            case dispatcher.JobGraphBuilt(job_id=key) | dispatcher.JobGraphFailed(job_id=key):
                end(Work.BUILD, key, time)
            case resource_manager.StartWorker(resource_id=key):
                begin(Work.START_WORKER, key, time)
            case resource_manager.WorkerStarted(resource_id=key):
                end(Work.START_WORKER, key, time)
                begin(Work.BOOT, key, time)
            case LeaderElected(role=role) if kind_of(role) == TASK_EXECUTOR:
                end(Work.BOOT, instance_of(role), time)
                begin(Work.REGISTER, instance_of(role), time)
            case resource_manager.RegisterTaskExecutor(resource_id=key):
                end(Work.REGISTER, key, time)
            case _:
                pass

    def _begin(self, work: Work, key: object, time: Time) -> None:
        if len(self._open) >= _MAX_OPEN:
            # The oldest one has probably no end.
            del self._open[next(iter(self._open))]
        self._open[work, key] = time

    def _end(self, work: Work, key: object, time: Time, *, last: bool = True) -> None:
        began = self._open.pop((work, key), None) if last else self._open.get((work, key))
        if began is not None and time >= began:
            self._samples.setdefault(work, deque(maxlen=_MAX_SAMPLES)).append(time - began)
            if self._is_recording and work in _WORKER_WORK:
                self._recorded[work, key] = time - began
