"""Flink's ids for tailrace's: 32 hexadecimal digits, the same in every server.

A job id of tailrace ends with 128 random bits in 32 digits: they are Flink's JobID. All other ids, and job ids that a
client has chosen, are hashed. Paths accept both forms.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection
from typing import Final

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_GENERATED: Final = re.compile(r"(?:.*-)?([0-9a-f]{32})")
_WELL_FORMED: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@functools.lru_cache(1 << 16)
def to_job_id(job_id: str) -> str:
    """Returns Flink's JobID of a job."""
    found = _GENERATED.fullmatch(job_id)
    return found[1] if found else _digest("job", job_id)


@functools.lru_cache(1 << 16)
def to_vertex_id(vertex_id: str) -> str:
    """Returns Flink's JobVertexID of a vertex."""
    return vertex_id if _HEX.fullmatch(vertex_id) else _digest("vertex", vertex_id)


@functools.lru_cache(1 << 16)
def to_group_id(job_id: str, group: str) -> str:
    """Returns Flink's SlotSharingGroupId of a slot sharing group of a job."""
    return _digest("group", f"{job_id}/{group}")


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


def _digest(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}/{text}".encode(), digest_size=16).hexdigest()
