"""The options of a job: the keys of JobGraph.configuration.

The cluster's configuration may have them too, as defaults for all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import islice
from typing import Any

from ...infra.config.option_types import (
    BOOL,
    DURATION,
    FLOAT,
    HOUR,
    INT,
    LOCATION,
    MILLISECOND,
    MINUTE,
    SECOND,
    choice,
    derived,
    optional,
    pattern,
    switchable,
    unlimited,
)
from ...infra.config.options import ConfigOption, OrderedOptions, Scope, find_errors, index
from . import adaptive_scheduler_options, autoscaler_options

_MOST_FAULTS = 5
_JOB = (Scope.JOB,)


class ExecutionMode(StrEnum):
    """How Spark runs the queries of a job."""

    REAL_TIME = "real-time"
    MICRO_BATCH = "micro-batch"


class RuntimeExecutionMode(StrEnum):
    """Whether a job runs as a stream or in stages."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class BatchShuffleMode(StrEnum):
    """How tasks of a job in BATCH mode exchange records."""

    ALL_EXCHANGES_BLOCKING = "ALL_EXCHANGES_BLOCKING"
    ALL_EXCHANGES_PIPELINED = "ALL_EXCHANGES_PIPELINED"


class Isolation(StrEnum):
    """What operators share a process and its transaction."""

    SLOT = "slot"
    VERTEX = "vertex"


class ScheduleMode(StrEnum):
    """When the tasks of a job are scheduled."""

    EAGER = "EAGER"
    LAZY_FROM_SOURCES = "LAZY_FROM_SOURCES"


class StateBackendType(StrEnum):
    """Where keyed state is while a task runs."""

    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


class LoggingLevel(StrEnum):
    """Levels of `logging`."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LatencyGranularity(StrEnum):
    """What the latencies of a subtask are divided by."""

    SINGLE = "single"
    OPERATOR = "operator"
    SUBTASK = "subtask"


class RestartStrategyType(StrEnum):
    """How a job restarts after a failure."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    FAILURE_RATE = "failure-rate"
    EXPONENTIAL_DELAY = "exponential-delay"


class ExternalizedCheckpointRetention(StrEnum):
    """Whether a job's completed checkpoints stay when it ends."""

    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


