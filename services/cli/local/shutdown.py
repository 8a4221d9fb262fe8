"""Stops the processes of a local cluster: first by a request in the log, then by signals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ....infra.sanitize import escape_control_characters
from ....schemas.event import Record
from ....schemas.everyone import ClusterTerminated
from ...configuration import Configuration
from .local_process import LocalProcess, Progress

STOP_REASON = "asked for on the command line"
STOP_TIMEOUT_S = 40.0
TERMINATE_TIMEOUT_S = 15.0
KILL_AFTER_S = 5.0
_LOOK_S = 0.05


def end_in_order(
    configuration: Configuration,
    alive: Iterable[LocalProcess],
    reason: str,
    progress: Progress,
    *,
    suspend: bool,
) -> None:
    """Requests the shutdown of the cluster, and waits until the processes have ended. Reports failures."""
    if request_end(configuration, reason, progress, suspend=suspend):
        _wait_until_gone(alive, TERMINATE_TIMEOUT_S)


def request_end(configuration: Configuration, reason: str, progress: Progress, *, suspend: bool) -> bool:
    """Requests the shutdown of the cluster, and waits until its log has the end. Reports failures; returns whether
    the cluster has ended."""
    from ...client import Client
    from ...core.feature_level import UnknownFeatureLevel
    from ...log import LogTruncated, LogUnavailable

    try:
        with Client(configuration, name="stop", timeout_s=10.0) as client:
            with client.subscribe() as conversation:
                client.shut_down(reason, suspend=suspend)
                over = conversation.wait_for(_find_cluster_terminated, STOP_TIMEOUT_S)
    except (LogUnavailable, LogTruncated, UnknownFeatureLevel) as error:
        # Signals end the processes, whatever the log holds.
        progress(f"the cluster can't be asked to end: {error}")
        return False
    if over is None:
        progress(f"the cluster did not end within {STOP_TIMEOUT_S:.0f} s")
        return False
    progress(f"the cluster has ended: {escape_control_characters(over.reason)}")
    for line in over.remains:
        progress(escape_control_characters(line))
    return True


def end_by_force(running: Callable[[], list[LocalProcess]], progress: Progress) -> None:
    """Sends SIGTERM to all running processes, then SIGKILL to the remaining ones and to new ones."""
    left = running()
    for process in left:
        progress(f"{process.name} (pid {process.record.pid}) still runs: SIGTERM")
        process.terminate()
    for process in _wait_until_gone(left, TERMINATE_TIMEOUT_S):
        progress(f"{process.name} (pid {process.record.pid}) does not end: SIGKILL")
        process.kill()
    for process in running():
        # The jobmanager may have started others while it was ending.
        process.kill()


def end_soon(processes: Iterable[LocalProcess]) -> None:
    """Sends SIGTERM, and soon SIGKILL to processes that still run."""
    running = [process for process in processes if process.is_running()]
    for process in running:
        process.terminate()
    for process in _wait_until_gone(running, KILL_AFTER_S):
        process.kill()


def _find_cluster_terminated(record: Record) -> ClusterTerminated | None:
    return record.body if isinstance(record.body, ClusterTerminated) else None


def _wait_until_gone(processes: Iterable[LocalProcess], timeout_s: float) -> list[LocalProcess]:
    """Returns the processes that still run after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    left = list(processes)
    while left and time.monotonic() < deadline:
        left = [process for process in left if process.is_running()]
        if left:
            time.sleep(_LOOK_S)
    return left
