"""Pauses, resumes, restarts and configures jobs, and waits until that is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ....schemas.client import JobRequestRejected
from ....schemas.event import Record
from ....schemas.states import JOB_ENDS
from ....schemas.types import ExecutionState, JobStatus
from ...client.rest_client import JobClient, open_job_client
from ...configuration import Configuration
from ...configuration.dynamic_options import find_change_error
from ...dispatcher.state import Phase
from ...history import HistoryProjection
from ...history.cluster_view import find_dispatcher, find_started_job
from ...job_master.state import StartedJob
from ..exit_codes import CommandFailure, ExitCode
from ..readers.cluster_state import replay_log
from ..render.output import print_progress
from .job_control import check_not_ended, read_job

_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.3
_HAVE_RUN: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


def pause(configuration: Configuration, wanted: str, *, detached: bool) -> None:
    """Pauses a job; waits until its tasks have ended, unless `detached`. Raises CommandFailure."""
    _, job = read_job(configuration, wanted)
    check_not_ended(job, "there is nothing to pause")
    job_id = job.job_id
    is_done = None if detached else _is_paused
    request(configuration, job_id, lambda client: client.pause(job_id), is_done, "its tasks have not ended")
    if not detached:
        print_progress(f"job {job_id} is paused; `tailrace resume {job_id}` resumes it")


def resume(configuration: Configuration, wanted: str, *, detached: bool) -> None:
    """Resumes a paused job; waits until its tasks run, unless `detached`. Raises CommandFailure."""
    _, job = read_job(configuration, wanted)
    check_not_ended(job, "there is nothing to resume")
    job_id = job.job_id
    is_done = None if detached else _runs
    request(configuration, job_id, lambda client: client.resume(job_id), is_done, "not all of its tasks run")
    if not detached:
        print_progress(f"job {job_id} runs again")


def restart(
    configuration: Configuration, wanted: str, vertex: str | None, subtask: int | None, *, detached: bool
) -> None:
    """Restarts a subtask (from 1), a vertex or all tasks of a job; waits until they run, unless `detached`. Raises
    CommandFailure."""
    fold, job = read_job(configuration, wanted)
    check_not_ended(job, "there is nothing to restart")
    job_id, state = job.job_id, find_started_job(fold.replica.states, job.job_id)
    if state is None:
        raise CommandFailure(ExitCode.JOB, f"job {job_id} has not started yet")
    vertex_id = None if vertex is None else _find_vertex(state, vertex)
    index = None if subtask is None else subtask - 1
    if vertex_id is not None and index is not None and (vertex_id, index) not in state.current_attempts:
        raise CommandFailure(ExitCode.NOT_FOUND, f"vertex {vertex} of job {job_id} has no subtask {subtask}")
    chosen = {
        key: attempt
        for key, attempt in state.current_attempts.items()
        if vertex_id in (None, key[0])
        and index in (None, key[1])
        and state.executions[attempt].state is not ExecutionState.FINISHED
    }

    def have_restarted(now: HistoryProjection, job_id: str) -> bool:
        found = find_started_job(now.replica.states, job_id)
        return found is not None and all(
            found.current_attempts[key] != attempt
            and found.executions[found.current_attempts[key]].state in _HAVE_RUN
            for key, attempt in chosen.items()
        )

    request(
        configuration,
        job_id,
        lambda client: client.restart_tasks(job_id, vertex_id, index),
        None if detached else have_restarted,
        "not all of the tasks have restarted",
    )
    if not detached:
        count = len(chosen)
        print_progress(f"{count} task{'' if count == 1 else 's'} of job {job_id} restarted")


def configure(
    configuration: Configuration, wanted: str, changes: Mapping[str, str], removed: Sequence[str]
) -> None:
    """Changes options of a job, and waits until its JobMaster has them. Raises CommandFailure."""
    if (fault := find_change_error(changes, removed)) is not None:
        raise CommandFailure(ExitCode.USAGE, fault)
    _, job = read_job(configuration, wanted)
    check_not_ended(job, "it has no options to change")
    job_id = job.job_id

    def has_changed(now: HistoryProjection, job_id: str) -> bool:
        found = find_started_job(now.replica.states, job_id)
        return found is not None and all(
            found.changed_options.get(key) == value
            for key, value in {**changes, **dict.fromkeys(removed)}.items()
        )

    request(
        configuration,
        job_id,
        lambda client: client.configure(job_id, changes, removed),
        has_changed,
        "its JobMaster has not answered",
    )
    keys = ", ".join((*changes, *removed))
    print_progress(f"job {job_id} has new values of {keys}: its next decisions go by them")


def request(
    configuration: Configuration,
    job_id: str,
    send: Callable[[JobClient], None],
    is_done: Callable[[HistoryProjection, str], bool] | None,
    problem: str = "",
) -> None:
    """Sends a request, and waits until it is done or rejected; `is_done`: None does not wait. Raises CommandFailure."""
    with open_job_client(configuration, "control", 10.0) as client:
        if is_done is None:
            send(client)
            print_progress(f"job {job_id}: the request is written")
            return
        with client.subscribe() as conversation:
            own = client.address

            def rejection(record: Record) -> str | None:
                body = record.body
                is_own = record.header.recipient == own
                return body.reason if isinstance(body, JobRequestRejected) and is_own else None

            send(client)
            until = time.monotonic() + _TIMEOUT_S
            while True:
                if (reason := conversation.wait_for(rejection, _POLL_S)) is not None:
                    raise CommandFailure(ExitCode.JOB, reason)
                fold = replay_log(configuration)
                if is_done(fold, job_id):
                    return
                _check_progress(fold, job_id, problem, until)


def _check_progress(fold: HistoryProjection, job_id: str, problem: str, until: float) -> None:
    """Raises CommandFailure for a job that has ended, and after the time."""
    job = find_dispatcher(fold.replica.states).jobs.get(job_id)
    if job is None or job.status in JOB_ENDS:
        ended = "forgotten" if job is None else job.status.value
        raise CommandFailure(ExitCode.JOB, f"job {job_id} is {ended}")
    if time.monotonic() > until:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"job {job_id}: {problem} within {_TIMEOUT_S:g} s: see `tailrace show {job_id}`, and check that a "
            "jobmanager runs",
        )


def _is_paused(fold: HistoryProjection, job_id: str) -> bool:
    job = find_dispatcher(fold.replica.states).jobs.get(job_id)
    return job is not None and job.phase is Phase.SUSPENDED and job.is_paused


def _runs(fold: HistoryProjection, job_id: str) -> bool:
    state = find_started_job(fold.replica.states, job_id)
    return state is not None and state.status is JobStatus.RUNNING and state.is_fully_running


def _find_vertex(state: StartedJob, wanted: str) -> str:
    """Returns the id of the vertex with this id or name. Raises CommandFailure."""
    if wanted in state.topology.vertices:
        return wanted
    found = [vertex.vertex_id for vertex in state.topology.vertices.values() if vertex.name == wanted]
    if len(found) != 1:
        known = ", ".join(f"{vertex.vertex_id} ({vertex.name})" for vertex in state.topology.in_order)
        many = "has no vertex" if not found else "has several vertices"
        raise CommandFailure(ExitCode.NOT_FOUND, f"job {state.job_id} {many} {wanted[:80]!r}; it has {known}")
    return found[0]
