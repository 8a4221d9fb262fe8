"""The duration of `tailrace state --at` for random offsets of a log of one million events.

The log comes from the real roles (`_conversation.py`), as a file that `tailrace log export` writes, or, with --kafka,
in a broker. The first query for its end folds all of it, and leaves a history index (`build_s`, compared with a fold
without one, `fold_s`). `p50_s` and `p99_s` are those of one query, from the opening of the source to the JSON of all
states with the hash; `replica_p50_s` and `replica_p99_s` of the part that creates the replica; `command_p50_s` and
`command_p99_s` are whole processes, including Python's start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from _conversation import CLUSTER, conversation, read
from _report import conditions, percentile, report
from _scale import scaled

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.schemas.event import Event
from tailrace.services.configuration import Configuration
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.log_source import LogSource, open_log_source
from tailrace.services.history.time_travel import cluster_moment, fold_to, replica_at, state_hash
from tailrace.services.log import Codec
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.topics import ensure_cluster_topics

BATCH = 10_000


def exported(events: int) -> Path:
    """Returns the log as a file, created if it does not exist."""
    event_file = conversation(events)
    path = event_file.with_suffix(".avro")
    if not path.exists():
        log = MemoryEventLog(Codec(CLUSTER), topic=CLUSTER)
        log.append([event for event, _ in read(event_file)])
        export(log, CLUSTER, EventSelection(start=0, end=events), path, ArchiveFormat.AVRO)
    return path


@contextlib.contextmanager
def in_kafka(events: int) -> Iterator[Configuration]:
    """Yields the log in a broker of its own."""
    with EmbeddedKafka() as kafka, tempfile.TemporaryDirectory() as home:
        servers = kafka.bootstrap_servers
        configuration = Configuration({"cluster.id": CLUSTER, "bootstrap.servers": servers, "home": home})
        ensure_cluster_topics(create_admin_client(configuration), CLUSTER)
        log = open_event_log(configuration)
        batch: list[Event] = []
        for event, _ in read(conversation(events)):
            batch.append(event)
            if len(batch) == BATCH:
                log.append(batch)
                batch.clear()
        log.append(batch)
        log.close()
        yield configuration


def timed(run: Callable[[], object]) -> float:
    """Returns the seconds of wall clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ask(of: Configuration | Path, offset: int) -> tuple[float, float]:
    """Returns the seconds until there is a replica, and until there is the answer."""
    start = time.perf_counter()
    with open_log_source(of) as source:
        replica = replica_at(source, offset)
        there = time.perf_counter() - start
        msgspec.json.encode(cluster_moment(replica))
        return there, time.perf_counter() - start


def command(of: Configuration | Path, offset: int) -> None:
    """Runs the command in a process."""
    if isinstance(of, Path):
        where = ["--file", str(of)]
    else:
        where = ["--bootstrap-servers", of.bootstrap_servers, "--cluster-id", of.cluster_id]
    line = [sys.executable, "-m", "tailrace.services.cli", "state", "--at", str(offset), "-o", "json", *where]
    subprocess.run(line, stdout=subprocess.DEVNULL, check=True)


def built(source: LogSource) -> tuple[float, float, int]:
    """Returns the seconds of a fold without an index, and of one that leaves it; the bytes of the index."""
    hashes: list[str] = []
    without = timed(lambda: hashes.append(state_hash(fold_to(source.log))))
    with_one = timed(lambda: hashes.append(state_hash(replica_at(source))))
    assert hashes[0] == hashes[1]
    assert source.index.path is not None
    return without, with_one, sum(path.stat().st_size for path in source.index.path.iterdir())


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(1_000_000))
    parser.add_argument("--offsets", type=int, default=scaled(200))
    parser.add_argument("--commands", type=int, default=scaled(20), help="of them, as whole processes too")
    parser.add_argument("--kafka", action="store_true", help="in a broker instead of a file")
    arguments = parser.parse_args()
    events = arguments.events
    drawn = random.Random(8)
    offsets = [drawn.randrange(events) for _ in range(arguments.offsets)]
    with contextlib.ExitStack() as stack:
        of = stack.enter_context(in_kafka(events)) if arguments.kafka else exported(events)
        os.environ["TAILRACE_CACHE_DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        with open_log_source(of) as source:
            fold, build, size = built(source)
        asked = [ask(of, offset) for offset in offsets]
        commands = [timed(lambda item=offset: command(of, item)) for offset in offsets[: arguments.commands]]  # type: ignore[misc]
    figures = {
        "p50_s": percentile([whole for _, whole in asked], 50),
        "p99_s": percentile([whole for _, whole in asked], 99),
        "replica_p50_s": percentile([there for there, _ in asked], 50),
        "replica_p99_s": percentile([there for there, _ in asked], 99),
        "command_p50_s": percentile(commands, 50),
        "command_p99_s": percentile(commands, 99),
        "fold_s": fold,
        "build_s": build,
        "index_mib": size / (1 << 20),
    }
    notes = {
        "p99_s": "source opened -> JSON of all states; aim: below 1",
        "replica_p99_s": "of that, until a replica can be asked",
        "command_p99_s": "a whole process",
        "fold_s": "the log from its start, without an index",
        "build_s": "the same, leaving an index",
    }
    under = conditions(events=events, offsets=len(offsets), commands=len(commands), kafka=arguments.kafka)
    report("time_travel", figures, under, notes)


if __name__ == "__main__":
    main()