MODE = ConfigOption(
    key="execution.mode",
    type=choice(ExecutionMode),
    default=ExecutionMode.REAL_TIME,
    doc="How Spark runs the job's queries: record by record, or in small batches where real-time mode will not do.",
    scopes=_JOB,
    ours=True,
)
RUNTIME_MODE = ConfigOption(
    key="execution.runtime-mode",
    type=choice(RuntimeExecutionMode),
    default=RuntimeExecutionMode.STREAMING,
    doc="BATCH: a job with bounded sources runs in stages: a task starts when all tasks before it have finished, in "
    "the slots that they leave (docs/batch.md). A program with an unbounded source is refused. STREAMING: all tasks "
    "run at once. AUTOMATIC: BATCH if all sources are bounded. As a default of the cluster, BATCH means AUTOMATIC.",
    scopes=_JOB,
)
BATCH_SHUFFLE_MODE = ConfigOption(
    key="execution.batch-shuffle-mode",
    type=choice(BatchShuffleMode),
    default=BatchShuffleMode.ALL_EXCHANGES_BLOCKING,
    doc="ALL_EXCHANGES_BLOCKING: a job in BATCH mode runs in stages. ALL_EXCHANGES_PIPELINED: all its tasks run at "
    "once, as in STREAMING mode.",
    scopes=_JOB,
)
SPECULATIVE = ConfigOption(
    key="execution.batch.speculative.enabled",
    type=BOOL,
    default=False,
    doc="Whether slow tasks of a job in stages move to slots of the job on other TaskExecutors that other tasks have "
    "left (docs/batch.md). The job keeps such slots while tasks of the stage run.",
    scopes=_JOB,
)
SLOW_TASK_LOWER_BOUND = ConfigOption(
    key="slow-task-detector.execution-time.baseline-lower-bound",
    type=DURATION,
    default=MINUTE,
    doc="A task that has run for less is never slow.",
    scopes=_JOB,
)
SLOW_TASK_RATIO = ConfigOption(
    key="slow-task-detector.execution-time.baseline-ratio",
    type=FLOAT,
    default=0.75,
    at_least=0.0,
    at_most=1.0,
    doc="The part of the tasks of a vertex that must have finished before others are slow.",
    scopes=_JOB,
)
SLOW_TASK_MULTIPLIER = ConfigOption(
    key="slow-task-detector.execution-time.baseline-multiplier",
    type=FLOAT,
    default=1.5,
    at_least=1.0,
    at_most=1000.0,
    doc="A task is slow when it has run for so many times the median of those that have finished.",
    scopes=_JOB,
)
COMMIT_INTERVAL = ConfigOption(
    key="execution.commit-interval-ms",
    type=INT,
    default=30,
    at_least=1,
    at_most=3_600_000,
    doc="Longest wait of a record for its transaction, in milliseconds. A commit costs about 5 ms, so 30 leaves it "
    "cheap.",
    scopes=_JOB,
    ours=True,
)
WATERMARK_INTERVAL = ConfigOption(
    key="execution.watermark-interval-ms",
    type=INT,
    default=200,
    at_least=1,
    at_most=3_600_000,
    doc="How often, in milliseconds, a watermark is sent where no records carry it. A window closes at most so much "
    "late. Flink's pipeline.auto-watermark-interval, with its default.",
    scopes=_JOB,
    ours=True,
)
MINI_BATCH = ConfigOption(
    key="execution.mini-batch",
    type=BOOL,
    default=False,
    doc="Running reduce, sum, min, max, ... emit one record for each key that changed, with every commit, instead of "
    "one for each record; and sums and the like are made in part before records are shuffled. Less to send and to "
    "read, at the cost of the values in between. Flink SQL's table.exec.mini-batch.enabled.",
    scopes=_JOB,
    ours=True,
)
STATE_BACKEND = ConfigOption(
    key="state.backend.type",
    type=choice(StateBackendType),
    default=StateBackendType.HASHMAP,
    doc="Where keyed state is while a task runs. hashmap: in memory. rocksdb: on the TaskExecutor's disk, for state "
    "larger than memory; its cache and write buffers take the slot's part of taskmanager.memory.managed.size. "
    "Changelogs, checkpoints and savepoints are the same, so a job may continue with the other one.",
    scopes=_JOB,
)
ISOLATION = ConfigOption(
    key="execution.isolation",
    type=choice(Isolation),
    default=Isolation.SLOT,
    doc="`slot`: all tasks of the job in a slot are one process with one transaction, and restart together; records "
    "between them do not go through Kafka, and operators of parallelism 1 are chained although records are partitioned "
    "between them. `vertex`: each task has a process of its own, and restarts alone.",
    scopes=_JOB,
    ours=True,
)
SCHEDULE_MODE = ConfigOption(
    key="execution.schedule-mode",
    type=choice(ScheduleMode),
    default=ScheduleMode.EAGER,
    doc="EAGER: all tasks are deployed once the slots of all are there. LAZY_FROM_SOURCES: a task is deployed when "
    "its inputs run.",
    scopes=_JOB,
    ours=True,
)
CHECKPOINT_INTERVAL = ConfigOption[int | None](
    key="execution.checkpointing.interval",
    type=switchable(DURATION),
    default=3 * MINUTE,
    at_least=10 * MILLISECOND,
    doc="How often a checkpoint is taken. `off`: only when somebody asks for one; state is then kept in changelogs "
    "alone, which grow for as long as the job runs, and recovery takes longer with them. A job that runs is not "
    "switched to `off`.",
    scopes=_JOB,
    is_dynamic=True,
    flink="off",
)
CHECKPOINT_TIMEOUT = ConfigOption(
    key="execution.checkpointing.timeout",
    type=DURATION,
    default=10 * MINUTE,
    at_least=MILLISECOND,
    doc="How long a checkpoint or savepoint may take before it is given up.",
    scopes=_JOB,
    is_dynamic=True,
)
MIN_PAUSE = ConfigOption(
    key="execution.checkpointing.min-pause",
    type=DURATION,
    default=0,
    doc="At least so much time lies between the end of one checkpoint and the beginning of the next.",
    scopes=_JOB,
    is_dynamic=True,
)
MAX_CONCURRENT_CHECKPOINTS = ConfigOption(
    key="execution.checkpointing.max-concurrent-checkpoints",
    type=INT,
    default=1,
    at_least=1,
    at_most=100,
    doc="How many checkpoints may be under way at once. Savepoints are not counted.",
    scopes=_JOB,
    is_dynamic=True,
)
TOLERABLE_FAILED_CHECKPOINTS = ConfigOption[int | None](
    key="execution.checkpointing.tolerable-failed-checkpoints",
    type=unlimited(INT),
    default=None,
    at_least=0,
    doc="How many checkpoints may fail one after another before one more fails the job. Those that a task's own "
    "failure took with it are not counted, nor are savepoints.",
    scopes=_JOB,
    is_dynamic=True,
    flink="0",
)
CHECKPOINT_RETENTION = ConfigOption(
    key="execution.checkpointing.externalized-checkpoint-retention",
    type=choice(ExternalizedCheckpointRetention),
    default=ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
    doc="What becomes of the last checkpoints when the job ends. RETAIN_ON_CANCELLATION keeps them when it is "
    "cancelled or fails, DELETE_ON_CANCELLATION only when it fails, NO_EXTERNALIZED_CHECKPOINTS never. A job that has "
    "finished needs none; one that is suspended keeps them.",
    scopes=_JOB,
    is_dynamic=True,
)
RETAINED_CHECKPOINTS = ConfigOption(
    key="state.checkpoints.num-retained",
    type=INT,
    default=1,
    at_least=1,
    at_most=100,
    doc="How many completed checkpoints are kept; the oldest goes when there is one more.",
    scopes=_JOB,
    is_dynamic=True,
)
CHECKPOINTS_DIRECTORY = ConfigOption[str | None](
    key="state.checkpoints.dir",
    type=derived(LOCATION),
    default=None,
    doc="Where checkpoints are written, in a directory for each job. `auto`: `checkpoints` in the home of the cluster, "
    "which all its machines must then share.",
    scopes=_JOB,
    flink="none",
)
SAVEPOINTS_DIRECTORY = ConfigOption[str | None](
    key="state.savepoints.dir",
    type=derived(LOCATION),
    default=None,
    doc="Where savepoints are written unless another directory is given with the request. `auto`: `savepoints` in "
    "the home of the cluster.",
    scopes=_JOB,
    flink="none",
)
RESTART_STRATEGY = ConfigOption(
    key="restart-strategy.type",
    type=choice(
        RestartStrategyType,
        {
            "off": RestartStrategyType.NONE,
            "disable": RestartStrategyType.NONE,
            "fixeddelay": RestartStrategyType.FIXED_DELAY,
            "failurerate": RestartStrategyType.FAILURE_RATE,
            "exponentialdelay": RestartStrategyType.EXPONENTIAL_DELAY,
        },
    ),
    default=RestartStrategyType.EXPONENTIAL_DELAY,
    doc="What follows from a failed task: `none` fails the job, the others restart the task, and no other. `off` and "
    "`disable` mean `none`. A job with "
    "`execution.bounded` has `none`, unless it sets another one, or the cluster one that is not the default.",
    scopes=_JOB,
    is_dynamic=True,
)
FIXED_DELAY_ATTEMPTS = ConfigOption(
    key="restart-strategy.fixed-delay.attempts",
    type=INT,
    default=1,
    at_least=0,
    doc="How many failures are followed by a restart before one fails the job.",
    scopes=_JOB,
    is_dynamic=True,
)
FIXED_DELAY = ConfigOption(
    key="restart-strategy.fixed-delay.delay",
    type=DURATION,
    default=SECOND,
    doc="How long after a failure the task restarts.",
    scopes=_JOB,
    is_dynamic=True,
)
FAILURE_RATE_MAX = ConfigOption(
    key="restart-strategy.failure-rate.max-failures-per-interval",
    type=INT,
    default=1,
    at_least=1,
    at_most=100_000,
    doc="How many failures an interval may hold before one more fails the job.",
    scopes=_JOB,
    is_dynamic=True,
)
FAILURE_RATE_INTERVAL = ConfigOption(
    key="restart-strategy.failure-rate.failure-rate-interval",
    type=DURATION,
    default=MINUTE,
    at_least=MILLISECOND,
    doc="The interval in which failures are counted.",
    scopes=_JOB,
    is_dynamic=True,
)
FAILURE_RATE_DELAY = ConfigOption(
    key="restart-strategy.failure-rate.delay",
    type=DURATION,
    default=SECOND,
    doc="How long after a failure the task restarts.",
    scopes=_JOB,
    is_dynamic=True,
)
INITIAL_BACKOFF = ConfigOption(
    key="restart-strategy.exponential-delay.initial-backoff",
    type=DURATION,
    default=SECOND,
    at_least=MILLISECOND,
    doc="How long after the first failure the task restarts.",
    scopes=_JOB,
    is_dynamic=True,
)
MAX_BACKOFF = ConfigOption(
    key="restart-strategy.exponential-delay.max-backoff",
    type=DURATION,
    default=MINUTE,
    at_least=MILLISECOND,
    doc="The longest that a task waits for its restart.",
    scopes=_JOB,
    is_dynamic=True,
)
BACKOFF_MULTIPLIER = ConfigOption(
    key="restart-strategy.exponential-delay.backoff-multiplier",
    type=FLOAT,
    default=1.5,
    above=1.0,
    at_most=1000.0,
    doc="By how much the wait grows from one failure to the next.",
    scopes=_JOB,
    is_dynamic=True,
)
RESET_BACKOFF_THRESHOLD = ConfigOption(
    key="restart-strategy.exponential-delay.reset-backoff-threshold",
    type=DURATION,
    default=HOUR,
    at_least=MILLISECOND,
    doc="How long a job must run without a failure for the wait to begin at the initial backoff again.",
    scopes=_JOB,
    is_dynamic=True,
)
JITTER_FACTOR = ConfigOption(
    key="restart-strategy.exponential-delay.jitter-factor",
    type=FLOAT,
    default=0.1,
    at_least=0.0,
    at_most=1.0,
    doc="By what part of itself the wait is made longer or shorter, so that jobs that failed together do not restart "
    "together. Derived from the job's id and the failure's offset, never drawn: decided again, it is the same.",
    scopes=_JOB,
    is_dynamic=True,
)
ATTEMPTS_BEFORE_RESET = ConfigOption[int | None](
    key="restart-strategy.exponential-delay.attempts-before-reset-backoff",
    type=unlimited(INT),
    default=None,
    at_least=0,
    doc="How many failures are followed by a restart before one fails the job; counted anew when the wait is reset.",
    scopes=_JOB,
    is_dynamic=True,
)
STATE_RECOVERY_PATH = ConfigOption[str | None](
    key="execution.state-recovery.path",
    type=optional(LOCATION),
    default=None,
    doc="The savepoint or checkpoint that a job begins with, as `tailrace run -s` gives it.",
    scopes=_JOB,
)
IGNORE_UNCLAIMED_STATE = ConfigOption(
    key="execution.state-recovery.ignore-unclaimed-state",
    type=BOOL,
    default=False,
    doc="Whether state may be left out that no operator of the job takes, as `tailrace run --allow-non-restored-state` "
    "says.",
    scopes=_JOB,
)

