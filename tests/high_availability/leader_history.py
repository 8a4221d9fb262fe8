"""Follows the log: the leaders, and the state of jobs. Fenced events are kept apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from polling import TIMEOUT_S

from tailrace.schemas import client, everyone, job_master, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState, JobStatus
from tailrace.services.configuration import Configuration
from tailrace.services.core.leadership import LeadershipState
from tailrace.services.core.role import DISPATCHER
from tailrace.services.log.factory import open_event_log


@dataclass(frozen=True)
class LeaderTerm:
    """The term of a leader of a role, from its claim on; `time` in seconds since the epoch."""

    role: str
    epoch: int
    address: str
    offset: int
    time: float


@dataclass
class JobEvents:
    """The events of a job."""

    starts: list[int] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    """Execution attempt -> its number."""
    running: set[str] = field(default_factory=set)
    status: JobStatus = JobStatus.INITIALIZING
    checkpoints: list[int] = field(default_factory=list)
    """Those that the client heard to have succeeded."""
    ended: JobStatus | None = None
    ended_at: int | None = None
    """The offset at which its JobMaster said so."""
    refusals: list[str] = field(default_factory=list)


class LeaderHistory:
    """Follows the log from the first offset on."""

    def __init__(self, configuration: Configuration) -> None:
        self._log = open_event_log(configuration)
        self._tail = self._log.tail(0)
        self._leadership = LeadershipState()
        self.records: list[Record] = []
        self.ignored: set[int] = set()
        """Offsets of what no reader takes notice of."""
        self.reigns: list[LeaderTerm] = []
        self.jobs: dict[str, JobEvents] = {}
        self.lost: list[str] = []
        """TaskExecutors that were given up."""
        self.said_to: dict[str, list[Record]] = {}

    def until(self, condition: Callable[[], Any], what: str, within_s: float = TIMEOUT_S) -> None:
        """Reads until the condition holds."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                last = "\n".join(map(format_record, self.records[-25:]))
                raise AssertionError(f"no {what} within {within_s:g} s; the log ends with\n{last}")
            self.read(0.1)

    def read(self, patience_s: float = 0.0) -> None:
        """Reads the available records."""
        for record in self._tail.poll(patience_s):
            self._take(record)

    def catch_up(self) -> int:
        """Reads to the current end, and returns it."""
        end = self._log.end()
        self.until(lambda: self._tail.position >= end, f"offset {end}")
        return end

    def leader(self, role: str = DISPATCHER) -> LeaderTerm | None:
        """Returns the leader of a role that has been claimed."""
        return next((reign for reign in reversed(self.reigns) if reign.role == role), None)

    def first_word(self, reign: LeaderTerm) -> Record | None:
        """Returns the first event that a leader has decided."""
        for record in self.records:
            if (
                record.offset > reign.offset
                and record.header.sender == reign.role
                and record.header.sender_epoch == reign.epoch
            ):
                return record
        return None

    def job(self, job_id: str) -> JobEvents:
        return self.jobs.setdefault(job_id, JobEvents())

    def close(self) -> None:
        self._tail.close()
        self._log.close()

    def _take(self, record: Record) -> None:
        self.records.append(record)
        if not self._leadership.accepts(record):
            self.ignored.add(record.offset)
            return
        self._leadership = self._leadership.evolve(record)
        self.said_to.setdefault(record.header.recipient, []).append(record)
        match record.body:
            case everyone.LeaderElected() as body:
                at = record.header.time / 1e6
                self.reigns.append(LeaderTerm(body.role, body.epoch, body.address, record.offset, at))
            case everyone.TaskExecutorLost(resource_id=lost):
                self.lost.append(lost)
            case job_master.StartJob(job_id=job_id):
                self.job(job_id).starts.append(record.offset)
            case task_executor.SubmitTask(job_id=job_id, subtasks=subtasks):
                numbers = {subtask.execution_attempt_id: subtask.attempt_number for subtask in subtasks}
                self.job(job_id).attempts.update(numbers)
            case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.RUNNING) as body:
                self.job(body.job_id).running.add(body.execution_attempt_id)
            case client.JobStatusChanged() as body:
                self.job(body.job_id).status = body.status
            case client.CheckpointSucceeded() as body:
                self.job(body.job_id).checkpoints.append(body.checkpoint.checkpoint_id)
            case client.JobRejected() as body:
                self.job(body.job_id).refusals.append(body.reason)
            case client.JobFinished() as body:
                job = self.job(body.job_id)
                job.ended, job.ended_at = body.status, record.header.cause
            case _:
                pass


def format_record(record: Record) -> str:
    """Formats a record as one line."""
    header = record.header
    name = record.body.AVRO_NAME.rpartition(".")[2]
    return f"{record.offset:>5} {header.sender}@{header.sender_epoch} -> {header.recipient}: {name}"
