"""Carries out an upgrade: reads the log, takes the next step, and shows it.

It remembers only what the log does not have: why the cluster has rejected a job, and why this command has cancelled
one. A command that is repeated finds that out again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from .....infra.storage.errors import CheckpointError
from .....pipelines.checkpoint.compatibility import with_key_groups_of
from .....pipelines.checkpoint.metadata import CheckpointMetadata, VertexOutline, read_metadata
from .....pipelines.graph.parallelism import with_parallelism
from .....schemas.types import CompletedCheckpoint, JobGraph, JobVertex
from ....blobs.errors import BlobError
from ....blobs.job_blobs import blob_keys, with_owner
from ....client import Client, JobRejectedError
from ....client.checkpoint_requests import CheckpointFailedError, CheckpointProgress, CheckpointRequest
from ....configuration import Configuration
from ....history import HistoryProjection
from ....history.cluster_view import find_started_job
from ...exit_codes import CommandFailure, ExitCode
from ...readers.cluster_state import replay_log
from ...render.formatting import format_count
from ...render.output import print_progress
from ..cluster_executor import ACCEPT_TIMEOUT_S
from .checks import misfits
from .observation import has_started_from, read_upgrade
from .steps import (
    ENDS,
    Decision,
    Limits,
    Step,
    Upgrade,
    decide,
    fallback_id,
    savepoint_trigger_id,
    successor_id,
)

_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to become of a job."""

    old_id: str
    old_program: JobGraph
    new_program: JobGraph
    limits: Limits
    allow_non_restored_state: bool = False
    target: str | None = None
    """The parent directory of the savepoint; None: that of the cluster."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an upgrade."""

    decision: Decision
    seen: Upgrade


