"""The Dispatcher's indexes, recomputed from its jobs."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.index_validation import compare
from .state import NOT_LIVE, SILENT, DispatcherState, Phase


def index_errors(state: DispatcherState) -> Iterator[str]:
    """A line for each index that differs."""
    jobs = state.jobs.values()
    yield from compare(
        "owing", dict(state.owing), {job.job_id: job.cause for job in jobs if job.phase not in SILENT}
    )
    building = {job.job_id for job in jobs if job.phase is Phase.BUILDING and not job.withdrawn}
    yield from compare("building", set(state.building.places), building)
    yield from compare("live", set(state.live), {job.job_id for job in jobs if job.phase not in NOT_LIVE})
    suspended = {job.job_id for job in jobs if job.phase is Phase.SUSPENDED}
    yield from compare("suspended", set(state.suspended), suspended)
