"""The options of a job that the runtime reads from JobGraph.configuration; pipelines.graph.job_options has all of
them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ....infra.config.option_types import MILLISECOND
from ....infra.config.options import ConfigOption, T
from ...graph import job_options
from ...graph.job_options import ExecutionMode, LatencyGranularity, StateBackendType

__all__ = ["ExecutionMode", "StateBackendType", "TaskSettings"]


class TaskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are in milliseconds."""

    mode: ExecutionMode = job_options.MODE.default
    state_backend: StateBackendType = job_options.STATE_BACKEND.default
    commit_interval_ms: int = job_options.COMMIT_INTERVAL.default
    watermark_interval_ms: int = job_options.WATERMARK_INTERVAL.default
    periodic_checkpoints: bool = False
    """Whether checkpoints are taken at intervals, not only on request."""
    latency_interval_ms: int = 0
    """How often a source emits a latency marker; 0: never."""
    latency_granularity: LatencyGranularity = LatencyGranularity.OPERATOR
    idle_commit_interval_ms: int = 5_000
    """How often positions are committed if only watermarks arrived; reading these again is harmless."""

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> TaskSettings:
        """Reads a job's configuration. Raises ValueError with the key and its valid values."""
        interval = job_options.CHECKPOINT_INTERVAL
        return cls(
            mode=_value(job_options.MODE, configuration),
            state_backend=_value(job_options.STATE_BACKEND, configuration),
            commit_interval_ms=_value(job_options.COMMIT_INTERVAL, configuration),
            watermark_interval_ms=_value(job_options.WATERMARK_INTERVAL, configuration),
            latency_interval_ms=_to_milliseconds(_value(job_options.LATENCY_INTERVAL, configuration)),
            latency_granularity=_value(job_options.LATENCY_GRANULARITY, configuration),
            # Like the JobMaster: a job that was started without the option takes no checkpoints.
            periodic_checkpoints=interval.key in configuration
            and _value(interval, configuration) is not None,
        )


def _to_milliseconds(duration: int) -> int:
    """Rounds up, so that only 0 is 0."""
    return -(-duration // MILLISECOND)


def _value(option: ConfigOption[T], configuration: Mapping[str, str]) -> T:
    text = configuration.get(option.key)
    return option.default if text is None else option.read(text)
