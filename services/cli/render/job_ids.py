"""Prefixes of job ids, for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

_RANDOM_PART = re.compile(r"-[0-9a-f]{32}\Z")
_SHOWN_DIGITS = 8
"""Of the random part of a job's id, unless more are needed."""


def shorten_job_ids(job_ids: Iterable[str]) -> dict[str, str]:
    """Returns for each id the shortest prefix that commands accept for it and that shows 8 digits of its random part.

    An id without a random part, which a client has chosen itself, stays whole.
    """
    ordered = sorted(set(job_ids))
    needed = dict.fromkeys(ordered, 0)
    for one, other in pairwise(ordered):
        common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
        needed[one], needed[other] = max(needed[one], common + 1), common + 1
    return {
        job_id: job_id
        if (random := _RANDOM_PART.search(job_id)) is None
        else job_id[: max(needed[job_id], random.start() + 1 + _SHOWN_DIGITS)]
        for job_id in ordered
    }
