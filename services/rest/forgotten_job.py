"""Finds the moment that has a job which the cluster has forgotten: the one before it was forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .endpoint import Parameters
from .flink import ids
from .moment import Moment
from .past_moments import PastMoments


@contextmanager
def read_with_job(
    wanted: AbstractContextManager[Moment], past: PastMoments, parameters: Parameters
) -> Iterator[Moment]:
    """Yields the wanted moment, or the last one that has the job of the parameters if that job is forgotten then."""
    with wanted as moment:
        last = find_last_offset(moment, parameters)
        if last is None:
            yield moment
            return
    with past.read(str(last)) as moment:
        yield moment


def find_last_offset(moment: Moment, parameters: Parameters) -> int | None:
    """Returns the last offset at which the states have the job of `jobid`; None if it is not forgotten."""
    wanted = parameters.get("jobid") or parameters.get("applicationid")
    forgotten = moment.fold.forgotten.all() if wanted is not None else {}
    if wanted is None or not forgotten:
        return None
    job_id = ids.find_job_id(forgotten, wanted)
    return None if job_id is None else forgotten[job_id].last_offset
