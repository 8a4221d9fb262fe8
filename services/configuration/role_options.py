"""The options that roles use, read from the log: from ConfigurationChanged, StartJob and RegisterTaskExecutor.

All functions are pure and total. A value from an older or newer version, or from another client, must not stop a fold:
unknown keys are ignored, and invalid values give the default.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ...infra.config.option_types import Duration
from ...pipelines.graph import adaptive_scheduler_options, autoscaler_options, execution_mode, job_options
from ...pipelines.graph.job_options import (
    ExternalizedCheckpointRetention,
    RestartStrategyType,
    ScheduleMode,
)
from ...schemas.types import JobGraph
from .options.jobs import (
    JOBSTORE_EXPIRATION_TIME,
    JOBSTORE_MAX_CAPACITY,
    MAX_JOBS,
    MAX_JOBS_PER_CLIENT,
    MAX_WAITING_PROGRAMS,
    MAX_WAITING_PROGRAMS_PER_CLIENT,
)
from .options.quarantine import (
    MAX_QUARANTINED_PERCENT,
    MAX_TASK_FAILURES,
    QUARANTINE_TIME,
    TASK_FAILURES_INTERVAL,
)
from .options.resource_manager import (
    GONE_EXPIRATION_TIME,
    GONE_MAX_CAPACITY,
    REGISTRATION_TIMEOUT,
    RESOURCE_MANAGER_MODE,
    SHUTDOWN_TIMEOUT,
    START_UP_TIME,
    START_WORKER_RETRY_INTERVAL,
    TASK_MANAGER_TIMEOUT,
    WORKER_DRIVER,
    ResourceManagerMode,
    WorkerDriver,
)
from .options.slots import (
    EVENLY_SPREAD_OUT,
    MAX_SLOTS,
    SLOT_IDLE_TIMEOUT,
    SLOT_REQUEST_TIMEOUT,
    UNFULFILLABLE_TIMEOUT,
)
from .options.task_executor import NUMBER_OF_TASK_SLOTS, RESTART_GRACE, SLOT_TIMEOUT
from .options.tenants import (
    TENANT_JOB_NAME_PREFIX,
    TENANT_MAX_JOBS,
    TENANT_MAX_REQUESTS,
    TENANT_MAX_SLOTS,
    TENANTS,
    option_of,
)
from .options.yarn import APPLICATION_JOB_ID


class ResourceManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """From ConfigurationChanged. `max_slots`: None for no limit; `slots_per_worker`: for workers that it starts;
    `sizes_workers`: whether the driver starts workers of any size."""

    slot_request_timeout: Duration = SLOT_REQUEST_TIMEOUT.default
    unfulfillable_timeout: Duration = UNFULFILLABLE_TIMEOUT.default
    start_up_time: Duration = START_UP_TIME.default
    restart_grace: Duration = RESTART_GRACE.default
    mode: ResourceManagerMode = RESOURCE_MANAGER_MODE.default
    slots_per_worker: int = NUMBER_OF_TASK_SLOTS.default
    sizes_workers: bool = False
    max_slots: int | None = MAX_SLOTS.default
    taskmanager_timeout: Duration = TASK_MANAGER_TIMEOUT.default
    registration_timeout: Duration = REGISTRATION_TIMEOUT.default
    start_worker_retry_interval: Duration = START_WORKER_RETRY_INTERVAL.default
    shutdown_timeout: Duration = SHUTDOWN_TIMEOUT.default
    evenly_spread_out: bool = EVENLY_SPREAD_OUT.default
    gone_expiration_time: Duration = GONE_EXPIRATION_TIME.default
    max_gone: int = GONE_MAX_CAPACITY.default
    max_task_failures: int = MAX_TASK_FAILURES.default
    task_failures_interval: Duration = TASK_FAILURES_INTERVAL.default
    quarantine_time: Duration = QUARANTINE_TIME.default
    max_quarantined_percent: int = MAX_QUARANTINED_PERCENT.default

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> ResourceManagerOptions:
        """Reads the options. Never fails."""
        return cls(
            slot_request_timeout=SLOT_REQUEST_TIMEOUT.of(configuration),
            unfulfillable_timeout=UNFULFILLABLE_TIMEOUT.of(configuration),
            start_up_time=START_UP_TIME.of(configuration),
            restart_grace=RESTART_GRACE.of(configuration),
            mode=RESOURCE_MANAGER_MODE.of(configuration),
            slots_per_worker=NUMBER_OF_TASK_SLOTS.of(configuration),
            sizes_workers=WORKER_DRIVER.of(configuration) is not WorkerDriver.LOCAL_PROCESS,
            max_slots=MAX_SLOTS.of(configuration),
            taskmanager_timeout=TASK_MANAGER_TIMEOUT.of(configuration),
            registration_timeout=REGISTRATION_TIMEOUT.of(configuration),
            start_worker_retry_interval=START_WORKER_RETRY_INTERVAL.of(configuration),
            shutdown_timeout=SHUTDOWN_TIMEOUT.of(configuration),
            evenly_spread_out=EVENLY_SPREAD_OUT.of(configuration),
            gone_expiration_time=GONE_EXPIRATION_TIME.of(configuration),
            max_gone=GONE_MAX_CAPACITY.of(configuration),
            max_task_failures=MAX_TASK_FAILURES.of(configuration),
            task_failures_interval=TASK_FAILURES_INTERVAL.of(configuration),
            quarantine_time=QUARANTINE_TIME.of(configuration),
            max_quarantined_percent=MAX_QUARANTINED_PERCENT.of(configuration),
        )


class TenantOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant may do, from ConfigurationChanged. None: no limit of its own."""

    max_jobs: int | None = None
    max_slots: int | None = None
    max_requests_per_minute: int | None = None
    job_name_prefix: str = ""

    @classmethod
    def from_configuration(cls, tenant: str, configuration: Mapping[str, str]) -> TenantOptions:
        """Reads the options of a tenant. Never fails."""
        return cls(
            max_jobs=option_of(TENANT_MAX_JOBS, tenant).of(configuration),
            max_slots=option_of(TENANT_MAX_SLOTS, tenant).of(configuration),
            max_requests_per_minute=option_of(TENANT_MAX_REQUESTS, tenant).of(configuration),
            job_name_prefix=option_of(TENANT_JOB_NAME_PREFIX, tenant).of(configuration),
        )


