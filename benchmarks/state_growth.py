"""Keyed state of growing size: the cost of a full snapshot, of its restore, and of updates.

A running count by key, in one process, without Kafka. For each number of keys: how long the task stops for the fork
that writes a FULL file (`stop_ms`), the time until the file is in storage (`full_s`), its bytes, and how long a new
attempt takes to restore it (`recovery_s`). Compared with it, the cost of a cut with changed keys only (`delta_ms`, of
10,000 changes: taking, encoding and writing them).

`large_...`: the same with 10 million keys, for each `state.backend.type`, once, in processes of their own
(_large_state.py). With rocksdb the attempt has 256 MiB of managed memory in a slot of 512 MiB: `large_rocksdb_rss_mib`
is to be less than that.

`updates_per_s` is the rate of a Python `reduce` over 100,000 keys, its results encoded into columns and each commit's
changes taken and handed to storage; `dict_updates_per_s` is a bare dict with the same reduction, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
from _report import conditions, median, report
from _scale import scaled

from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.redistribution import StateAssignment
from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.state_backend.entry_store import OpenStore, open_heap_store
from tailrace.pipelines.runtime.stream_task.restore.changelog_reader import restored_state
from tailrace.pipelines.runtime.stream_task.state.state_writer import StateWriter
from tailrace.pipelines.types import RecordType, Types
from tailrace.schemas.types import CheckpointOptions, OperatorConfig, OperatorState, SnapshotType

PAIR = Types.TUPLE([str, int])
OPERATOR = "a" * 32
GROUPS = 128
CHANGES = scaled(10_000)
UPDATED_KEYS = scaled(100_000)
BATCH = 5_000
COMMIT = scaled(50_000)
MANAGED_MIB = 256
"""The managed memory of the slot with large state: half of its 512 MiB."""


class Leaving:
    """An Output that encodes records, as a channel does, and drops them."""

    def emit(self, batch: Batch) -> None:
        batch.columns(PAIR)

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: int) -> None: ...

    def emit_idle(self, idle: bool) -> None: ...


def first(pair: tuple[str, int]) -> str:
    """Returns the key."""
    return pair[0]


def add(a: tuple[str, int], b: tuple[str, int]) -> tuple[str, int]:
    """Adds the counts."""
    return a[0], a[1] + b[1]


def running_count(open_store: OpenStore = open_heap_store) -> Operator:
    """Returns a `reduce` by the first field."""
    parameters = {"key_type": RecordType.of(str).to_json(), "key_field": "f0", "output_type": PAIR.to_json()}
    config = OperatorConfig(
        operator_id=OPERATOR, name="Reduce", kind="reduce", parameters=json.dumps(parameters),
        code=cloudpickle.dumps((first, add)), location="",
    )  # fmt: skip
    context = TaskContext(max_parallelism=GROUPS)
    setup = OperatorSetup(config, context, "c", "j", _no_sink, (PAIR,), open_store=open_store)
    operator = build_operator(setup)
    operator.output = Leaving()
    operator.open()
    return operator


def batches(keys: np.ndarray[Any, Any], words: pa.Array) -> Iterable[Batch]:
    """Returns pairs (word, 1) in columns, as after a shuffle."""
    for start in range(0, len(keys), BATCH):
        some = keys[start : start + BATCH]
        columns = [words.take(pa.array(some)), pa.array(np.ones(len(some), np.int64))]
        yield Batch.from_columns(pa.array(np.zeros(len(some), np.int64)), columns, PAIR)


def growth(count: int, base: Path) -> dict[str, float]:
    """Returns the figures at so many keys."""
    words = pa.array([f"word-{number}" for number in range(count)])
    operator = running_count()
    writer = StateWriter({OPERATOR: operator}, range(GROUPS), incremental=True, name="bench")
    for batch in batches(np.arange(count), words):
        operator.process(batch)
        list(operator.take_changes())
    began = time.perf_counter()
    cut = writer.take_snapshot(checkpoint_options(base, 1))
    stopped = time.perf_counter() - began
    state = cut.finish()[OPERATOR]
    full = time.perf_counter() - began

    for batch in batches(np.arange(CHANGES) % count, words):
        operator.process(batch)
    began = time.perf_counter()
    for message in operator.take_changes():
        writer.add(OPERATOR.encode(), message)
    writer.take_snapshot(checkpoint_options(base, 2)).finish()
    delta = time.perf_counter() - began
    writer.close()

    return {
        f"stop_ms_{count}": stopped * 1000,
        f"full_s_{count}": full,
        f"full_bytes_{count}": float(sum(file.length for file in state.files)),
        f"recovery_s_{count}": recovery(base, state),
        f"delta_ms_{count}": delta * 1000,
    }


def recovery(base: Path, state: OperatorState) -> float:
    """Returns the seconds until a new attempt has the state."""
    restored = running_count()
    began = time.perf_counter()
    pieces = {OPERATOR: (StateAssignment(0, 1, GROUPS, state),)}
    for _, message in restored_state(Storage(str(base / "job")), pieces, 0, 1):
        restored.restore(message)
    return time.perf_counter() - began


def updates(records: int, base: Path) -> float:
    """Returns records per second of CPU time."""
    words = pa.array([f"word-{number}" for number in range(UPDATED_KEYS)])
    some = list(batches(_drawn(records), words))
    operator = running_count()
    writer = StateWriter({OPERATOR: operator}, range(GROUPS), incremental=True, name="updates")
    writer.continue_from({})
    writer.take_snapshot(checkpoint_options(base, 1)).finish()
    began = time.process_time()
    for number, batch in enumerate(some, 1):
        operator.process(batch)
        if number * BATCH % COMMIT == 0:
            operator.before_commit()
            for message in operator.take_changes():
                writer.add(OPERATOR.encode(), message)
    took = time.process_time() - began
    writer.close()
    return records / took


def dict_updates(records: int) -> float:
    """Returns records per second of CPU time: the reduction on records that are Python tuples already."""
    words = [f"word-{number}" for number in range(UPDATED_KEYS)]
    pairs = [(words[key], 1) for key in _drawn(records).tolist()]
    state: dict[str, tuple[str, int]] = {}
    began = time.process_time()
    for pair in pairs:
        key = pair[0]
        held = state.get(key)
        state[key] = pair if held is None else add(held, pair)
    return records / (time.process_time() - began)


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keys", type=int, nargs="*", default=[scaled(count) for count in (1_000, 100_000, 1_000_000)]
    )
    parser.add_argument("--records", type=int, default=scaled(1_000_000), help="of the updates")
    parser.add_argument("--large", type=int, default=scaled(10_000_000), help="keys of a large state, once")
    parser.add_argument("--backends", nargs="*", default=["rocksdb", "hashmap"], help="of the large state")
    parser.add_argument("--rounds", type=int, default=scaled(5))
    arguments = parser.parse_args()
    measured: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="state-growth-") as made:
        for turn in range(arguments.rounds):
            base = Path(made, str(turn))
            base.mkdir()
            figures = {"updates_per_s": updates(arguments.records, base / "updates")}
            figures["dict_updates_per_s"] = dict_updates(arguments.records)
            for count in arguments.keys:
                figures |= growth(count, base / str(count))
            for backend in arguments.backends if turn == 0 else ():
                figures |= large(backend, arguments.large, base / backend)
            for key, value in figures.items():
                measured.setdefault(key, []).append(value)
    notes = {key: f"{min(some):,.3g} to {max(some):,.3g}" for key, some in measured.items()}
    under = conditions(rounds=arguments.rounds, records=arguments.records, updated_keys=UPDATED_KEYS)
    report("state_growth", {key: median(some) for key, some in measured.items()}, under, notes)


def large(backend: str, count: int, base: Path) -> dict[str, float]:
    """Returns the figures of attempts with so many keys, in processes of their own."""
    figures: dict[str, float] = {}
    base.mkdir()
    for work in ("grow", "restore"):
        script = Path(__file__).with_name("_large_state.py")
        command = [sys.executable, str(script), work, backend, str(count), str(MANAGED_MIB), str(base)]
        measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        prefix = "" if work == "grow" else "restored_"
        figures |= {f"large_{backend}_{prefix}{key}": value for key, value in measured.items()}
    return figures


def _drawn(records: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).integers(0, UPDATED_KEYS, records)


def checkpoint_options(base: Path, number: int) -> CheckpointOptions:
    """Returns the options of a checkpoint below the directory."""
    return CheckpointOptions(
        snapshot_type=SnapshotType.CHECKPOINT,
        directory=str(base / "job" / f"chk-{number}"),
        shared=str(base / "job" / "shared"),
    )


def _no_sink(*_: Any, **__: Any) -> None:
    raise AssertionError("a reduce sends nothing")


if __name__ == "__main__":
    main()
