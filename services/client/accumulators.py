"""The accumulators of a job: the final values of ended attempts from the log, the values of running ones from
heartbeats.

An attempt starts with the values that its predecessor committed (graph/accumulators.py). For each subtask the latest
reporting attempt is therefore valid, and for one attempt its final values. Heartbeats are soft state: they lag by an
interval, and a reader takes the latest available ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ...pipelines.graph.accumulators import bounded, total
from ...schemas.event import Record
from ...schemas.job_master import HeartbeatFromTaskManager, UpdateTaskExecutionState
from ...schemas.states import EXECUTION_ENDS
from ...schemas.task_executor import SubmitTask
from ...schemas.types import AccumulatorReport
from ..configuration import Configuration
from ..configuration.options.heartbeat import HEARTBEAT_INTERVAL
from ..core.role import JOB_MASTER, address
from ..heartbeats.topic import MASTERS
from ..log import Codec, LogUnavailable, Undecodable
from ..log.clients import consumer_configuration, retry_until
from ..log.factory import schema_registry_client
from ..log.kafka import RECIPIENT
from ..log.topics import heartbeats_topic

_INTERVALS = 3
"""The range of the first read, in heartbeat intervals: every TaskExecutor has sent a heartbeat in that time."""

Subtask = tuple[str, int]
"""(vertex, index)."""


class _SubtaskReport(msgspec.Struct, frozen=True):
    attempt_number: int
    is_ended: bool
    counts: dict[str, float]


class AccumulatorTotals:
    """The totals of one job. The caller passes events in the order of the log, and reports as they arrive."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._attempts: dict[str, tuple[Subtask, int]] = {}
        """Execution -> its subtask, and the attempt number."""
        self._latest: dict[Subtask, _SubtaskReport] = {}

    def on_event(self, records: Iterable[Record]) -> None:
        """Processes events of the job's attempts."""
        for record in records:
            match record.body:
                case SubmitTask(job_id=self._job_id) as submitted:
                    for task in submitted.subtasks:
                        subtask = submitted.vertex_id, task.subtask_index
                        self._attempts[task.execution_attempt_id] = subtask, task.attempt_number
                case UpdateTaskExecutionState(job_id=self._job_id, execution_state=state) as update:
                    if state in EXECUTION_ENDS:
                        self._note(update.execution_attempt_id, dict(update.accumulators), ended=True)
                case _:
                    pass

    def on_report(self, report: AccumulatorReport) -> None:
        """Processes the report of a TaskExecutor on its running attempts."""
        for snapshot in report.accumulator_snapshots:
            self._note(snapshot.execution_attempt_id, dict(snapshot.user_accumulators), ended=False)

    def total(self) -> dict[str, float]:
        """Returns the sums over all subtasks."""
        return total(report.counts for report in self._latest.values())

    def _note(self, attempt: str, counts: dict[str, float], *, ended: bool) -> None:
        known = self._attempts.get(attempt)
        if known is None or not counts:
            return
        subtask, number = known
        before = self._latest.get(subtask)
        if before is None or (number, ended) >= (before.attempt_number, before.is_ended):
            named = before.counts if before is not None else {}
            self._latest[subtask] = _SubtaskReport(number, ended, bounded({**named, **counts}))


class JobAccumulators(msgspec.Struct, frozen=True):
    """The accumulators of a job's running attempts, from their last heartbeats."""

    accumulators: dict[str, float]
    """The sums over all subtasks, including the `ended` ones."""
    metrics: dict[str, dict[str, float]]
    """execution_attempt_id -> metric -> value."""


def read_accumulators(
    configuration: Configuration,
    job_id: str,
    attempts: Mapping[str, Subtask],
    ended: Mapping[Subtask, Mapping[str, float]],
) -> JobAccumulators:
    """Returns the accumulators of a running job: `attempts` are its current ones, `ended` the final values of earlier
    ones.

    Raises LogUnavailable.
    """
    reports = KafkaHeartbeatReports(configuration, job_id)
    try:
        latest = {
            snapshot.execution_attempt_id: snapshot
            for report in reports.poll()
            for snapshot in report.accumulator_snapshots
        }
    finally:
        reports.close()
    counts = dict(ended)
    for attempt, subtask in attempts.items():
        if attempt in latest and latest[attempt].user_accumulators:
            counts[subtask] = bounded(latest[attempt].user_accumulators)
    metrics = {attempt: bounded(latest[attempt].metrics) for attempt in attempts if attempt in latest}
    return JobAccumulators(total(counts.values()), metrics)


class KafkaHeartbeatReports:
    """The AccumulatorReports of a job from the heartbeats topic; not thread-safe."""

    def __init__(self, configuration: Configuration, job_id: str, *, timeout_s: float = 10.0) -> None:
        self._topic = heartbeats_topic(configuration.cluster_id)
        self._recipient = address(JOB_MASTER, job_id)
        self._codec = Codec(self._topic, schema_registry_client(configuration))
        self._interval_ms = configuration.get(HEARTBEAT_INTERVAL) // 1_000
        self._kafka = configuration.kafka
        self._timeout = timeout_s
        self._consumer: Consumer | None = None
        self._position = 0

    def poll(self) -> list[AccumulatorReport]:
        """Returns the job's reports since the last call. Raises LogUnavailable."""
        if self._consumer is None:
            self._consumer = self._open()
        consumer, found = self._consumer, []
        end, until = self._end(consumer), time.monotonic() + self._timeout
        while self._position < end:
            if time.monotonic() > until:
                raise LogUnavailable(f"{self._topic} is not read to its end within {self._timeout:g} s")
            for message in consumer.consume(1_000, timeout=0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        self._position = max(self._position, message.offset() or 0)
                        continue
                    raise LogUnavailable(f"{self._topic} can't be read: {error.str()}")
                self._position = (message.offset() or 0) + 1
                if dict(message.headers() or ()).get(RECIPIENT) == self._recipient.encode():
                    found += self._decode(message.value())
        return found

    def close(self) -> None:
        """Closes the connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _decode(self, value: bytes | None) -> list[AccumulatorReport]:
        try:
            body = self._codec.decode(value).body
        except Undecodable:
            # Skipping it is harmless: the next report follows soon.
            return []
        return [body.accumulator_report] if isinstance(body, HeartbeatFromTaskManager) else []

    def _open(self) -> Consumer:
        consumer = Consumer(
            consumer_configuration(
                self._kafka,
                enable_partition_eof=True,
                auto_offset_reset="latest",
                allow_auto_create_topics=False,
            )
        )
        since = TopicPartition(self._topic, MASTERS, int(time.time() * 1000) - _INTERVALS * self._interval_ms)
        try:
            (found,) = retry_until(
                lambda: consumer.offsets_for_times([since], timeout=self._timeout), self._timeout
            )
            self._position = found.offset if found.offset >= 0 else self._end(consumer)
            consumer.assign([TopicPartition(self._topic, MASTERS, self._position)])
        except (KafkaException, LogUnavailable) as error:
            consumer.close()
            raise self._unavailable(error) from error
        return consumer

    def _end(self, consumer: Consumer) -> int:
        partition = TopicPartition(self._topic, MASTERS)
        try:
            _, high = retry_until(
                lambda: consumer.get_watermark_offsets(partition, timeout=self._timeout), self._timeout
            )
        except KafkaException as error:
            raise self._unavailable(error) from error
        return high

    def _unavailable(self, error: KafkaException | LogUnavailable) -> LogUnavailable:
        if isinstance(error, LogUnavailable):
            return error
        return LogUnavailable(f"{self._topic} can't be read: {error.args[0].str()}")
