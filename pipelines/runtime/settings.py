"""The settings of a job that the runtime reads, from JobGraph.configuration.

Keys are those of the job's configuration; what is not there has the default written here, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class ExecutionMode(StrEnum):
    """How Spark runs the queries of a job."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are in milliseconds."""

    mode: ExecutionMode = ExecutionMode.REAL_TIME
    commit_interval_ms: int = 30
    """Longest wait of a record for its transaction; a commit costs about 5 ms, so 30 leaves it cheap."""
    watermark_interval_ms: int = 200
    """How often a watermark is sent where no records carry it. A window closes
    at most so much late. Flink's default."""
    idle_commit_interval_ms: int = 5_000
    """How often positions are committed when all that came in were watermarks, which are harmless to re-read."""

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> Settings:
        """Reads a job's configuration. Raises ValueError naming the key and what it may be."""
        mode = configuration.get("execution.mode", ExecutionMode.REAL_TIME)
        if mode not in list(ExecutionMode):
            raise ValueError(f"execution.mode is {mode!r}: it may be {' or '.join(ExecutionMode)}")
        return cls(
            mode=ExecutionMode(mode),
            commit_interval_ms=_milliseconds(configuration, "execution.commit-interval-ms", 30),
            watermark_interval_ms=_milliseconds(configuration, "execution.watermark-interval-ms", 200),
        )


def _milliseconds(configuration: Mapping[str, str], key: str, default: int) -> int:
    text = configuration.get(key, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{key} is {text!r}: it must be a whole number of milliseconds above 0")
    return int(text)