class DispatcherOptions(msgspec.Struct, frozen=True, kw_only=True):
    """From ConfigurationChanged. The limits are numbers of jobs."""

    expiration_time: Duration = JOBSTORE_EXPIRATION_TIME.default
    max_ended: int = JOBSTORE_MAX_CAPACITY.default
    max_jobs: int = MAX_JOBS.default
    max_jobs_per_client: int = MAX_JOBS_PER_CLIENT.default
    max_programs: int = MAX_WAITING_PROGRAMS.default
    max_programs_per_client: int = MAX_WAITING_PROGRAMS_PER_CLIENT.default
    tenants: Mapping[str, TenantOptions] = {}
    application_job_id: str | None = None

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> DispatcherOptions:
        """Reads the options. Never fails."""
        return cls(
            expiration_time=JOBSTORE_EXPIRATION_TIME.of(configuration),
            max_ended=JOBSTORE_MAX_CAPACITY.of(configuration),
            max_jobs=MAX_JOBS.of(configuration),
            max_jobs_per_client=MAX_JOBS_PER_CLIENT.of(configuration),
            max_programs=MAX_WAITING_PROGRAMS.of(configuration),
            max_programs_per_client=MAX_WAITING_PROGRAMS_PER_CLIENT.of(configuration),
            tenants={
                name: TenantOptions.from_configuration(name, configuration)
                for name in TENANTS.of(configuration)
            },
            application_job_id=APPLICATION_JOB_ID.of(configuration),
        )


class TaskExecutorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """From RegisterTaskExecutor."""

    slot_timeout: Duration = SLOT_TIMEOUT.default
    max_task_failures: int = MAX_TASK_FAILURES.default
    task_failures_interval: Duration = TASK_FAILURES_INTERVAL.default

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> TaskExecutorOptions:
        """Reads the options. Never fails."""
        return cls(
            slot_timeout=SLOT_TIMEOUT.of(configuration),
            max_task_failures=MAX_TASK_FAILURES.of(configuration),
            task_failures_interval=TASK_FAILURES_INTERVAL.of(configuration),
        )


