"""One minute of a cluster of 1,000 TaskExecutors with running tasks: the cost of heartbeats for the jobmanager.

1,000 TaskExecutors of 10 slots each, simulated in one process (`_deployment`), run a job of 10,000 tasks. Each sends
its SlotReport to the ResourceManager and its AccumulatorReport to the JobMaster, and receives the AllocatedSlotReport,
every `heartbeat.interval` (10 s). The raw limit is the CPU for reading and decoding the same messages.
"""

from __future__ import annotations

import time

from _deployment import Deployment
from _raw_log import messages
from _report import conditions, report
from _scale import scaled, scaled_s
from confluent_kafka import Consumer, TopicPartition

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.services.heartbeats.topic import MASTERS
from tailrace.services.log import Codec
from tailrace.services.log.clients import consumer_configuration
from tailrace.services.log.topics import heartbeats_topic

TASK_EXECUTORS = scaled(1_000)
SLOTS = 10
SECONDS = scaled_s(60.0, least=12.0)


def sent(bootstrap_servers: str, topic: str) -> int:
    """Returns the number of messages in the masters' partition of the topic."""
    consumer = Consumer(consumer_configuration(KafkaConnection(bootstrap_servers)))
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, MASTERS), timeout=30)
    consumer.close()
    return int(end)


def raw_s(bootstrap_servers: str, topic: str) -> float:
    """Returns the seconds of CPU for reading and decoding one heartbeat of the masters, on average."""
    count = sent(bootstrap_servers, topic)
    decode = Codec(topic).decode
    start = time.process_time()
    for message in messages(bootstrap_servers, topic, count, partition=MASTERS):
        decode(message.value())
    return (time.process_time() - start) / count


def main() -> None:
    with EmbeddedKafka() as kafka:
        servers, topic = kafka.bootstrap_servers, heartbeats_topic("bench")
        with Deployment(servers, "bench", TASK_EXECUTORS, SLOTS, heartbeats=True) as deployment:
            deployment.run(TASK_EXECUTORS * SLOTS // 2, shared=False)
            before = sent(servers, topic), deployment.master.cpu_s(), time.perf_counter()
            # There is nothing to wait for but time: how long all goes well is what is measured.
            time.sleep(SECONDS)
            cpu_s = deployment.master.cpu_s() - before[1]
            elapsed = time.perf_counter() - before[2]
            heard_per_s = (sent(servers, topic) - before[0]) / elapsed
            counted = deployment.master.ask(count=True)
        raw = raw_s(servers, topic)
    figures = {
        "master_cpu_share": cpu_s / elapsed,
        "raw_cpu_share": raw * heard_per_s,
        "false_timeouts": counted["timeouts"],
        "contradictions": counted["contradictions"],
        "heard_per_s": heard_per_s,
    }
    notes = {
        "master_cpu_share": "of one core; aim: below 0.25",
        "raw_cpu_share": "raw limit: the same messages read and decoded",
        "false_timeouts": "aim: 0",
        "contradictions": "reports that did not fit the log twice in a row; should be 0",
    }
    under = conditions(task_executors=TASK_EXECUTORS, slots=TASK_EXECUTORS * SLOTS, seconds=SECONDS)
    report("heartbeats_1000", figures, under, notes)


if __name__ == "__main__":
    main()
