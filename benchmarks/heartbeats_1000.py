"""A minute of a cluster of 1,000 TaskExecutors that all run tasks: what its heartbeats cost the jobmanager.

1,000 TaskExecutors of 10 slots each, simulated in one process (`_deployment`), run a job of 10,000 tasks. Each sends
its SlotReport to the ResourceManager and its AccumulatorReport to the JobMaster, and hears the AllocatedSlotReport,
every `heartbeat.interval` (10 s). The raw limit is the CPU for reading and decoding the same messages.
"""

from __future__ import annotations

import time

from _deployment import Deployment
from _raw_log import messages
from _report import conditions, report

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.services.liveness.topic import MASTERS
from tailrace.services.log import Codec
from tailrace.services.log.topics import heartbeats_topic

TASK_EXECUTORS = 1_000
SLOTS = 10
SECONDS = 60.0
INTERVAL_S = 10.0


def raw_s(bootstrap_servers: str, cluster: str, count: int) -> float:
    """Seconds of CPU for reading and decoding `count` of the heartbeats that the masters got."""
    topic = heartbeats_topic(cluster)
    decode = Codec(topic).decode
    start = time.process_time()
    for message in messages(bootstrap_servers, topic, count, partition=MASTERS):
        decode(message.value())
    return time.process_time() - start


def main() -> None:
    with EmbeddedKafka() as kafka:
        servers = kafka.bootstrap_servers
        with Deployment(servers, "bench", TASK_EXECUTORS, SLOTS, heartbeats=True) as deployment:
            deployment.run(TASK_EXECUTORS * SLOTS // 2, shared=False)
            before = deployment.master.cpu_s(), time.perf_counter()
            # There is nothing to wait for but time: how long all goes well is what is measured.
            time.sleep(SECONDS)
            cpu_s = deployment.master.cpu_s() - before[0]
            elapsed = time.perf_counter() - before[1]
            counted = deployment.master.ask(count=True)
        # Two heartbeats from each TaskExecutor in each interval: to the ResourceManager, to the JobMaster.
        heard = int(2 * TASK_EXECUTORS * elapsed / INTERVAL_S)
        raw = raw_s(servers, "bench", heard)
    figures = {
        "master_cpu_share": cpu_s / elapsed,
        "raw_cpu_share": raw / elapsed,
        "false_timeouts": counted["timeouts"],
        "contradictions": counted["contradictions"],
        "heard_per_s": heard / elapsed,
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
