"""How the checkpoints of a job are configured."""

from __future__ import annotations

import msgspec

from ...configuration.role_options import CheckpointingOptions, job_configuration
from ..endpoint import Parameters
from ..moment import Moment
from .lookup import dispatcher, find_graph, find_job

_FOREVER = 2**63 - 1


class Externalization(msgspec.Struct, frozen=True):
    """Whether checkpoints outlive their job."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfiguration(msgspec.Struct, frozen=True):
    """/jobs/:jobid/checkpoints/config: Flink's CheckpointConfigInfo. Times in milliseconds."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


def configuration(moment: Moment, parameters: Parameters) -> CheckpointConfiguration:
    """GET /jobs/:jobid/checkpoints/config"""
    _, view = find_job(moment, parameters)
    cluster = dispatcher(moment).configuration or {}
    options = CheckpointingOptions.from_configuration(
        {**job_configuration(cluster, find_graph(moment, view).configuration), **view.changed_options}
    )
    is_retained = options.retention.value != "NO_EXTERNALIZED_CHECKPOINTS"
    tolerable = options.tolerable_failures
    return CheckpointConfiguration(
        mode="exactly_once",
        interval=_FOREVER if options.interval is None else options.interval // 1000,
        timeout=options.timeout // 1000,
        min_pause=options.min_pause // 1000,
        max_concurrent=options.max_concurrent,
        externalization=Externalization(
            enabled=is_retained, delete_on_cancellation=options.retention.value != "RETAIN_ON_CANCELLATION"
        ),
        state_backend="StreamTask",
        checkpoint_storage="FileSystemCheckpointStorage",
        unaligned_checkpoints=True,
        tolerable_failed_checkpoints=2**31 - 1 if tolerable is None else tolerable,
        aligned_checkpoint_timeout=0,
        checkpoints_after_tasks_finish=True,
        state_changelog_enabled=True,
        changelog_periodic_materialization_interval=_FOREVER
        if options.interval is None
        else options.interval // 1000,
        changelog_storage="kafka",
    )
