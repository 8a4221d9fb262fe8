"""Checks whether a cluster with the same id already runs, started from another home.

Without election, a new jobmanager takes the leadership and the previous one stops. `cluster start` in a home without a
cluster record therefore first checks whether a master sends heartbeats.
"""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ....schemas.everyone import ClusterTerminated, LeaderElected
from ...configuration import Configuration
from ...configuration.options.heartbeat import HEARTBEAT_INTERVAL
from ...configuration.options.high_availability import HIGH_AVAILABILITY, TAKE_OVER, HighAvailability
from ...core.role import DISPATCHER
from ...heartbeats.topic import TASK_EXECUTORS
from ...log.clients import consumer_configuration, poll_message
from ...log.event_log import LogTruncated, LogUnavailable, read_to_end
from ...log.factory import open_event_log
from ...log.topics import heartbeats_topic
from ...processes.clock import read_time
from ..exit_codes import CommandFailure, ExitCode

_TIMEOUT_S = 5.0
_MISSED = 3
"""The number of heartbeats that a running master may miss."""
_LAST = 1_000
"""The number of events to read: fewer than these follow the end of a cluster."""


def check_no_other(configuration: Configuration) -> None:
    """Raises CommandFailure if a master of the cluster runs that this one would depose."""
    if configuration.get(TAKE_OVER) or configuration.get(HIGH_AVAILABILITY) is not HighAvailability.NONE:
        return
    silent_s = read_silence_s(configuration)
    if silent_s is None or has_ended(configuration):
        return
    if silent_s < _MISSED * configuration.get(HEARTBEAT_INTERVAL) / 1e6:
        raise CommandFailure(
            ExitCode.USAGE,
            f"cluster {configuration.cluster_id} runs at {configuration.kafka}, started from another home: "
            f"a master of it was heard {max(0.0, silent_s):.0f} s ago. Use that home, choose another --cluster-id, or "
            f"add -D {TAKE_OVER.key}=true, which takes the lead from it",
        )


def read_silence_s(configuration: Configuration) -> float | None:
    """Returns the time since the last heartbeat of a master; None if there is none, or Kafka does not answer."""
    partition = TopicPartition(heartbeats_topic(configuration.cluster_id), TASK_EXECUTORS)
    consumer = Consumer(consumer_configuration(configuration.kafka, auto_offset_reset="earliest"))
    try:
        first, end = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)
        if first == end:
            return None
        consumer.assign([TopicPartition(partition.topic, partition.partition, end - 1)])
        message = poll_message(consumer, _TIMEOUT_S)
        if message is None or message.error() is not None:
            return None
        # Both are times of Kafka: another clock here would hide a running cluster.
        return read_time(configuration) / 1e6 - message.timestamp()[1] / 1000
    except (KafkaException, LogUnavailable):
        # There is no such topic, or no Kafka yet: the start reports it.
        return None
    finally:
        consumer.close()


def has_ended(configuration: Configuration) -> bool:
    """Whether the log ends with the end of the cluster. Raises LogUnavailable."""
    log = open_event_log(configuration, timeout_s=_TIMEOUT_S)
    ended = False
    try:
        for batch in read_to_end(log, max(0, log.end() - _LAST)):
            for record in batch:
                if isinstance(record.body, ClusterTerminated):
                    ended = True
                elif isinstance(record.body, LeaderElected) and record.body.role == DISPATCHER:
                    ended = False
    except LogTruncated:
        return False
    finally:
        log.close()
    return ended
