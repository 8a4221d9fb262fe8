"""The growth of the log by the checkpoints of one job: events and bytes a day, at an interval of 10 s.

A job of 201 subtasks runs in 10 TaskExecutors of 20 slots: real roles over a real Kafka log, with simulated tasks (see
`_deployment`). Its checkpoints are taken every second, and their share of the log is counted: the events, and the bytes
by which the topic grows on the broker's disk. The figures of a day are those of 8,640 checkpoints.

Compared with it, in the same run: the same events with an AcknowledgeCheckpoint for each subtask, without compression,
and with the bytes of their records alone (`unbatched_...`).
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from _deployment import Deployment
from _processes import new_log
from _report import conditions, report
from _scale import scaled
from msgspec.structs import replace

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event, Record
from tailrace.schemas.job_master import AcknowledgeCheckpoint, CheckpointCompleted
from tailrace.services.log import Codec, Tail
from tailrace.services.log.kafka import TYPE
from tailrace.services.log.raw_record import key_of
from tailrace.services.log.topics import log_topic

CLUSTER = "bench"
TASK_EXECUTORS = 10
SLOTS = 20
PARALLELISM = 100
CHECKPOINTS = scaled(30, least=3)
A_DAY = 24 * 3600 // 10
RECORD_BYTES = 12
"""What Kafka adds to a record, without the batch: lengths, deltas, attributes."""
PATIENCE_POLLS = 600


def completed(tail: Tail, count: int) -> list[Record]:
    """Returns the next events, up to the `count`-th completed checkpoint. Raises TimeoutError."""
    found: list[Record] = []
    done = 0
    for _ in range(PATIENCE_POLLS):
        for record in tail.poll(0.2):
            found.append(record)
            done += isinstance(record.body, CheckpointCompleted)
        if done >= count:
            return found
    raise TimeoutError(f"{done} of {count} checkpoints were completed")


def unbatched(records: list[Record]) -> Iterator[Event]:
    """Yields the events with an acknowledgement for each subtask."""
    for record in records:
        body = record.body
        if isinstance(body, AcknowledgeCheckpoint):
            for part in body.acknowledgements:
                yield Event(record.header, replace(body, acknowledgements=(part,)))
        else:
            yield Event(record.header, body)


def record_bytes(codec: Codec, event: Event) -> int:
    header = len(TYPE) + len(event.body.AVRO_NAME) + 2
    return RECORD_BYTES + header + len(key_of(event) or b"") + len(codec.encode(event))


def main() -> None:
    parser = ArgumentParser("log_growth")
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS)
    count = parser.parse_args().checkpoints
    with EmbeddedKafka(heap="1g") as kafka, tempfile.TemporaryDirectory(prefix="tailrace-bench-") as files:
        servers, topic = kafka.bootstrap_servers, log_topic(CLUSTER)
        segments = Path(kafka.data_dir, "data", f"{topic}-0")

        def size() -> int:
            return sum(path.stat().st_size for path in segments.glob("*.log"))

        with Deployment(servers, CLUSTER, TASK_EXECUTORS, SLOTS) as deployment:
            log = new_log(servers, CLUSTER)
            tail = log.tail(log.end())
            configuration = {
                "execution.checkpointing.interval": "1 s",
                "state.checkpoints.dir": f"file://{files}",
            }
            deployment.run(PARALLELISM, shared=False, configuration=configuration)
            completed(tail, 2)
            before = size()
            records = completed(tail, count)
            grown = size() - before
            log.close()
    done = sum(isinstance(record.body, CheckpointCompleted) for record in records)
    codec = Codec(topic)
    alone = list(unbatched(records))
    kinds = Counter(record.body.AVRO_NAME.rpartition(".")[2] for record in records)
    figures = {
        "events_a_day": len(records) / done * A_DAY,
        "mib_a_day": grown / done * A_DAY / 2**20,
        "unbatched_events_a_day": len(alone) / done * A_DAY,
        "unbatched_mib_a_day": sum(record_bytes(codec, event) for event in alone) / done * A_DAY / 2**20,
        "uncompressed_mib_a_day": sum(
            record_bytes(codec, Event(record.header, record.body)) for record in records
        )
        / done
        * A_DAY
        / 2**20,
        **{f"{name}_a_checkpoint": number / done for name, number in sorted(kinds.items())},
    }
    figures["events_ratio"] = figures["events_a_day"] / figures["unbatched_events_a_day"]
    figures["bytes_ratio"] = figures["mib_a_day"] / figures["unbatched_mib_a_day"]
    notes = {
        "events_a_day": "of 201 subtasks, an interval of 10 s",
        "mib_a_day": "on the broker's disk",
        "unbatched_events_a_day": "an AcknowledgeCheckpoint for each subtask",
        "uncompressed_mib_a_day": "records alone",
    }
    report(
        "log_growth",
        figures,
        conditions(task_executors=TASK_EXECUTORS, subtasks=2 * PARALLELISM + 1, checkpoints=done),
        notes,
    )


if __name__ == "__main__":
    main()
