"""`python -m tailrace.services.processes.snapshot_child END`: creates one snapshot of the log up to END (exclusive),
and then archives and deletes old events (retention.py).

The leader starts this process and reads one line of JSON from its standard output: a SubprocessResult. The process has
the leader's configuration, reads the log and the store itself, at a lower priority, and ends when its standard input is
closed, that is, when the leader is gone.
"""

from __future__ import annotations

import os
import sys

import msgspec

from ...infra import threads
from ...infra.logging_setup import log_to_stderr
from ...infra.storage.errors import CheckpointError
from ..configuration import load_configuration
from ..configuration.options.kafka import KafkaUser
from ..history.archive.errors import ArchiveError
from ..history.job_history_store import JobHistoryStore
from ..history.retention.archived_log import open_archived_log
from ..history.snapshot_history import create_snapshot_with_history
from ..log import LogUnavailable
from ..log.event_log import LogTruncated
from ..log.newer_release import NewerRelease
from ..snapshots.store import SnapshotStore
from .retention import run_retention
from .snapshot_subprocess import SubprocessResult

_NICENESS = 10
_LOG_TIMEOUT_S = 30.0


def main(arguments: list[str]) -> int:
    """Creates the snapshot and prints the result; returns the exit code."""
    threads.Thread(target=_end_with_owner, name="owner").start()
    os.nice(_NICENESS)
    configuration = load_configuration().as_user(KafkaUser.JOBMANAGER)
    log = open_archived_log(configuration, timeout_s=_LOG_TIMEOUT_S)
    try:
        snapshots, histories = (
            SnapshotStore.from_configuration(configuration),
            JobHistoryStore.from_configuration(configuration),
        )
        answer = SubprocessResult(create_snapshot_with_history(log, snapshots, histories, int(arguments[0])))
        run_retention(configuration, log.live)
    except (LogUnavailable, LogTruncated, CheckpointError, NewerRelease, ArchiveError) as error:
        answer = SubprocessResult(error=str(error))
    finally:
        log.close()
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    sys.stdout.buffer.flush()
    return 0


def _end_with_owner() -> None:
    # Do not read sys.stdin: the interpreter cannot shut down in order while a thread blocks in it.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(main(sys.argv[1:]))
