"""`tailrace upgrade`: finds the job and its programs, checks, carries the upgrade out, and says how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from .....pipelines.graph.execution_graph import required_slots
from .....pipelines.graph.program import BuildRequest
from .....schemas.states import JOB_ENDS
from .....schemas.types import JobGraph, JobStatus
from ....client import Client
from ....client.checkpoint_requests import CheckpointFailedError, request_checkpoint
from ....configuration import Configuration
from ....history import HistoryProjection
from ....history.cluster_view import JobView, find_dispatcher, job_view, jobs
from ...args.common_options import Format
from ...exit_codes import CommandFailure, ExitCode
from ...readers.cluster_state import replay_log
from ...render.formatting import format_count
from ...render.output import print_json, print_progress, print_result
from ..job_control import find_job
from .checks import Findings, check
from .job_upgrade import JobUpgrade, Outcome, Plan
from .observation import find_upgraded_job, read_upgrade
from .programs import build_new_program, is_same_program, read_program
from .steps import ENDS, Limits, Step, decide

_NOT_STARTED: Final = frozenset({JobStatus.INITIALIZING})


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """What the user has asked for."""

    job: str
    """The id, name or prefix of the id."""
    program: BuildRequest
    limits: Limits
    allow_non_restored_state: bool = False
    target: str | None = None
    """The parent directory of the savepoint."""
    is_dry_run: bool = False


def upgrade(configuration: Configuration, request: UpgradeRequest, output: Format) -> None:
    """Upgrades a job, or continues the upgrade that an earlier command has begun. Raises CommandFailure, ProgramError,
    CheckpointFailedError, NoAnswerError, LogUnavailable."""
    start = time.monotonic()
    new = build_new_program(request.program)
    fold = replay_log(configuration)
    job = _find(fold, request.job)
    old_id = _find_old(configuration, fold, job, new, request.limits)
    if old_id is None:
        print_progress(f"job {job.job_id} runs this program already: there is nothing to do")
        _print_end(output, "UNCHANGED", job.job_id, None, None, "", start)
        return
    old = read_program(configuration, find_dispatcher(fold.replica.states).jobs[old_id])
    view = _view(fold, old_id)
    is_begun = view.status in JOB_ENDS
    if not is_begun:
        if view.checkpoints.last is None and not request.is_dry_run:
            fold = _take_checkpoint(configuration, fold, old_id)
            view = _view(fold, old_id)
        found = check(
            configuration,
            fold,
            view,
            old,
            new,
            request.limits,
            allow_non_restored_state=request.allow_non_restored_state,
        )
        _show_findings(found, view, request, output)
        new = found.graph
    if request.is_dry_run:
        _show_plan(fold, old_id, old, new, request, output)
        return
    plan = Plan(old_id, old, new, request.limits, request.allow_non_restored_state, target=request.target)
    with Client(configuration, name="upgrade", timeout_s=10.0) as client:
        one = JobUpgrade(configuration, client, fold, plan)
        try:
            if not is_begun:
                one.prepare()
            outcome = one.run()
        except KeyboardInterrupt:
            print_progress(f"interrupted: the same command continues the upgrade of job {old_id}")
            raise
    _report(outcome, output, start)


def _find(fold: HistoryProjection, wanted: str) -> JobView:
    """Returns the job with this id, name or prefix of an id. If no such job is live, it is the one that has ended last:
    between two steps of an upgrade none is. Raises CommandFailure."""
    known = jobs(fold)
    matching = [job for job in known if job.name == wanted or job.job_id.startswith(wanted)]
    if len(matching) > 1 and all(job.status in JOB_ENDS for job in matching):
        return max(matching, key=lambda job: (job.ended or 0, job.job_id))
    return find_job(known, wanted, fold.ended)


def _find_old(
    configuration: Configuration, fold: HistoryProjection, job: JobView, new: JobGraph, limits: Limits
) -> str | None:
    """Returns the job whose upgrade is to begin or to continue; None if `job` runs the new program already. Raises
    CommandFailure if another program is being tried."""
    jobs_now = find_dispatcher(fold.replica.states).jobs
    old_id = find_upgraded_job(fold, job.job_id)
    seen = None if old_id is None else read_upgrade(fold, old_id)
    if old_id is not None and seen is not None:
        step = decide(seen, time.time_ns() // 1000, limits).step
        successor = seen.successor if step is Step.WATCH else None
        if successor is not None and not is_same_program(
            read_program(configuration, jobs_now[successor.job_id]), new
        ):
            raise CommandFailure(
                ExitCode.JOB,
                f"job {old_id} is being upgraded to another program, as job {successor.job_id}: repeat that command, "
                "or wait until that job is stable",
            )
        if step not in ENDS:
            return old_id
    if job.status in JOB_ENDS:
        return job.job_id
    if job.status in _NOT_STARTED:
        raise CommandFailure(ExitCode.JOB, f"job {job.job_id} has not started yet: try again when it runs")
    if is_same_program(read_program(configuration, jobs_now[job.job_id]), new):
        return None
    return job.job_id


def _view(fold: HistoryProjection, job_id: str) -> JobView:
    return job_view(fold, find_dispatcher(fold.replica.states).jobs[job_id])


def _take_checkpoint(configuration: Configuration, fold: HistoryProjection, job_id: str) -> HistoryProjection:
    """Takes the first checkpoint of a job, so that its state can be checked before the job is stopped."""
    print_progress(f"job {job_id} has no checkpoint yet: one is taken, to check its state")
    try:
        request_checkpoint(configuration, job_id, lambda client: client.trigger_checkpoint(job_id))
    except CheckpointFailedError as error:
        raise CommandFailure(
            ExitCode.SAVEPOINT, f"nothing is changed: no checkpoint of job {job_id} can be taken: {error}"
        ) from error
    return replay_log(configuration, fold)


def _show_findings(found: Findings, job: JobView, request: UpgradeRequest, output: Format) -> None:
    """Raises CommandFailure for problems."""
    for note in found.notes:
        print_progress(note)
    if found.problems:
        if output is Format.JSON:
            print_json({"outcome": "REFUSED", "job_id": job.job_id, "problems": found.problems})
        count = format_count(len(found.problems), "problem")
        raise CommandFailure(
            ExitCode.JOB,
            f"job {job.job_id} can't be upgraded to {request.program.file or request.program.target}: {count}; nothing "
            "is changed",
            "\n".join(found.problems),
        )


def _show_plan(
    fold: HistoryProjection,
    old_id: str,
    old: JobGraph,
    new: JobGraph,
    request: UpgradeRequest,
    output: Format,
) -> None:
    before, after, limits = _operators(old), _operators(new), request.limits
    added = [name for operator_id, name in after.items() if operator_id not in before]
    gone = [name for operator_id, name in before.items() if operator_id not in after]
    seen = read_upgrade(fold, old_id)
    step = Step.STOP if seen is None else decide(seen, time.time_ns() // 1000, limits).step
    if output is Format.JSON:
        print_json(
            {
                "outcome": "DRY_RUN",
                "job_id": old_id,
                "next_step": step,
                "slots": required_slots(new),
                "new_operators": added,
                "gone_operators": gone,
            }
        )
    else:
        print_result(
            f"job {old_id} would be stopped with a savepoint, and continue as {new.name!r}"
            if step is Step.STOP
            else f"the upgrade of job {old_id} has begun; its next step is {step.value}"
        )
        print_result(f"slots: {required_slots(new)}, before {required_slots(old)}")
        for name in added:
            print_result(f"new operator, without state: {name}")
        for name in gone:
            print_result(f"operator that is gone: {name}")
    print_progress("nothing is changed: this was a dry run")


def _operators(graph: JobGraph) -> dict[str, str]:
    return {each.operator_id: each.name for vertex in graph.vertices for each in vertex.operators}


def _report(outcome: Outcome, output: Format, start: float) -> None:
    seen, reason = outcome.seen, outcome.decision.reason
    old_id, savepoint, successor, fallback = seen.old.job_id, seen.savepoint, seen.successor, seen.fallback
    match outcome.decision.step:
        case Step.DONE if successor is not None:
            is_well = successor.status is JobStatus.FINISHED or not successor.has_ended
            print_progress(f"job {old_id} is upgraded: job {successor.job_id} is {successor.status.value}")
            _print_end(output, "STABLE", successor.job_id, old_id, savepoint, "", start)
            if not is_well:
                raise CommandFailure(
                    ExitCode.JOB, f"job {successor.job_id} was stable, and is {successor.status.value} since"
                )
        case Step.ROLLED_BACK if fallback is not None:
            _print_end(output, "ROLLED_BACK", fallback.job_id, old_id, savepoint, reason, start)
            repeats = (
                "; what the new one has committed since the savepoint, the old one writes again"
                if successor is not None and successor.has_run
                else ""
            )
            raise CommandFailure(
                ExitCode.ROLLED_BACK,
                f"job {old_id} is not upgraded: {reason}. The old program continues from the savepoint as job "
                f"{fallback.job_id}{repeats}",
            )
        case _:
            job = fallback or successor or seen.old
            _print_end(output, "FAILED", job.job_id, old_id, savepoint, reason, start)
            raise CommandFailure(ExitCode.JOB, f"job {old_id} is not upgraded: {reason}")


def _print_end(
    output: Format,
    outcome: str,
    job_id: str,
    old_id: str | None,
    savepoint: str | None,
    reason: str,
    start: float,
) -> None:
    if output is Format.TEXT:
        print_result(job_id)
        return
    duration = round((time.monotonic() - start) * 1000)
    print_json(
        {
            "outcome": outcome,
            "job_id": job_id,
            "upgraded_job_id": old_id,
            "savepoint": savepoint,
            "reason": reason or None,
            "duration_ms": duration,
        }
    )
