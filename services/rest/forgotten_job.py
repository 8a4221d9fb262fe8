"""Finds the moment that has a job which the cluster has forgotten: the one before it was forgotten."""

from __future__ import annotations

from .endpoint import Parameters
from .flink import ids
from .moment import Moment


def find_last_offset(moment: Moment, parameters: Parameters) -> int | None:
    """Returns the last offset at which the states have the job of `jobid`; None if it is not forgotten."""
    wanted = parameters.get("jobid") or parameters.get("applicationid")
    forgotten = moment.fold.forgotten.all() if wanted is not None else {}
    if wanted is None or not forgotten:
        return None
    job_id = ids.find_job_id(forgotten, wanted)
    return None if job_id is None else forgotten[job_id].last_offset