class NoRestart(msgspec.Struct, frozen=True, tag="none"):
    """The first failure fails the job."""


class FixedDelay(msgspec.Struct, frozen=True, tag="fixed-delay"):
    """The failure after `attempts` restarts fails the job."""

    attempts: int
    delay: Duration


class FailureRate(msgspec.Struct, frozen=True, tag="failure-rate"):
    """More than `max_failures` failures within `interval` fail the job."""

    max_failures: int
    interval: Duration
    delay: Duration


class ExponentialDelay(msgspec.Struct, frozen=True, tag="exponential-delay"):
    """The restart delay grows by `multiplier` with each failure, until `reset_threshold` passes without one.

    `initial` is at most `longest`; `jitter` is a fraction of the delay, 0 to 1; `attempts` counts since the reset, None
    for no limit.
    """

    initial: Duration
    longest: Duration
    multiplier: float
    reset_threshold: Duration
    jitter: float
    attempts: int | None


RestartStrategyOptions = NoRestart | FixedDelay | FailureRate | ExponentialDelay


def restart_strategy(configuration: Mapping[str, str]) -> RestartStrategyOptions:
    """Returns the restart strategy of a configuration. Never fails."""
    match job_options.RESTART_STRATEGY.of(configuration):
        case RestartStrategyType.NONE:
            return NoRestart()
        case RestartStrategyType.FIXED_DELAY:
            return FixedDelay(
                attempts=job_options.FIXED_DELAY_ATTEMPTS.of(configuration),
                delay=job_options.FIXED_DELAY.of(configuration),
            )
        case RestartStrategyType.FAILURE_RATE:
            return FailureRate(
                max_failures=job_options.FAILURE_RATE_MAX.of(configuration),
                interval=job_options.FAILURE_RATE_INTERVAL.of(configuration),
                delay=job_options.FAILURE_RATE_DELAY.of(configuration),
            )
        case RestartStrategyType.EXPONENTIAL_DELAY:
            longest = job_options.MAX_BACKOFF.of(configuration)
            return ExponentialDelay(
                initial=min(job_options.INITIAL_BACKOFF.of(configuration), longest),
                longest=longest,
                multiplier=job_options.BACKOFF_MULTIPLIER.of(configuration),
                reset_threshold=job_options.RESET_BACKOFF_THRESHOLD.of(configuration),
                jitter=job_options.JITTER_FACTOR.of(configuration),
                attempts=job_options.ATTEMPTS_BEFORE_RESET.of(configuration),
            )


class CheckpointingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a job's checkpoints are triggered and how long they are retained. Directories are absolute URIs; empty if
    the cluster configured none, as in logs of older versions.

    `interval`: None for no periodic checkpoints. A leader writes the default into StartJob, so if the option is absent,
    an earlier release wrote the log, whose default was `off`. `tolerable_failures`: None for any number.
    """

    interval: Duration | None = None
    timeout: Duration = job_options.CHECKPOINT_TIMEOUT.default
    min_pause: Duration = job_options.MIN_PAUSE.default
    max_concurrent: int = job_options.MAX_CONCURRENT_CHECKPOINTS.default
    tolerable_failures: int | None = job_options.TOLERABLE_FAILED_CHECKPOINTS.default
    retention: ExternalizedCheckpointRetention = job_options.CHECKPOINT_RETENTION.default
    retained: int = job_options.RETAINED_CHECKPOINTS.default
    checkpoints_directory: str = ""
    savepoints_directory: str = ""

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> CheckpointingOptions:
        """Reads the options. Never fails."""
        interval = job_options.CHECKPOINT_INTERVAL
        is_periodic = interval.key in configuration and not execution_mode.runs_in_stages(configuration)
        return cls(
            interval=interval.of(configuration) if is_periodic else None,
            timeout=job_options.CHECKPOINT_TIMEOUT.of(configuration),
            min_pause=job_options.MIN_PAUSE.of(configuration),
            max_concurrent=job_options.MAX_CONCURRENT_CHECKPOINTS.of(configuration),
            tolerable_failures=job_options.TOLERABLE_FAILED_CHECKPOINTS.of(configuration),
            retention=job_options.CHECKPOINT_RETENTION.of(configuration),
            retained=job_options.RETAINED_CHECKPOINTS.of(configuration),
            checkpoints_directory=job_options.CHECKPOINTS_DIRECTORY.of(configuration) or "",
            savepoints_directory=job_options.SAVEPOINTS_DIRECTORY.of(configuration) or "",
        )


class AutoscalerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the parallelism of a job is decided; docs/autoscaler.md."""

    is_enabled: bool = autoscaler_options.ENABLED.default
    is_scaling_enabled: bool = autoscaler_options.SCALING_ENABLED.default
    metrics_window: Duration = autoscaler_options.METRICS_WINDOW.default
    stabilization_interval: Duration = autoscaler_options.STABILIZATION_INTERVAL.default
    target_utilization: float = autoscaler_options.TARGET_UTILIZATION.default
    target_utilization_boundary: float = autoscaler_options.TARGET_UTILIZATION_BOUNDARY.default
    scale_up_grace_period: Duration = autoscaler_options.SCALE_UP_GRACE_PERIOD.default
    catch_up_duration: Duration = autoscaler_options.CATCH_UP_DURATION.default
    restart_time: Duration = autoscaler_options.RESTART_TIME.default
    backlog_lag_threshold: Duration = autoscaler_options.BACKLOG_LAG_THRESHOLD.default
    min_parallelism: int = autoscaler_options.VERTEX_MIN_PARALLELISM.default
    max_parallelism: int = autoscaler_options.VERTEX_MAX_PARALLELISM.default
    max_scale_down_factor: float = autoscaler_options.MAX_SCALE_DOWN_FACTOR.default
    max_scale_up_factor: float = autoscaler_options.MAX_SCALE_UP_FACTOR.default
    detects_effectiveness: bool = autoscaler_options.EFFECTIVENESS_DETECTION.default
    effectiveness_threshold: float = autoscaler_options.EFFECTIVENESS_THRESHOLD.default

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> AutoscalerOptions:
        """Reads the options. Never fails."""
        return cls(
            is_enabled=autoscaler_options.ENABLED.of(configuration),
            is_scaling_enabled=autoscaler_options.SCALING_ENABLED.of(configuration),
            metrics_window=autoscaler_options.METRICS_WINDOW.of(configuration),
            stabilization_interval=autoscaler_options.STABILIZATION_INTERVAL.of(configuration),
            target_utilization=autoscaler_options.TARGET_UTILIZATION.of(configuration),
            target_utilization_boundary=autoscaler_options.TARGET_UTILIZATION_BOUNDARY.of(configuration),
            scale_up_grace_period=autoscaler_options.SCALE_UP_GRACE_PERIOD.of(configuration),
            catch_up_duration=autoscaler_options.CATCH_UP_DURATION.of(configuration),
            restart_time=autoscaler_options.RESTART_TIME.of(configuration),
            backlog_lag_threshold=autoscaler_options.BACKLOG_LAG_THRESHOLD.of(configuration),
            min_parallelism=autoscaler_options.VERTEX_MIN_PARALLELISM.of(configuration),
            max_parallelism=autoscaler_options.VERTEX_MAX_PARALLELISM.of(configuration),
            max_scale_down_factor=autoscaler_options.MAX_SCALE_DOWN_FACTOR.of(configuration),
            max_scale_up_factor=autoscaler_options.MAX_SCALE_UP_FACTOR.of(configuration),
            detects_effectiveness=autoscaler_options.EFFECTIVENESS_DETECTION.of(configuration),
            effectiveness_threshold=autoscaler_options.EFFECTIVENESS_THRESHOLD.of(configuration),
        )


class AdaptiveSchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a job with the adaptive scheduler goes on with fewer slots, and with more."""

    submission_stabilization_timeout: Duration = (
        adaptive_scheduler_options.SUBMISSION_STABILIZATION_TIMEOUT.default
    )
    executing_stabilization_timeout: Duration = (
        adaptive_scheduler_options.EXECUTING_STABILIZATION_TIMEOUT.default
    )
    cooldown: Duration = adaptive_scheduler_options.COOLDOWN.default

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> AdaptiveSchedulerOptions:
        """Reads the options. Never fails."""
        options = adaptive_scheduler_options
        return cls(
            submission_stabilization_timeout=options.SUBMISSION_STABILIZATION_TIMEOUT.of(configuration),
            executing_stabilization_timeout=options.EXECUTING_STABILIZATION_TIMEOUT.of(configuration),
            cooldown=options.COOLDOWN.of(configuration),
        )


class SlowTaskDetectorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a task of a stage is slow."""

    lower_bound: Duration = job_options.SLOW_TASK_LOWER_BOUND.default
    ratio: float = job_options.SLOW_TASK_RATIO.default
    multiplier: float = job_options.SLOW_TASK_MULTIPLIER.default

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> SlowTaskDetectorOptions | None:
        """Reads the options; None if tasks are not to move. Never fails."""
        is_enabled = job_options.SPECULATIVE.of(configuration)
        if not is_enabled or not execution_mode.runs_in_stages(configuration):
            return None
        return cls(
            lower_bound=job_options.SLOW_TASK_LOWER_BOUND.of(configuration),
            ratio=job_options.SLOW_TASK_RATIO.of(configuration),
            multiplier=job_options.SLOW_TASK_MULTIPLIER.of(configuration),
        )


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """From StartJob; `job_configuration` creates the content of StartJob."""

    restart_strategy: RestartStrategyOptions = restart_strategy({})
    schedule_mode: ScheduleMode = job_options.SCHEDULE_MODE.default
    has_slot_processes: bool = execution_mode.has_slot_processes({})
    """Whether the tasks of a slot are one process."""
    runs_in_stages: bool = False
    slow_task_detector: SlowTaskDetectorOptions | None = None
    slot_idle_timeout: Duration = SLOT_IDLE_TIMEOUT.default
    checkpointing: CheckpointingOptions = CheckpointingOptions()
    adaptive_scheduler: AdaptiveSchedulerOptions = AdaptiveSchedulerOptions()
    autoscaler: AutoscalerOptions = AutoscalerOptions()

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> JobOptions:
        """Reads the options. Never fails."""
        return cls(
            restart_strategy=restart_strategy(configuration),
            schedule_mode=execution_mode.schedule_mode(configuration),
            has_slot_processes=execution_mode.has_slot_processes(configuration),
            runs_in_stages=execution_mode.runs_in_stages(configuration),
            slow_task_detector=SlowTaskDetectorOptions.from_configuration(configuration),
            slot_idle_timeout=SLOT_IDLE_TIMEOUT.of(configuration),
            checkpointing=CheckpointingOptions.from_configuration(configuration),
            adaptive_scheduler=AdaptiveSchedulerOptions.from_configuration(configuration),
            autoscaler=AutoscalerOptions.from_configuration(configuration),
        )


_FOR_JOBS = frozenset(option.key for option in (*job_options.OPTIONS, SLOT_IDLE_TIMEOUT))


def with_configuration(graph: JobGraph, configuration: Mapping[str, str]) -> JobGraph:
    """Returns the graph with the effective options of its job, as TaskExecutors receive it."""
    return replace(graph, configuration={**graph.configuration, **configuration})


def job_configuration(cluster: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """Returns the effective options of a job: the cluster's options for jobs, overridden by the job's own.

    `cluster` is the map of the last ConfigurationChanged, `job` is JobGraph.configuration. Never fails.
    """
    defaults = {key: value for key, value in cluster.items() if key in _FOR_JOBS}
    own = {key: value for key, value in job.items() if key in job_options.BY_KEY}
    for directory in (job_options.CHECKPOINTS_DIRECTORY, job_options.SAVEPOINTS_DIRECTORY):
        if directory.key in defaults and directory.of(own) is None:
            # `auto`: only the cluster knows its home.
            own.pop(directory.key, None)
    restarts = job_options.RESTART_STRATEGY
    if job_options.BOUNDED.of(own) and restarts.of(defaults) is restarts.default:
        # A bounded job should not wait until an error disappears. The cluster's defaults are in its configuration.
        defaults[restarts.key] = RestartStrategyType.NONE.value
    return {**defaults, **own}
