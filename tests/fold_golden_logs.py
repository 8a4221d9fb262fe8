"""Folds golden logs in a process of its own, and prints the hash of each as JSON.

    python fold_golden_logs.py FOLDER FRAMES

FRAMES: the number of Python frames that folding may use. The names of standard modules are other ones than those of
this Python, and everything that takes a verdict raises an error (other_rules.py): folding must not need any of that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import other_rules

from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.time_travel import state_hash
from tailrace.services.log.event_log import read_to_end
from tailrace.services.snapshots.builder import all_roles

_DEEP = 500


def fold(path: Path) -> str:
    """Returns the hash of the states after a log."""
    replica, log = all_roles(), FileLog.open(path)
    replica.telling = False
    try:
        for batch in read_to_end(log):
            for record in batch:
                replica.apply(record)
    finally:
        log.close()
    return state_hash(replica)


def fold_all(folder: Path) -> dict[str, str]:
    """Returns name -> hash."""
    return {path.stem: fold(path) for path in sorted(folder.glob("*.avro"))}


def call_deep(folder: Path, frames: int, depth: int = _DEEP) -> dict[str, str]:
    """Folds with a stack that is almost full."""
    return fold_all(folder) if depth == 0 else call_deep(folder, frames, depth - 1)


def main() -> None:
    folder, frames = Path(sys.argv[1]), int(sys.argv[2])
    # The first log loads what is imported late, which needs a deeper stack.
    fold(next(iter(sorted(folder.glob("*.avro")))))
    sys.stdlib_module_names = frozenset({"sys"})
    sys.setrecursionlimit(_DEEP + frames)
    with other_rules.no_judgements():
        print(json.dumps(call_deep(folder, frames)))


if __name__ == "__main__":
    main()
