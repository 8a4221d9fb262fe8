"""Events per second from Kafka into a file of each format, and from the Avro file into another log, compared with
reading alone: consume + fastavro decode.

The log is a generated one (`_conversation.py`) on a real Kafka. An export reads, encodes and writes in one process; an
import checks and folds the whole file first, appends it, and folds the log.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import fastavro
from _conversation import conversation, read
from _raw_log import messages
from _report import conditions, median, report
from _scale import scaled

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas import avro
from tailrace.schemas.event import Event
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import tune_gc_for_replay
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.archive.importer import check, import_file
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.kafka import KafkaEventLog
from tailrace.services.log.topics import ensure_cluster_topics

EVENTS = scaled(200_000)
ROUNDS = scaled(3)
BATCH = 10_000
HEAD = 10


def timed(run: Callable[[], object]) -> float:
    """Returns the seconds of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def new_log(servers: str, cluster: str) -> KafkaEventLog:
    """Returns an empty log."""
    configuration = Configuration({"cluster.id": cluster, "bootstrap.servers": servers})
    ensure_cluster_topics(create_admin_client(configuration), cluster)
    return open_event_log(configuration)


def filled_log(servers: str) -> KafkaEventLog:
    """Returns a log with the generated events."""
    log = new_log(servers, "bench")
    batch: list[Event] = []
    for event, _ in read(conversation(EVENTS)):
        batch.append(event)
        if len(batch) == BATCH:
            log.append(batch)
            batch = []
    log.append(batch)
    return log


def decode_all(servers: str, topic: str) -> None:
    """Measures the raw limit: decodes every value from Kafka by fastavro into a dict."""
    schemas = {avro.fingerprint(name): schema for name, schema in avro.parsed().items()}
    for message in messages(servers, topic, EVENTS):
        value = message.value() or b""
        fastavro.schemaless_reader(io.BytesIO(value[HEAD:]), schemas[value[2:HEAD]], None)


def read_file(path: Path) -> None:
    """Reads every event of a file as a record."""
    with FileLog.open(path) as log:
        for _ in read_to_end(log):
            pass


def import_into(servers: str, cluster: str, path: Path) -> None:
    """Runs the import of `tailrace log import`."""
    log = new_log(servers, cluster)
    with FileLog.open(path) as file:
        import_file(file, log, expected_hash=check(file))
    log.close()


def main() -> None:
    conversation(EVENTS)
    tune_gc_for_replay()
    figures: dict[str, float] = {}
    notes = {"decode_per_s": "raw limit: consume + fastavro decode"}
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        servers = kafka.bootstrap_servers
        log = filled_log(servers)
        rounds = range(ROUNDS)
        figures["decode_per_s"] = EVENTS / median(
            [timed(lambda: decode_all(servers, log.topic)) for _ in rounds]
        )
        paths = {kind: Path(folder) / f"history.{kind}" for kind in ArchiveFormat}
        for kind, path in paths.items():

            def write(kind: ArchiveFormat = kind, path: Path = path) -> None:
                export(log, "bench", EventSelection(0, EVENTS), path, kind)

            figures[f"{kind}_per_s"] = EVENTS / median([timed(write) for _ in rounds])
            notes[f"{kind}_per_s"] = f"Kafka -> {kind}"
            figures[f"{kind}_bytes"] = path.stat().st_size / EVENTS
            notes[f"{kind}_bytes"] = "of the file, an event"
        archive = paths[ArchiveFormat.AVRO]
        figures["read_avro_per_s"] = EVENTS / median([timed(lambda: read_file(archive)) for _ in rounds])
        notes["read_avro_per_s"] = "avro -> typed records"
        taken = [
            timed(lambda n=n: import_into(servers, f"again-{n}", archive))  # type: ignore[misc]
            for n in rounds
        ]
        figures["import_per_s"] = EVENTS / median(taken)
        notes["import_per_s"] = "Avro -> another log, checked, folded before and after"
    report("export", figures, conditions(events=EVENTS, rounds=ROUNDS), notes)


if __name__ == "__main__":
    main()