class JobUpgrade:
    """One upgrade, in one process."""

    def __init__(
        self, configuration: Configuration, client: Client, fold: HistoryProjection, plan: Plan
    ) -> None:
        self._configuration = configuration
        self._client = client
        self._fold = fold
        self._plan = plan
        self._old = plan.old_program
        """The old program as it runs, with the keys of its own blobs."""
        self._rejections: dict[str, str] = {}
        """Job id -> why the cluster has rejected it, or why it can't be submitted."""
        self._cancelled_because: str | None = None
        self._shown: set[str] = set()
        master = find_started_job(fold.replica.states, plan.old_id)
        if master is not None:
            self._old = _as_it_ran(self._old, master.graph.vertices)

    def prepare(self) -> None:
        """Stores the blobs of the old program under the id of the job that would continue with it: those of a job are
        deleted when it has ended. Raises CommandFailure."""
        if not self._plan.limits.rolls_back:
            return
        try:
            self._client.copy_blobs(blob_keys(self._old), fallback_id(self._plan.old_id))
        except BlobError as error:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"nothing is changed: the old program can't be kept, so no way back would be left: {error}",
            ) from error

    def run(self) -> Outcome:
        """Takes steps until none is left. Raises CommandFailure, CheckpointFailedError, NoAnswerError,
        LogUnavailable."""
        while True:
            seen = self._observe()
            decision = decide(seen, time.time_ns() // 1000, self._plan.limits)
            if decision.step in ENDS:
                return Outcome(decision, seen)
            self._take(decision, seen)

    def _observe(self) -> Upgrade:
        self._fold = replay_log(self._configuration, self._fold)
        old_id = self._plan.old_id
        seen = read_upgrade(self._fold, old_id)
        if seen is None:
            raise CommandFailure(ExitCode.NOT_FOUND, f"the cluster has forgotten job {old_id}")
        if seen.savepoint is None:
            return seen
        new_id = successor_id(old_id, seen.savepoint)
        obstacle = None
        if seen.successor is None and seen.old.has_ended:
            obstacle = self._rejections.get(new_id) or self._find_obstacle(seen.savepoint)
        fallback_obstacle = self._rejections.get(fallback_id(old_id)) if seen.fallback is None else None
        return replace(
            seen,
            obstacle=obstacle,
            cancelled_because=self._cancelled_because,
            fallback_obstacle=fallback_obstacle,
        )

    def _take(self, decision: Decision, seen: Upgrade) -> None:
        old_id = self._plan.old_id
        match decision.step:
            case Step.STOP:
                self._stop()
            case Step.SUBMIT:
                self._submit_new(seen)
            case Step.WATCH if seen.successor is not None:
                job = seen.successor
                stable_s = self._plan.limits.stabilization / 1e6
                self._show(
                    f"job {job.job_id} starts"
                    if job.running_since is None
                    else f"all tasks of job {job.job_id} run; it is stable after {stable_s:g} s without a failure"
                )
            case Step.CANCEL if seen.successor is not None:
                self._show(f"job {seen.successor.job_id} is not stable: {decision.reason}")
                self._show(f"job {seen.successor.job_id} is being cancelled")
                self._client.cancel(seen.successor.job_id)
                self._cancelled_because = decision.reason
            case Step.ROLL_BACK:
                self._show(f"the new program is not kept: {decision.reason}")
                self._submit_old(seen)
            case Step.WATCH_FALLBACK:
                self._show(f"job {fallback_id(old_id)} of the old program starts")
            case _:
                pass
        time.sleep(_POLL_S)

    def _stop(self) -> None:
        old_id, plan = self._plan.old_id, self._plan
        self._show(f"job {old_id} is being stopped with a savepoint")
        with self._client.subscribe() as conversation:
            conversation.follow(old_id)
            self._client.stop_with_savepoint(old_id, plan.target, trigger_id=savepoint_trigger_id(old_id))
            try:
                done = CheckpointRequest(old_id, self._client.address).wait(
                    conversation, show=self._show_savepoint
                )
            except CheckpointFailedError:
                # An earlier command may have stopped it.
                self._fold = replay_log(self._configuration, self._fold)
                seen = read_upgrade(self._fold, old_id)
                if seen is None or seen.savepoint is None:
                    raise
                return
        self._show_saved(done)

    def _show_savepoint(self, progress: CheckpointProgress | None) -> None:
        if progress is not None:
            subtasks = format_count(progress.subtasks, "subtask")
            self._show(f"savepoint {progress.checkpoint_id} is triggered; {subtasks} to acknowledge")

    def _show_saved(self, done: CompletedCheckpoint) -> None:
        self._show(f"savepoint {done.checkpoint_id} is complete: {done.uri}")

    def _find_obstacle(self, savepoint: str) -> str | None:
        """Returns why the new program can't start from the savepoint."""
        old_id = self._plan.old_id
        own = frozenset({successor_id(old_id, savepoint), fallback_id(old_id)})
        other = has_started_from(self._fold, savepoint, own)
        if other is not None:
            raise CommandFailure(
                ExitCode.JOB,
                f"job {other} has started from the savepoint of job {old_id} already: `tailrace upgrade {other} ...` "
                "upgrades that one",
            )
        metadata = _read(savepoint)
        if metadata is None:
            return None
        found = misfits(
            metadata,
            with_key_groups_of(metadata, self._plan.new_program),
            allow_non_restored_state=self._plan.allow_non_restored_state,
        )
        return "; ".join(found) or None

    def _submit_new(self, seen: Upgrade) -> None:
        savepoint = seen.savepoint
        assert savepoint is not None
        metadata, graph = _read(savepoint), self._plan.new_program
        if metadata is not None:
            graph = with_key_groups_of(metadata, graph)
        new_id = successor_id(self._plan.old_id, savepoint)
        self._show(f"job {self._plan.old_id} has ended; the new program is submitted as job {new_id}")
        self._submit(graph, new_id, savepoint, allow_non_restored_state=self._plan.allow_non_restored_state)

    def _submit_old(self, seen: Upgrade) -> None:
        savepoint, job_id = seen.savepoint, fallback_id(self._plan.old_id)
        assert savepoint is not None
        metadata, graph = _read(savepoint), self._old
        if metadata is not None:
            graph = _as_it_ran(graph, metadata.vertices)
            graph = with_key_groups_of(metadata, graph)
        self._show(f"the old program is submitted as job {job_id}, from the savepoint {savepoint}")
        self._submit(with_owner(graph, job_id), job_id, savepoint)

    def _submit(
        self, graph: JobGraph, job_id: str, savepoint: str, *, allow_non_restored_state: bool = False
    ) -> None:
        with self._client.subscribe() as conversation:
            self._client.submit(
                graph,
                None,
                job_id,
                savepoint_path=savepoint,
                allow_non_restored_state=allow_non_restored_state,
            )
            try:
                conversation.accepted_at(job_id, ACCEPT_TIMEOUT_S)
            except JobRejectedError as error:
                # If an earlier command has submitted it, it is known by now, and this does not count.
                self._rejections[job_id] = error.reason

    def _show(self, line: str) -> None:
        if line not in self._shown:
            self._shown.add(line)
            print_progress(line)


def _read(savepoint: str) -> CheckpointMetadata | None:
    """Returns the metadata of a savepoint; None if it can't be read here: then the JobMaster reads it."""
    try:
        return read_metadata(savepoint)
    except CheckpointError:
        return None


def _as_it_ran(graph: JobGraph, vertices: Iterable[JobVertex | VertexOutline]) -> JobGraph:
    """Returns the graph with the parallelism of these vertices: the job may have been rescaled."""
    return with_parallelism(graph, {each.vertex_id: each.parallelism for each in vertices})
