"""Finds the moment that has a job which the cluster has forgotten: the one before it was forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from .endpoint import Parameters
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
    found = None if wanted is None else moment.fold.forgotten.get(wanted)
    return None if found is None else found.last_offset
