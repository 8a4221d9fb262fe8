"""Recomputes the Dispatcher's indexes from its jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..core.index_validation import compare
from .state import DispatcherState, Phase


def index_errors(state: DispatcherState) -> Iterator[str]:
    """Returns a line for each index that differs."""
    jobs = state.jobs.values()
    yield from compare(
        "owing", dict(state.owing), {job.job_id: job.cause for job in jobs if job.has_owed_event}
    )
    building = {job.job_id for job in jobs if job.phase is Phase.BUILDING and not job.has_owed_event}
    yield from compare("building", set(state.building.clients), building)
    yield from compare("building order", sorted(state.building), sorted(building))
    counts = Counter(job.submitter for job in jobs if job.phase is not Phase.ENDED)
    yield from compare("jobs_of", dict(state.jobs_of), dict(counts))
    slots = Counter[str]()
    for job in jobs:
        if job.phase is not Phase.ENDED and job.slots:
            slots[job.submitter] += job.slots
    yield from compare("slots_of", dict(state.slots_of), dict(slots))
    expired = {job_id for job_ids in state.expired.values() for job_id in job_ids}
    ended = {job.job_id for job in jobs if job.phase is Phase.ENDED}
    yield from compare("ended", sorted(state.ended.values()), sorted(ended - expired))
    places = list(range(state.ended_head, state.ended_tail))
    yield from compare("places of ended jobs", sorted(state.ended), places)
    suspended = {job.job_id for job in jobs if job.is_at_rest}
    live = {job.job_id for job in jobs if job.phase is not Phase.ENDED} - suspended
    yield from compare("live", set(state.live), live)
    yield from compare("suspended", set(state.suspended), suspended)
