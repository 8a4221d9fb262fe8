"""The results of a simulation beside the real ones, as table rows and as data for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...core.role import Time
from .outcome_metrics import JobOutcome, Outcome
from .what_if import WhatIf

REALLY, WHAT_IF = "really", "what if"
JOB_COLUMNS = ("job", "name", "", "ended", "waited for slots", "restarts", "interrupted")
SCALING_COLUMNS = ("", "after", "job", "decision of the autoscaler")
SLOT_COLUMNS = ("", "for", "in use on average", "of", "at most", "of", "requests waited, in all")


def job_rows(found: WhatIf) -> Iterator[tuple[str, ...]]:
    """Yields two rows for each job (JOB_COLUMNS), real and simulated; one if it exists in one of them only."""
    really = {job.job_id: job for job in found.really.jobs} if found.really is not None else {}
    would = {job.job_id: job for job in found.would.jobs}
    for job_id in [*really, *(other_id for other_id in would if other_id not in really)]:
        shown = job_id, (would.get(job_id) or really[job_id]).name
        for which, outcome, job in (
            (REALLY, found.really, really.get(job_id)),
            (WHAT_IF, found.would, would.get(job_id)),
        ):
            if outcome is not None and job is not None:
                yield (*shown, which, *_job_cells(outcome, job))
                shown = "", ""


def slot_rows(found: WhatIf) -> Iterator[tuple[str, ...]]:
    """Yields a row for the real and the simulated slots (SLOT_COLUMNS)."""
    for which, outcome in ((REALLY, found.really), (WHAT_IF, found.would)):
        if outcome is None:
            continue
        length = max(1, outcome.end - outcome.start)
        yield (
            which,
            format_duration(outcome.end - outcome.start),
            f"{outcome.used_time() / length:.1f}",
            f"{outcome.registered_time() / length:.1f}",
            str(max((step.used for step in outcome.slots), default=0)),
            str(max((step.total for step in outcome.slots), default=0)),
            format_duration(outcome.waiting_time()),
        )


def scaling_rows(found: WhatIf) -> Iterator[tuple[str, ...]]:
    """Yields a row for each decision of an autoscaler that another parallelism is needed (SCALING_COLUMNS)."""
    for which, outcome in ((REALLY, found.really), (WHAT_IF, found.would)):
        for step in () if outcome is None else outcome.scalings:
            advice = " (advice)" if step.is_advice else ""
            yield which, format_duration(step.time - found.would.start), step.job_id, f"{step.reason}{advice}"


def as_data(found: WhatIf) -> dict[str, Any]:
    """Returns everything except the log; times in microseconds since the epoch, durations in microseconds."""
    scenario: dict[str, Any] = msgspec.to_builtins(found.scenario)
    for event, known in zip(scenario["events"], found.scenario.events, strict=True):
        event["action"] = {"kind": type(known.action).__name__, **event["action"]}
    return {
        "cluster": found.cluster,
        "offset": found.offset,
        "scenario": scenario,
        REALLY: None if found.really is None else _data(found.really),
        "what_if": _data(found.would),
        "events": len(found.log),
        "notes": list(found.notes),
    }


def format_duration(length: Time) -> str:
    """Returns a duration as text."""
    if length < 1_000_000:
        return f"{length / 1000:.0f} ms" if length else "0 s"
    seconds = length / 1e6
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def describe_end(outcome: Outcome, job: JobOutcome) -> str:
    """Returns how and after which time a job ended: `FINISHED after 3 min 20 s`, or `RUNNING at the end`."""
    if job.ended is None:
        return f"{job.status} at the end"
    return f"{job.status} after {format_duration(length_of(outcome, job))}"


def length_of(outcome: Outcome, job: JobOutcome) -> Time:
    """Returns how long a job was there in this part of the history."""
    since = outcome.start if job.submitted is None else job.submitted
    return (outcome.end if job.ended is None else job.ended) - since


def _job_cells(outcome: Outcome, job: JobOutcome) -> tuple[str, str, str, str]:
    ended, waited = describe_end(outcome, job), format_duration(job.waited)
    return ended, waited, str(job.restarts), format_duration(job.interrupted)


def _data(outcome: Outcome) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(outcome)
    data["used_slot_time"] = outcome.used_time()
    data["registered_slot_time"] = outcome.registered_time()
    data["waiting_request_time"] = outcome.waiting_time()
    return data
