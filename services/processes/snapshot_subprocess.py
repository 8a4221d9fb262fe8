"""Creates a snapshot in a child process, and waits for its result: one line of JSON.

The child has the leader's configuration, reads the log and the store itself, at a lower priority, and ends when its
standard input is closed, that is, when the leader is gone.
"""

from __future__ import annotations

import os
import subprocess
import threading

import msgspec

from ...infra.interpreter import module_command
from ..configuration import Configuration
from ..snapshots.builder import SnapshotInfo
from ..snapshots.scheduler import SnapshotFailed

_POLL_S = 0.1


class SubprocessResult(msgspec.Struct, frozen=True):
    """The child's result: the snapshot, if the log has any events, or the error."""

    taken: SnapshotInfo | None = None
    error: str | None = None


class SubprocessSnapshotBuilder:
    """Creates snapshots in child processes, which end when `stop` is set or this process dies."""

    def __init__(self, configuration: Configuration, stop: threading.Event) -> None:
        self._environment = {**os.environ, **configuration.environment()}
        self._stop = stop

    def __call__(self, end: int) -> SnapshotInfo | None:
        """Creates a snapshot up to `end`. Raises SnapshotFailed."""
        try:
            child = subprocess.Popen(
                module_command("tailrace.services.processes.snapshot_child", str(end)),
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise SnapshotFailed(f"its process cannot be started: {error}") from error
        with child:
            while child.poll() is None:
                if self._stop.wait(_POLL_S):
                    child.kill()
            output = child.stdout.read() if child.stdout is not None else b""
        if self._stop.is_set():
            raise SnapshotFailed("this process ends")
        return _parse_result(output, child.returncode)


def _parse_result(output: bytes, code: int) -> SnapshotInfo | None:
    try:
        answer = msgspec.json.decode(output, type=SubprocessResult)
    except msgspec.MsgspecError:
        raise SnapshotFailed(f"its process ended with code {code} and without an answer") from None
    if answer.error is not None:
        raise SnapshotFailed(answer.error)
    return answer.taken