BOUNDED = ConfigOption(
    key="execution.bounded",
    type=BOOL,
    default=False,
    doc="Whether all sources of the job come to an end. The DataStream API says so of each job; a JobGraph that is "
    "made otherwise may.",
    scopes=_JOB,
    ours=True,
)
LOGGING_LEVEL = ConfigOption(
    key="logging.level",
    type=choice(LoggingLevel),
    default=LoggingLevel.INFO,
    doc="The least level of what the job's functions log with Python's `logging`.",
    scopes=_JOB,
    ours=True,
)
LOGGING_DIRECTORY = ConfigOption[str | None](
    key="logging.directory",
    type=optional(pattern("absolute path", lambda text: text.startswith("/") and text.isprintable())),
    default=None,
    doc="A directory on the machines of the TaskExecutors: what the job's functions log goes to a file of the job "
    "there, which is rotated. `none`: to the logs of the TaskExecutors.",
    scopes=_JOB,
    ours=True,
)
LATENCY_INTERVAL = ConfigOption(
    key="metrics.latency.interval",
    type=DURATION,
    default=0,
    doc="How often each subtask of a source emits a latency marker; 0: never. Markers travel with the records, and the "
    "subtasks behind measure how old they are (docs/metrics.md).",
    scopes=_JOB,
)
LATENCY_GRANULARITY = ConfigOption(
    key="metrics.latency.granularity",
    type=choice(LatencyGranularity),
    default=LatencyGranularity.OPERATOR,
    doc="How many latency histograms a subtask has: `single`, one; `operator`, one for each source; `subtask`, one for "
    "each subtask of a source.",
    scopes=_JOB,
)

