"""The time from the start of a master to the state of a log of one million events: from scratch, compared with
consume and Avro decoding alone; and from a snapshot with a tail of 20 MiB of log.

STARTUP_EVENTS: the number of events, for short runs. The log comes from the real roles (`_conversation.py`), created
once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _conversation import CLUSTER, conversation, read
from _report import conditions, median, report
from _scale import scaled
from replay import consume, decoder, timed

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica, tune_gc_for_replay
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.job_master import JobMaster
from tailrace.services.log.event_log import EventLog, read_to_end
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics, log_topic
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.snapshots.builder import create_snapshot
from tailrace.services.snapshots.recovery import restore_newest
from tailrace.services.snapshots.store import SnapshotStore

EVENTS = int(os.environ.get("STARTUP_EVENTS", scaled(1_000_000)))
ROUNDS = scaled(3)
TAIL_BYTES = scaled(20 << 20)
BATCH = 10_000


def masters() -> Replica:
    """Returns the roles that a jobmanager folds."""
    return Replica([Dispatcher(), ResourceManager(), JobMaster()], on_illegal=lambda *_: None)


def fold(replica: Replica, log: EventLog) -> Replica:
    """Folds the rest of the log."""
    for batch in read_to_end(log, replica.offset + 1):
        for record in batch:
            replica.apply(record)
    return replica


def write(log: KafkaEventLog, path: Path) -> tuple[int, int]:
    """Writes the events to Kafka; returns their bytes, and the offset at which the tail begins."""
    sizes: list[int] = []
    batch: list[Event] = []
    for event, size in read(path):
        sizes.append(size)
        batch.append(event)
        if len(batch) == BATCH:
            log.append(batch)
            batch.clear()
    if batch:
        log.append(batch)
    tail, begin = min(TAIL_BYTES, sum(sizes) // 2), len(sizes)
    while tail > 0:
        begin -= 1
        tail -= sizes[begin]
    return sum(sizes), begin


def start(log: EventLog, store: SnapshotStore) -> dict[str, float]:
    """Recovers from the newest snapshot: returns the seconds until it is restored, and until the log's end."""
    begin = time.perf_counter()
    replica = masters()
    restore_newest(replica, log, store)
    restored = time.perf_counter()
    fold(replica, log)
    return {"restore": restored - begin, "snapshot": time.perf_counter() - begin}


def main() -> None:
    path = conversation(EVENTS)
    tune_gc_for_replay()
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as home:
        servers = kafka.bootstrap_servers
        configuration = Configuration({"cluster.id": CLUSTER, "bootstrap.servers": servers, "home": home})
        ensure_cluster_topics(create_admin_client(configuration), CLUSTER)
        log = open_event_log(configuration)
        size, tail_begin = write(log, path)
        topic, store = log_topic(CLUSTER), SnapshotStore.from_configuration(configuration)
        phases: dict[str, Callable[[], Any]] = {
            "consume": lambda: consume(servers, topic, EVENTS, lambda _: None),
            "decode": lambda: consume(servers, topic, EVENTS, decoder()),
            "scratch": lambda: fold(masters(), log),
        }
        taken_at = time.perf_counter()
        snapshot = create_snapshot(log, store, tail_begin)
        took = time.perf_counter() - taken_at
        assert snapshot is not None
        rounds = {phase: [timed(run) for _ in range(ROUNDS)] for phase, run in phases.items()}
        starts = [start(log, store) for _ in range(ROUNDS)]
        log.close()
    seconds = {
        phase: median([checkpoint.clock for checkpoint in checkpoints])
        for phase, checkpoints in rounds.items()
    }
    cpu = {
        phase: median([result.cpu for result in results]) / EVENTS * 1e6 for phase, results in rounds.items()
    }
    figures = {
        "events_per_s": EVENTS / seconds["scratch"],
        "decode_per_s": EVENTS / seconds["decode"],
        "consume_per_s": EVENTS / seconds["consume"],
        "scratch_s": seconds["scratch"],
        "event_us": cpu["scratch"],
        "snapshot_s": median([start["snapshot"] for start in starts]),
        "restore_s": median([start["restore"] for start in starts]),
        "snapshot_mib": snapshot.size / (1 << 20),
        "tail_events": EVENTS - tail_begin,
        "take_s": took,
    }
    notes = {
        "events_per_s": "Kafka -> the state of all that masters fold; aim: 100,000",
        "decode_per_s": "raw limit: consume + fastavro decode",
        "consume_per_s": "consume alone",
        "event_us": "CPU an event, librdkafka's threads included",
        "snapshot_s": "snapshot and 20 MiB of tail -> state; aim: below 2",
        "restore_s": "of that, the snapshot",
        "take_s": "from scratch, beside the leader: all roles, TaskExecutors' too",
    }
    under = conditions(events=EVENTS, log_mib=round(size / (1 << 20)), rounds=ROUNDS)
    report("startup_1m", figures, under, notes)


if __name__ == "__main__":
    main()
