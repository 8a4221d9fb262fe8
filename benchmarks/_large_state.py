"""One attempt with many keys, in a process of its own, so that its memory can be measured: `state_growth` starts it.

`grow`: a running count receives each key once, in any order, and commits; then random keys again (`updates`); then a
checkpoint with all state, which a forked process writes. `restore`: a new attempt restores that file, and commits.
Prints the figures as JSON. `rss_mib` is the most memory that the process had at any time (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from state_growth import BATCH, GROUPS, OPERATOR, PAIR, checkpoint_options, running_count

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.redistribution import StateAssignment
from tailrace.pipelines.runtime.operators.operator import Operator
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.state_backend.entry_store import open_heap_store
from tailrace.pipelines.runtime.state_backend.rocksdb_database import RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import open_store
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import restored_state
from tailrace.pipelines.runtime.stream_task.state.fork_worker import ForkedWorker
from tailrace.pipelines.runtime.stream_task.state.state_writer import StateWriter
from tailrace.pipelines.runtime.stream_task.state.store_fork import fork_with_database
from tailrace.schemas.types import OperatorState

COMMIT = 50_000


def grow(operator: Operator, database: RocksDatabase | None, count: int, base: Path) -> dict[str, float]:
    """Returns the figures of an attempt whose state grows to so many keys."""
    fork = ForkedWorker if database is None else partial(fork_with_database, database)
    writer = StateWriter({OPERATOR: operator}, range(GROUPS), incremental=True, name="large", fork=fork)
    figures = {"load_per_s": _process(operator, _in_any_order(count), count), "load_rss_mib": _rss_mib()}
    updates = count // 20
    drawn = np.random.default_rng(7).integers(0, count, updates)
    figures["updates_per_s"] = _process(operator, iter(np.array_split(drawn, updates // BATCH or 1)), updates)
    began = time.perf_counter()
    cut = writer.take_snapshot(checkpoint_options(base, 1))
    figures["stop_ms"] = (time.perf_counter() - began) * 1000
    state = cut.finish()[OPERATOR]
    figures["full_s"] = time.perf_counter() - began
    figures["full_mib"] = sum(file.length for file in state.files) / (1 << 20)
    writer.close()
    (base / "state.json").write_bytes(msgspec.json.encode(state))
    return figures


def restore(operator: Operator, base: Path) -> dict[str, float]:
    """Returns the figures of an attempt that restores the state."""
    state = msgspec.json.decode((base / "state.json").read_bytes(), type=OperatorState)
    pieces = {OPERATOR: (StateAssignment(0, 1, GROUPS, state),)}
    began = time.perf_counter()
    cpu = time.process_time()
    for _, message in restored_state(Storage(str(base / "job")), pieces, 0, 1):
        operator.restore(message)
    list(operator.take_changes())
    return {"recovery_s": time.perf_counter() - began, "recovery_cpu_s": time.process_time() - cpu}


def _process(operator: Operator, keys: Iterator[np.ndarray], count: int) -> float:
    """Returns records per second of CPU time, of all threads of the process."""
    began = time.process_time()
    since = 0
    for some in keys:
        columns = [pa.array([f"word-{key}" for key in some.tolist()]), pa.array(np.ones(len(some), np.int64))]
        operator.process(Batch.from_columns(pa.array(np.zeros(len(some), np.int64)), columns, PAIR))
        since += len(some)
        if since >= COMMIT:
            since = 0
            for _ in operator.take_changes():
                pass
    list(operator.take_changes())
    return count / (time.process_time() - began)


def _in_any_order(count: int) -> Iterator[np.ndarray]:
    # A step without a common divisor with the count visits each key once.
    step = 7_368_787
    while np.gcd(step, count) != 1:
        step += 2
    for start in range(0, count, BATCH):
        yield np.arange(start, min(count, start + BATCH), dtype=np.int64) * step % count


def _rss_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Runs one attempt."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["grow", "restore"])
    parser.add_argument("backend", choices=["hashmap", "rocksdb"])
    parser.add_argument("count", type=int)
    parser.add_argument("managed_mib", type=int)
    parser.add_argument("base", type=Path)
    arguments = parser.parse_args()
    database = None
    if arguments.backend == "rocksdb":
        database = RocksDatabase(arguments.base / "database", arguments.managed_mib << 20)
    operator = running_count(open_heap_store if database is None else partial(open_store, database))
    before = _rss_mib()
    if arguments.work == "grow":
        figures = grow(operator, database, arguments.count, arguments.base)
    else:
        figures = restore(operator, arguments.base)
    figures |= {"rss_mib": _rss_mib(), "rss_before_mib": before}
    if database is not None:
        database.close()
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
