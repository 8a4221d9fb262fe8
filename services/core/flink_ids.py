"""Flink's ids of jobs and vertices: 32 hexadecimal digits, the same in every process.

A job id of tailrace ends with 128 random bits in 32 digits: they are Flink's JobID. All other ids, and job ids that a
client has chosen, are hashed.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Final

_HEX: Final = re.compile(r"[0-9a-f]{32}")
_GENERATED: Final = re.compile(r"(?:.*-)?([0-9a-f]{32})")


@functools.lru_cache(1 << 16)
def to_flink_job_id(job_id: str) -> str:
    """Returns Flink's JobID of a job."""
    found = _GENERATED.fullmatch(job_id)
    return found[1] if found else hash_to_flink_id("job", job_id)


@functools.lru_cache(1 << 16)
def to_flink_vertex_id(vertex_id: str) -> str:
    """Returns Flink's JobVertexID of a vertex."""
    return vertex_id if _HEX.fullmatch(vertex_id) else hash_to_flink_id("vertex", vertex_id)


def hash_to_flink_id(kind: str, text: str) -> str:
    """Returns an id of Flink's form for a text that has none. `kind`: what it is an id of."""
    return hashlib.blake2b(f"{kind}/{text}".encode(), digest_size=16).hexdigest()
