"""The differences between the simulated and the real part of a history, in sentences.

Differences below a second are not told: a simulation does not repeat how long processes took to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ...core.role import Time
from ..latencies import SECOND
from .outcome_metrics import JobOutcome, Outcome
from .report import describe_end, format_duration, length_of
from .what_if import WhatIf

_MIN_SLOTS = 0.05
"""Averages of slots with a smaller difference are equal."""


def describe_differences(found: WhatIf) -> tuple[str, ...]:
    """Returns the sentences: of jobs in the order of their submission, then of slots. It has one at least."""
    really, would = found.really, found.would
    if really is None:
        return ("The log has no event in this time: there is nothing to compare with.",)
    known = {job.job_id: job for job in really.jobs}
    sentences: list[str] = []
    for job in would.jobs:
        before = known.pop(job.job_id, None)
        if before is None:
            sentences.append(f"{_name(job)} is only in the simulation: {describe_end(would, job)}.")
        elif predicates := tuple(_of_job(really, before, would, job)):
            sentences.append(f"{_name(job)} {'. It '.join(predicates)}.")
    sentences += [
        f"{_name(job)} is not in the simulation. Really: {describe_end(really, job)}."
        for job in known.values()
    ]
    sentences += _of_slots(really, would, min(really.end, would.end))
    return tuple(sentences) or ("The simulation gives what really happened.",)


def _of_job(really: Outcome, before: JobOutcome, would: Outcome, job: JobOutcome) -> Iterator[str]:
    """Yields sentences without subject and full stop."""
    if before.status != job.status or (before.ended is None) != (job.ended is None):
        reason = f" ({job.reason})" if job.reason else ""
        yield f"ends otherwise: {describe_end(would, job)}{reason}; really {describe_end(really, before)}"
    elif before.ended is not None and job.ended is not None and abs(job.ended - before.ended) >= SECOND:
        later = job.ended - before.ended
        which = "later" if later > 0 else "earlier"
        usual = format_duration(length_of(really, before))
        yield f"ends {format_duration(abs(later))} {which}: {describe_end(would, job)} instead of {usual}"
    if before.restarts != job.restarts:
        yield f"restarts {_times(job.restarts)} instead of {_times(before.restarts)}"
    for what, real_time, time in (
        ("waits for slots for", before.waited, job.waited),
        ("is interrupted for", before.interrupted, job.interrupted),
    ):
        if abs(time - real_time) >= SECOND:
            yield f"{what} {format_duration(time)} instead of {format_duration(real_time)}"


def _of_slots(really: Outcome, would: Outcome, end: Time) -> Iterator[str]:
    (used, total), (real_used, real_total) = _averages(would, end), _averages(really, end)
    if max(abs(used - real_used), abs(total - real_total)) >= _MIN_SLOTS:
        yield (
            f"On average {used:.1f} of {total:.1f} slots are in use instead of {real_used:.1f} of {real_total:.1f}."
        )
    most, real_most = (max((step.total for step in each.slots), default=0) for each in (would, really))
    if most != real_most:
        yield f"There are at most {most:,} slots instead of {real_most:,}."


def _averages(outcome: Outcome, end: Time) -> tuple[float, float]:
    """Returns the slots in use and registered up to a time that both outcomes have."""
    steps = tuple(step for step in outcome.slots if step.time < end)
    part, length = replace(outcome, end=end, slots=steps), max(1, end - outcome.start)
    return part.used_time() / length, part.registered_time() / length


def _name(job: JobOutcome) -> str:
    return f"{job.name} ({job.job_id})" if job.name and job.name != job.job_id else job.job_id


def _times(count: int) -> str:
    return "never" if count == 0 else "once" if count == 1 else f"{count} times"
