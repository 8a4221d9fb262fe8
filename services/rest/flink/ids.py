"""Flink's ids for tailrace's: 32 hexadecimal digits, the same in every server.

Those of jobs and vertices are in services/core/flink_ids.py; all others are hashed. Paths accept both forms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from typing import Final

from ...core.flink_ids import hash_to_flink_id, to_flink_job_id, to_flink_vertex_id

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_WELL_FORMED: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


to_job_id = to_flink_job_id
to_vertex_id = to_flink_vertex_id


@functools.lru_cache(1 << 16)
def to_group_id(job_id: str, group: str) -> str:
    """Returns Flink's SlotSharingGroupId of a slot sharing group of a job."""
    return hash_to_flink_id("group", f"{job_id}/{group}")


def to_attempt_id(job_id: str, vertex_id: str, subtask_index: int, attempt_number: int) -> str:
    """Returns Flink's ExecutionAttemptID."""
    return f"{to_job_id(job_id)}_{to_vertex_id(vertex_id)}_{subtask_index}_{attempt_number}"


def find_job_id(job_ids: Collection[str], wanted: str) -> str | None:
    """Returns the job with this id in tailrace's or Flink's form; None if there is none."""
    if wanted in job_ids:
        return wanted
    return next((job_id for job_id in job_ids if to_job_id(job_id) == wanted), None)


def is_well_formed(wanted: str) -> bool:
    """Returns whether a text may be an id."""
    return _WELL_FORMED.fullmatch(wanted) is not None


def is_flink_id(wanted: str) -> bool:
    """Returns whether a text has the form of Flink's ids."""
    return _HEX.fullmatch(wanted) is not None