EXECUTION: tuple[ConfigOption[Any], ...] = (
    MODE,
    RUNTIME_MODE,
    BATCH_SHUFFLE_MODE,
    SPECULATIVE,
    SLOW_TASK_LOWER_BOUND,
    SLOW_TASK_RATIO,
    SLOW_TASK_MULTIPLIER,
    BOUNDED,
    LOGGING_LEVEL,
    LOGGING_DIRECTORY,
    LATENCY_INTERVAL,
    LATENCY_GRANULARITY,
    COMMIT_INTERVAL,
    WATERMARK_INTERVAL,
    MINI_BATCH,
    STATE_BACKEND,
    ISOLATION,
    SCHEDULE_MODE,
)
CHECKPOINTING: tuple[ConfigOption[Any], ...] = (
    CHECKPOINT_INTERVAL,
    CHECKPOINT_TIMEOUT,
    MIN_PAUSE,
    MAX_CONCURRENT_CHECKPOINTS,
    TOLERABLE_FAILED_CHECKPOINTS,
    CHECKPOINT_RETENTION,
    RETAINED_CHECKPOINTS,
    CHECKPOINTS_DIRECTORY,
    SAVEPOINTS_DIRECTORY,
    STATE_RECOVERY_PATH,
    IGNORE_UNCLAIMED_STATE,
)
RESTART: tuple[ConfigOption[Any], ...] = (
    RESTART_STRATEGY,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY,
    FAILURE_RATE_MAX,
    FAILURE_RATE_INTERVAL,
    FAILURE_RATE_DELAY,
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    BACKOFF_MULTIPLIER,
    RESET_BACKOFF_THRESHOLD,
    JITTER_FACTOR,
    ATTEMPTS_BEFORE_RESET,
)
OPTIONS = (
    *EXECUTION,
    *CHECKPOINTING,
    *RESTART,
    *adaptive_scheduler_options.OPTIONS,
    *autoscaler_options.OPTIONS,
)
ORDERED = (
    OrderedOptions(INITIAL_BACKOFF, MAX_BACKOFF, is_strict=False),
    OrderedOptions(INITIAL_BACKOFF, RESET_BACKOFF_THRESHOLD, is_strict=False),
    OrderedOptions(
        autoscaler_options.VERTEX_MIN_PARALLELISM,
        autoscaler_options.VERTEX_MAX_PARALLELISM,
        is_strict=False,
    ),
)
BY_KEY: Mapping[str, ConfigOption[Any]] = index(OPTIONS)


def faults(configuration: Mapping[str, str]) -> list[str]:
    """Returns the errors of a job's configuration: unknown keys, invalid values, contradictions; the first few."""
    found = list(islice(find_errors(configuration, BY_KEY, ORDERED), _MOST_FAULTS + 1))
    return [*found[:_MOST_FAULTS], "and more"] if len(found) > _MOST_FAULTS else found
