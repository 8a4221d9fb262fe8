"""The table of all metrics; docs/metrics.md is generated from it.

A name is `tailrace_`, Flink's scope and Flink's metric name, as Flink's Prometheus reporter composes it. Where
OpenMetrics requires it, a name ends with its base unit, and a counter with `_total`. Flink's times per second are
counters of seconds here: `rate` of such a counter is the fraction of the time.

Meanings: https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/metrics/
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

_UNITS: Final = ("seconds", "bytes")


class Kind(StrEnum):
    """The type of a metric (OpenMetrics)."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One metric."""

    family: str
    """The name, without `_total`."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    flink: str | None = None
    """Flink's name of it; None: only tailrace has it."""

    @property
    def name(self) -> str:
        """The name of its samples."""
        return f"{self.family}_total" if self.kind is Kind.COUNTER else self.family

    @property
    def unit(self) -> str:
        """The base unit; empty for a number."""
        return next((unit for unit in _UNITS if self.family.endswith(f"_{unit}")), "")


def _gauge(family: str, text: str, labels: tuple[str, ...] = (), flink: str | None = None) -> Metric:
    return Metric(family, Kind.GAUGE, text, labels, flink)


def _counter(family: str, text: str, labels: tuple[str, ...] = (), flink: str | None = None) -> Metric:
    return Metric(family, Kind.COUNTER, text, labels, flink)


_MASTER: Final = "tailrace_jobmanager_"
_JOB: Final = "tailrace_jobmanager_job_"
_WORKER: Final = "tailrace_taskmanager_"
_TASK: Final = "tailrace_taskmanager_job_task_"
_JOB_LABELS: Final = ("job_id", "job_name")
_VERTEX_LABELS: Final = ("tm_id", "job_id", "job_name", "task_id", "task_name")
_TASK_LABELS: Final = (*_VERTEX_LABELS, "subtask_index")

TASK_MANAGERS: Final = _gauge(
    f"{_MASTER}numRegisteredTaskManagers", "Registered TaskExecutors.", flink="numRegisteredTaskManagers"
)
RUNNING_JOBS: Final = _gauge(f"{_MASTER}numRunningJobs", "Jobs in status RUNNING.", flink="numRunningJobs")
SLOTS_TOTAL: Final = _gauge(
    f"{_MASTER}taskSlotsTotal", "Slots of all registered TaskExecutors.", flink="taskSlotsTotal"
)
SLOTS_AVAILABLE: Final = _gauge(f"{_MASTER}taskSlotsAvailable", "Free slots.", flink="taskSlotsAvailable")
OPEN_SLOT_REQUESTS: Final = _gauge(
    f"{_MASTER}numOpenSlotRequests", "Slot requests of jobs that no TaskExecutor has fulfilled yet."
)
IS_LEADER: Final = _gauge(f"{_MASTER}isLeader", "1 if this process leads the Dispatcher, 0 if it stands by.")
MASTER_LOG_POSITION: Final = _gauge(
    f"{_MASTER}logPosition", "The offset of the event log up to which this process has read."
)
MASTER_LOG_LAG: Final = _gauge(
    f"{_MASTER}logLag",
    "Offsets of the event log that this process has not read. Missing if Kafka does not answer.",
)
EVENTS: Final = _counter(
    f"{_MASTER}events", "Events of the log that this process has read since it started, by type.", ("type",)
)
MASTER_OMITTED: Final = _gauge(
    f"{_MASTER}omittedSeries", "Time series that are left out because of metrics.reporter.prom.max-series."
)
SPANS_EXPORTED: Final = _counter(
    f"{_MASTER}exportedSpans",
    "Spans that the collector has taken. Missing unless this process exports traces.",
)
SPANS_REJECTED: Final = _counter(
    f"{_MASTER}rejectedSpans",
    "Spans that the collector has rejected. Missing unless this process exports traces.",
)
SPANS_DROPPED: Final = _counter(
    f"{_MASTER}droppedSpans",
    "Events without a span, because the collector is slower than the log or unavailable. Missing unless this process "
    "exports traces.",
)
JOB_UPTIME: Final = _gauge(
    f"{_JOB}uptime_seconds", "The time since when all tasks run; 0 if not all run.", _JOB_LABELS, "uptime"
)
JOB_DOWNTIME: Final = _gauge(
    f"{_JOB}downtime_seconds",
    "The time since when not all tasks run any more; 0 if all run.",
    _JOB_LABELS,
    "downtime",
)
JOB_RESTARTS: Final = _counter(
    f"{_JOB}numRestarts",
    "Restarts of tasks since the job started. Flink counts restarts of jobs.",
    _JOB_LABELS,
    "numRestarts",
)
CHECKPOINTS_COMPLETED: Final = _counter(
    f"{_JOB}numberOfCompletedCheckpoints",
    "Complete checkpoints and savepoints that this process has read of since it started.",
    _JOB_LABELS,
    "numberOfCompletedCheckpoints",
)
CHECKPOINTS_FAILED: Final = _counter(
    f"{_JOB}numberOfFailedCheckpoints",
    "Failed checkpoints and savepoints that this process has read of since it started.",
    _JOB_LABELS,
    "numberOfFailedCheckpoints",
)
CHECKPOINTS_IN_PROGRESS: Final = _gauge(
    f"{_JOB}numberOfInProgressCheckpoints",
    "Checkpoints and savepoints in progress.",
    _JOB_LABELS,
    "numberOfInProgressCheckpoints",
)
CHECKPOINT_DURATION: Final = _gauge(
    f"{_JOB}lastCheckpointDuration_seconds",
    "The time that the last complete checkpoint has taken. Missing before the first.",
    _JOB_LABELS,
    "lastCheckpointDuration",
)
CHECKPOINT_TIME: Final = _gauge(
    f"{_JOB}lastCheckpointCompletedTimestamp_seconds",
    "When the last checkpoint was complete, since the epoch. Missing before the first.",
    _JOB_LABELS,
    "lastCheckpointCompletedTimestamp",
)
CHECKPOINT_SIZE: Final = _gauge(
    f"{_JOB}lastCheckpointSize_bytes",
    "The size of all state of the last complete checkpoint. Missing before the first.",
    _JOB_LABELS,
    "lastCheckpointFullSize",
)
CHECKPOINT_ID: Final = _gauge(
    f"{_JOB}lastCompletedCheckpointId",
    "The id of the last complete checkpoint. Missing before the first.",
    _JOB_LABELS,
    "lastCompletedCheckpointId",
)

