"""Fills a state, commit by commit, reads it at random, and prints how much memory of the process that took (bytes).

Arguments: a directory for the database, or `-` for state in memory; the budget in bytes; the number of keys.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Final

import psutil

from tailrace.pipelines.runtime.state_backend.entry_store import HEAP
from tailrace.pipelines.runtime.state_backend.keyed_state_backend import KeyedStateBackend
from tailrace.pipelines.runtime.state_backend.rocksdb_database import RocksDatabase
from tailrace.pipelines.runtime.state_backend.rocksdb_store import open_store
from tailrace.pipelines.types import Types

VALUE_BYTES: Final = 800
_COMMIT_KEYS: Final = 500


def main(directory: str, budget: int, keys: int) -> None:
    """Fills the state and prints the growth."""
    database = None if directory == "-" else RocksDatabase(Path(directory), budget)
    store = HEAP if database is None else open_store(database, "operator", 128)
    backend = KeyedStateBackend(Types.STRING(), 128, store=store)
    table = backend.value_table("value", Types.BYTES())
    rng, process = random.Random(1), psutil.Process()

    def fill(first: int) -> None:
        for number in range(first, first + _COMMIT_KEYS):
            table.put(f"key-{number}", rng.randbytes(VALUE_BYTES))
        backend.take_changes()

    fill(0)
    before = most = process.memory_info().rss
    for first in range(_COMMIT_KEYS, keys, _COMMIT_KEYS):
        fill(first)
        most = max(most, process.memory_info().rss)
    for _ in range(keys // 10):
        assert len(table.space()[f"key-{rng.randrange(keys)}"]) == VALUE_BYTES
    print(max(most, process.memory_info().rss) - before)
    if database is not None:
        database.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
