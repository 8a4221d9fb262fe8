"""Folds golden logs in a process of its own, and prints the hash of each as JSON.

    python fold_golden_logs.py FOLDER FRAMES

FRAMES: the number of Python frames that folding may use. The names of standard modules are other ones than those of
this Python, and everything that takes a verdict (on submissions, restarts, placement, timeouts) raises an error:
folding must not need any of that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn
from unittest import mock

from tailrace.services.dispatcher import submission_validation
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.time_travel import state_hash
from tailrace.services.job_master import JobMaster, failover, restart_strategies
from tailrace.services.job_master.checkpoints import coordinator, trigger
from tailrace.services.log.event_log import read_to_end
from tailrace.services.resource_manager import (
    ResourceManager,
    active_mode,
    shutdown,
    slot_allocation,
    task_executor_loss,
)
from tailrace.services.snapshots.builder import all_roles

_DEEP = 500
RULES = (
    (submission_validation, "find_submission_error"),
    (submission_validation, "find_graph_error"),
    (submission_validation, "find_location_error"),
    (failover, "on_failure"),
    (failover, "verdict_events"),
    (restart_strategies, "on_failure"),
    (trigger, "outgoing_events"),
    (coordinator, "outgoing_events"),
    (slot_allocation, "place"),
    (slot_allocation, "allocate"),
    (task_executor_loss, "loss_events"),
    (shutdown, "shutdown_events"),
    (active_mode, "worker_starts"),
    (active_mode, "worker_stops"),
    (JobMaster, "decide"),
    (ResourceManager, "decide"),
)
"""The functions that take verdicts, in their modules."""


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


def judge(*_: object) -> NoReturn:
    """Stands in place of every check."""
    raise AssertionError("a verdict is taken while its log is folded")


def main() -> None:
    folder, frames = Path(sys.argv[1]), int(sys.argv[2])
    # The first log loads what is imported late, which needs a deeper stack.
    fold(next(iter(sorted(folder.glob("*.avro")))))
    sys.stdlib_module_names = frozenset({"sys"})
    for module, rule in RULES:
        mock.patch.object(module, rule, judge).start()
    sys.setrecursionlimit(_DEEP + frames)
    print(json.dumps(call_deep(folder, frames)))


if __name__ == "__main__":
    main()