WORKER_REGISTERED: Final = _gauge(
    f"{_WORKER}isRegistered", "1 if the ResourceManager has registered this TaskExecutor, else 0.", ("tm_id",)
)
WORKER_SLOTS_TOTAL: Final = _gauge(f"{_WORKER}taskSlotsTotal", "Slots of this TaskExecutor.", ("tm_id",))
WORKER_SLOTS_AVAILABLE: Final = _gauge(
    f"{_WORKER}taskSlotsAvailable", "Free slots of this TaskExecutor.", ("tm_id",)
)
WORKER_TASKS: Final = _gauge(f"{_WORKER}numTasks", "Tasks that have not ended.", ("tm_id",))
WORKER_LOG_POSITION: Final = _gauge(
    f"{_WORKER}logPosition", "The offset of the event log up to which this process has read.", ("tm_id",)
)
WORKER_LOG_LAG: Final = _gauge(
    f"{_WORKER}logLag",
    "Offsets of the event log that this process has not read. Missing if Kafka does not answer.",
    ("tm_id",),
)
WORKER_OMITTED: Final = _gauge(
    f"{_WORKER}omittedSeries",
    "Time series that are left out because of metrics.reporter.prom.max-series.",
    ("tm_id",),
)
JVM_CPU: Final = _counter(
    f"{_WORKER}Status_JVM_CPU_Time_seconds", "CPU time of Spark's JVM.", ("tm_id",), "Status.JVM.CPU.Time"
)
JVM_MEMORY: Final = _gauge(
    f"{_WORKER}Status_JVM_Memory_resident_bytes", "Resident memory of Spark's JVM.", ("tm_id",)
)
JVM_HEAP_MAX: Final = _gauge(
    f"{_WORKER}Status_JVM_Memory_Heap_Max_bytes",
    "The largest heap of Spark's JVM.",
    ("tm_id",),
    "Status.JVM.Memory.Heap.Max",
)
RECORDS_IN: Final = _counter(
    f"{_TASK}numRecordsIn",
    "Committed records from inputs. After stateless operators at the start of a task, which Spark runs, their results "
    "count.",
    _TASK_LABELS,
    "numRecordsIn",
)
RECORDS_OUT: Final = _counter(
    f"{_TASK}numRecordsOut", "Committed records that were sent to other tasks.", _TASK_LABELS, "numRecordsOut"
)
BYTES_IN: Final = _counter(
    f"{_TASK}numBytesIn",
    "Bytes of records from inputs, as Spark hands them over. Sources that the task itself reads count none.",
    _TASK_LABELS,
    "numBytesIn",
)
BYTES_OUT: Final = _counter(
    f"{_TASK}numBytesOut", "Bytes of buffers that were sent to other tasks.", _TASK_LABELS, "numBytesOut"
)
COMMITS: Final = _counter(f"{_TASK}numCommits", "Kafka transactions of the task.", _TASK_LABELS)
BUSY: Final = _counter(
    f"{_TASK}busyTime_seconds",
    "The time in which the task works, or waits while a worker of Spark works for it.",
    _TASK_LABELS,
    "busyTimeMsPerSecond",
)
IDLE: Final = _counter(
    f"{_TASK}idleTime_seconds",
    "The time in which the task waits for input.",
    _TASK_LABELS,
    "idleTimeMsPerSecond",
)
BACK_PRESSURED: Final = _counter(
    f"{_TASK}backPressuredTime_seconds",
    "The time in which the task waits for Kafka to commit its output.",
    _TASK_LABELS,
    "backPressuredTimeMsPerSecond",
)
COUNTED: Final = _counter(
    f"{_TASK}countedTime_seconds",
    "The time whose records are all counted. While a batch is processed, it stays behind the time that has passed.",
    _TASK_LABELS,
)
COUNTED_BUSY: Final = _counter(
    f"{_TASK}countedBusyTime_seconds", "The part of that time in which the task worked.", _TASK_LABELS
)
WATERMARK: Final = _gauge(
    f"{_TASK}currentInputWatermark_seconds",
    "The event time of the inputs, since the epoch. Missing while there is none.",
    _TASK_LABELS,
    "currentInputWatermark",
)
TASK_CPU: Final = _counter(
    f"{_TASK}processCpu_seconds",
    "CPU time of the StreamTask's process. Of the tasks that share one, one has it.",
    _TASK_LABELS,
)
TASK_MEMORY: Final = _gauge(
    f"{_TASK}processResidentMemory_bytes",
    "Resident memory of the StreamTask's process, at one of its tasks. Processes share a part of it.",
    _TASK_LABELS,
)
LATENCY: Final = Metric(
    f"{_WORKER}job_latency_seconds",
    Kind.HISTOGRAM,
    "How old latency markers are when they arrive at a task. Off unless metrics.latency.interval is set.",
    (
        *("tm_id", "job_id", "job_name", "source_id", "source_subtask_index"),
        *("operator_id", "operator_subtask_index"),
    ),
    "latency",
)
SOURCE_POSITION: Final = _gauge(
    f"{_TASK}currentOffset",
    "The sum of the positions of a Kafka source in the partitions of a subtask.",
    _TASK_LABELS,
    "currentOffset",
)
PENDING_RECORDS: Final = _gauge(
    f"{_TASK}pendingRecords",
    "Records of the topics of an unbounded Kafka source that are not read yet: the lag of all its subtasks here.",
    _VERTEX_LABELS,
    "pendingRecords",
)
ASSIGNED_PARTITIONS: Final = _gauge(
    f"{_TASK}assignedPartitions",
    "Partitions of the topics of an unbounded Kafka source that its subtasks here read.",
    _VERTEX_LABELS,
    "assignedPartitions",
)


