"""Invariants of checkpoints after every step, and at the end of a run. Raises AssertionError."""

from __future__ import annotations

from collections import defaultdict

from tailrace.pipelines.graph.job_options import ExternalizedCheckpointRetention
from tailrace.schemas import job_master
from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import JobStatus
from tailrace.services.configuration.role_options import CheckpointingOptions
from tailrace.services.job_master.state import StartedJob

from ..async_simulator import AsyncSimulator


def check_checkpoints(state: StartedJob) -> None:
    """Checks one JobMaster: pending checkpoints expect its current tasks, and its stored checkpoints are in order."""
    checkpoints = state.checkpoints
    ids = [checkpoint.checkpoint_id for checkpoint in checkpoints.completed]
    assert ids == sorted(set(ids)), f"{ids} are complete, in no order"
    assert max([*ids, *checkpoints.pending], default=0) <= checkpoints.counter, "an id was not counted"
    for number, pending in checkpoints.pending.items():
        assert number == pending.checkpoint_id
        if pending.failure is not None:
            continue
        parts = [*pending.awaited.values(), *pending.acknowledged, *pending.finished]
        assert len(parts) == len(set(parts)), f"checkpoint {number} has a subtask twice: {parts}"
        assert len(parts) == state.topology.subtasks, f"checkpoint {number} has not each subtask: {parts}"
        for attempt, vertex in pending.awaited.items():
            assert state.current_attempts[vertex] == attempt, (
                f"checkpoint {number} awaits {attempt}, which is old"
            )


class CheckpointHistory:
    """Every checkpoint of a world that was ever pending or complete, according to the states."""

    def __init__(self, world: AsyncSimulator) -> None:
        self._world = world
        self._options: dict[str, CheckpointingOptions] = {}
        self._counters: dict[str, int] = {}
        self._pending: dict[str, str] = {}
        """Directory -> job."""
        self._completed: dict[str, dict[int, str]] = defaultdict(dict)
        """Job -> id -> directory."""
        self._savepoints: set[str] = set()

    def note(self, state: StartedJob) -> None:
        """Records a state that has changed."""
        checkpoints, job_id = state.checkpoints, state.job_id
        self._options[job_id] = state.options.checkpointing
        before = self._counters.get(job_id, 0)
        assert checkpoints.counter >= before, f"{job_id} counts checkpoints back to {checkpoints.counter}"
        self._counters[job_id] = checkpoints.counter
        for number, pending in checkpoints.pending.items():
            directory = pending.options.directory
            assert number not in self._completed[job_id], f"{job_id}: checkpoint {number} is pending again"
            assert self._pending.setdefault(directory, job_id) == job_id
        for checkpoint in checkpoints.completed:
            self._completed[job_id][checkpoint.checkpoint_id] = checkpoint.uri
        self._savepoints |= {savepoint.uri for savepoint in checkpoints.savepoints}

    def check_storage(self) -> None:
        """Checks that storage has every checkpoint that a JobMaster takes for complete, and those that its tasks
        restore."""
        storage = self._world.task_state.storage
        for address, state in self._world.truth.states.items():
            if not isinstance(state, StartedJob) or state.status in JOB_ENDS:
                continue
            for checkpoint in state.checkpoints.completed:
                assert checkpoint.uri in storage.metadata, (
                    f"{address}: {checkpoint.uri} is complete, but is not in storage"
                )
            latest = state.checkpoints.latest
            if latest is not None and latest.generation >= 0:
                assert latest.uri in storage.metadata, (
                    f"{address}: tasks begin with {latest.uri}, which is gone"
                )

    def check_what_is_left(self) -> None:
        """Checks, after the end of all jobs, that storage has the checkpoints to retain and nothing of aborted ones."""
        storage = self._world.task_state.storage
        completed = {uri for job in self._completed.values() for uri in job.values()} | self._savepoints
        aborted = self._pending.keys() - completed
        rest = sorted((aborted & storage.directories()) - storage.late)
        assert not rest, f"{rest} were aborted, and are in storage"
        self._check_topics()
        kept = {
            record.body.job_id
            for record in self._world.accepted()
            if isinstance(record.body, job_master.CancelJob) and record.body.keep_checkpoints
        }
        for job_id, job in self._world.truth.states["dispatcher"].jobs.items():
            own = self._completed.get(job_id, {})
            if job_id not in self._options or storage.corrupt_uris & set(own.values()):
                continue
            expected = self._retained(job_id, job.status, kept=job_id in kept)
            there = {uri for uri in own.values() if uri in storage.metadata}
            assert there == expected, f"{job_id} has left {there} as {job.status}, not {expected}"

    def _check_topics(self) -> None:
        """Checks that the channels of each started job are deleted after its end."""
        log = self._world.accepted()
        started = {record.body.job_id for record in log if isinstance(record.body, job_master.StartJob)}
        deleted = {
            record.body.job_id for record in log if isinstance(record.body, job_master.ChannelsDeleted)
        }
        assert started <= deleted, f"the channels of {sorted(started - deleted)} are left"

    def _retained(self, job_id: str, status: JobStatus, *, kept: bool) -> set[str]:
        options, own = self._options[job_id], self._completed[job_id]
        keeps = {
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: (JobStatus.CANCELED, JobStatus.FAILED),
            ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION: (JobStatus.FAILED,),
            ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: (),
        }
        if status not in keeps[options.retention] and not (kept and status is JobStatus.CANCELED):
            return set()
        return {own[number] for number in sorted(own)[-options.retained :]}
