"""What holds of checkpoints after every step, and what is left of them when all is over. Raises AssertionError."""

from __future__ import annotations

from collections import defaultdict

from tailrace.pipelines.graph.job_options import ExternalizedCheckpointRetention
from tailrace.schemas import job_master
from tailrace.schemas.states import JOB_ENDS
from tailrace.schemas.types import JobStatus
from tailrace.services.configuration.role_options import CheckpointingOptions
from tailrace.services.job_master.state import JobMasterState

from ..async_simulator import AsyncSimulator


def check_checkpoints(state: JobMasterState) -> None:
    """Of one JobMaster: what is pending is of its current tasks, what it keeps is in order."""
    checkpoints = state.checkpoints
    ids = [each.checkpoint_id for each in checkpoints.completed]
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
            assert state.current[vertex] == attempt, f"checkpoint {number} awaits {attempt}, which is old"


class CheckpointHistory:
    """Of one World: every checkpoint that was ever pending or complete, as the states had it."""

    def __init__(self, world: AsyncSimulator) -> None:
        self._world = world
        self._options: dict[str, CheckpointingOptions] = {}
        self._counters: dict[str, int] = {}
        self._pending: dict[str, str] = {}
        """Directory -> job."""
        self._completed: dict[str, dict[int, str]] = defaultdict(dict)
        """Job -> id -> directory."""
        self._savepoints: set[str] = set()

    def note(self, state: JobMasterState) -> None:
        """A state that has changed."""
        checkpoints, job_id = state.checkpoints, state.job_id
        if state.terminated is not None:
            return
        self._options[job_id] = state.options.checkpointing
        before = self._counters.get(job_id, 0)
        assert checkpoints.counter >= before, f"{job_id} counts checkpoints back to {checkpoints.counter}"
        self._counters[job_id] = checkpoints.counter
        for number, pending in checkpoints.pending.items():
            directory = pending.options.directory
            assert number not in self._completed[job_id], f"{job_id}: checkpoint {number} is pending again"
            assert self._pending.setdefault(directory, job_id) == job_id
        for each in checkpoints.completed:
            self._completed[job_id][each.checkpoint_id] = each.uri
        self._savepoints |= {each.uri for each in checkpoints.savepoints}

    def check_storage(self) -> None:
        """What a JobMaster takes for complete is in storage, and so is what its tasks begin with."""
        storage = self._world.barriers.storage
        for address, state in self._world.truth.states.items():
            if not isinstance(state, JobMasterState) or state.status in JOB_ENDS:
                continue
            for each in state.checkpoints.completed:
                assert each.uri in storage.metadata, (
                    f"{address}: {each.uri} is complete, but is not in storage"
                )
            latest = state.checkpoints.latest
            if latest is not None and latest.generation >= 0:
                assert latest.uri in storage.metadata, (
                    f"{address}: tasks begin with {latest.uri}, which is gone"
                )

    def check_what_is_left(self) -> None:
        """All jobs have ended: storage holds what is to be retained, and nothing of what was aborted."""
        storage = self._world.barriers.storage
        completed = {uri for job in self._completed.values() for uri in job.values()} | self._savepoints
        aborted = self._pending.keys() - completed
        left = sorted((aborted & storage.directories()) - storage.late)
        assert not left, f"{left} were aborted, and are in storage"
        self._check_topics()
        kept = {
            record.body.job_id
            for record in self._world.log
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
        """Channels of each job that was started are deleted after its end."""
        log = self._world.log
        started = {each.body.job_id for each in log if isinstance(each.body, job_master.StartJob)}
        deleted = {each.body.job_id for each in log if isinstance(each.body, job_master.ChannelsDeleted)}
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
        return {own[each] for each in sorted(own)[-options.retained :]}