def _database(name: str, text: str, unit: str = "") -> Metric:
    family = f"{_TASK}rocksdb_{name}{unit}".replace("-", "_")
    return _gauge(family, text, _TASK_LABELS, f"rocksdb.{name}")


DATABASE: Final[Mapping[str, Metric]] = {
    metric.flink or "": metric
    for metric in (
        _database(
            "block-cache-capacity",
            "The size of the block cache of keyed state on disk: half of the task's managed memory. These metrics are "
            "missing if state is in memory.",
            "_bytes",
        ),
        _database(
            "block-cache-usage",
            "What the block cache has: blocks, indexes and filters, and the memory of write buffers.",
            "_bytes",
        ),
        _database("block-cache-pinned-usage", "The part of it that cannot be dropped now.", "_bytes"),
        _database("cur-size-all-mem-tables", "The size of the write buffers.", "_bytes"),
        _database(
            "estimate-num-keys",
            "The estimated number of entries: keys of values, lists and maps in each window, timers, and indexes.",
        ),
        _database("estimate-live-data-size", "The estimated size of the entries on disk.", "_bytes"),
        _database("total-sst-files-size", "The size of all files of the database.", "_bytes"),
        _database("estimate-pending-compaction-bytes", "What compaction still has to rewrite."),
        _database("is-write-stopped", "1 if writes wait for compaction or memory, else 0."),
    )
}
"""By RocksDB's names, which are Flink's: the figures of the database of keyed state."""
USER_METRIC: Final = _gauge(
    f"{_TASK}userMetric",
    "A metric of a user's function; `name` is operator.name. Flink makes a metric of each.",
    (*_TASK_LABELS, "name"),
)
ACCUMULATOR: Final = _gauge(
    f"{_TASK}accumulator",
    "An accumulator of a user's functions, or numRecordsInErrors and numLateRecordsDropped, in all attempts of the "
    "subtask.",
    (*_TASK_LABELS, "name"),
)


def _kafka_client(prefix: str, labels: tuple[str, ...]) -> tuple[Metric, ...]:
    """Returns the metrics of Kafka clients, in the order of the fields of ClientStatistics."""
    scope, every = f"{prefix}kafka_", (*labels, "client")
    return (
        _counter(f"{scope}requests", "Requests to brokers.", every),
        _counter(f"{scope}sent_bytes", "Bytes sent to brokers.", every),
        _counter(f"{scope}received_bytes", "Bytes received from brokers.", every),
        _counter(f"{scope}requestErrors", "Requests that failed or were not answered in time.", every),
        _gauge(
            f"{scope}queuedMessages",
            "Messages that a producer has not sent, or that a consumer has fetched and not returned yet.",
            every,
        ),
        _gauge(
            f"{scope}rttAverage_seconds",
            "The average time to an answer of the slowest broker; a fetch waits for messages.",
            every,
        ),
        _gauge(
            f"{scope}rttP99_seconds",
            "The 99th percentile of the time to an answer of the slowest broker.",
            every,
        ),
        _gauge(
            f"{scope}throttleTime_seconds", "The longest time for which a quota made the client wait.", every
        ),
        _gauge(f"{scope}recordsLag", "Messages after the position of a consumer.", every, "records-lag"),
    )


MASTER_KAFKA: Final = _kafka_client(_MASTER, ())
WORKER_KAFKA: Final = _kafka_client(_WORKER, ("tm_id",))

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = {
    "Jobmanagers": (
        TASK_MANAGERS,
        RUNNING_JOBS,
        SLOTS_TOTAL,
        SLOTS_AVAILABLE,
        OPEN_SLOT_REQUESTS,
        IS_LEADER,
        MASTER_LOG_POSITION,
        MASTER_LOG_LAG,
        EVENTS,
        MASTER_OMITTED,
        SPANS_EXPORTED,
        SPANS_REJECTED,
        SPANS_DROPPED,
    ),
    "Jobs, at jobmanagers": (
        JOB_UPTIME,
        JOB_DOWNTIME,
        JOB_RESTARTS,
        CHECKPOINTS_COMPLETED,
        CHECKPOINTS_FAILED,
        CHECKPOINTS_IN_PROGRESS,
        CHECKPOINT_DURATION,
        CHECKPOINT_TIME,
        CHECKPOINT_SIZE,
        CHECKPOINT_ID,
    ),
    "TaskExecutors": (
        WORKER_REGISTERED,
        WORKER_SLOTS_TOTAL,
        WORKER_SLOTS_AVAILABLE,
        WORKER_TASKS,
        WORKER_LOG_POSITION,
        WORKER_LOG_LAG,
        WORKER_OMITTED,
        JVM_CPU,
        JVM_MEMORY,
        JVM_HEAP_MAX,
    ),
    "Tasks, at TaskExecutors": (
        RECORDS_IN,
        RECORDS_OUT,
        BYTES_IN,
        BYTES_OUT,
        COMMITS,
        BUSY,
        IDLE,
        BACK_PRESSURED,
        COUNTED,
        COUNTED_BUSY,
        WATERMARK,
        TASK_CPU,
        TASK_MEMORY,
        PENDING_RECORDS,
        ASSIGNED_PARTITIONS,
        SOURCE_POSITION,
        LATENCY,
        *DATABASE.values(),
        USER_METRIC,
        ACCUMULATOR,
    ),
    "Kafka clients": (*MASTER_KAFKA, *WORKER_KAFKA),
}
"""Title of a section of the page -> its metrics."""
METRICS: Final = tuple(metric for section in SECTIONS.values() for metric in section)
"""All metrics, in the order of the page."""
