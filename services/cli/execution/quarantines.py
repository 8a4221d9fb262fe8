"""Quarantines TaskExecutors and hosts, and lists them."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from ....schemas.types import QuarantineMode
from ...client.rest_client import open_job_client
from ...configuration import Configuration
from ...core.replica import Replica
from ...history import cluster_view
from ..args.common_options import Format
from ..exit_codes import CommandFailure, ExitCode
from ..readers.cluster_state import replay_log
from ..render.formatting import format_time
from ..render.output import print_json, print_progress, print_table

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.3
_COLUMNS: Final = ("TASKEXECUTOR", "HOST", "SLOTS", "FREE", "STATE", "REASON", "UNTIL")


def print_task_executors(configuration: Configuration, output: Format) -> None:
    """Prints a line for each registered TaskExecutor, and for quarantines of others. Raises LogUnavailable."""
    replica = replay_log(configuration).replica
    workers, quarantines = cluster_view.workers(replica), cluster_view.quarantines(replica)
    if output is Format.JSON:
        for worker in workers:
            print_json({**msgspec.to_builtins(worker), "state": cluster_view.describe_quarantine(worker)})
        return
    rows = []
    for worker in workers:
        found = worker.quarantine
        until = format_time(found.until) if found is not None and found.until is not None else ""
        reason = "" if found is None else found.reason
        state = cluster_view.describe_quarantine(worker)
        slots = (str(worker.slots), str(worker.free_slots))
        rows.append((worker.resource_id, worker.host, *slots, state, reason, until))
    there = {worker.resource_id for worker in workers}
    for resource_id, found in sorted(quarantines.task_executors.items()):
        if resource_id not in there:
            until = "" if found.until is None else format_time(found.until)
            rows.append((resource_id, "", "", "", "not registered; quarantined", found.reason, until))
    hosts = {worker.host for worker in workers}
    for host, found in sorted(quarantines.hosts.items()):
        if host not in hosts:
            until = "" if found.until is None else format_time(found.until)
            rows.append(("", host, "", "", "no TaskExecutor; quarantined", found.reason, until))
    print_table("TaskExecutors", _COLUMNS, rows)


def set_quarantine(
    configuration: Configuration,
    resource_id: str | None,
    host: str | None,
    mode: QuarantineMode,
    reason: str,
) -> None:
    """Requests a quarantine, a drain or a release, and waits until the ResourceManager has it. Raises
    CommandFailure, LogUnavailable."""
    name = f"TaskExecutor {resource_id}" if host is None else f"host {host}"
    replica = replay_log(configuration).replica
    workers = cluster_view.workers(replica)
    if mode is QuarantineMode.RELEASED and _mode(replica, resource_id, host) is mode:
        raise CommandFailure(ExitCode.NOT_FOUND, f"{name} is not quarantined")
    if not any(worker.resource_id == resource_id or worker.host == host for worker in workers):
        print_progress(f"{name} is not registered now; what you ask for holds when it is")
    with open_job_client(configuration, "quarantine", 10.0) as client:
        client.set_quarantine(resource_id, host, mode, reason)
    until = time.monotonic() + _TIMEOUT_S
    while _mode(replica, resource_id, host) is not mode:
        if time.monotonic() > until:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"no jobmanager has answered within {_TIMEOUT_S:g} s: does one lead (`tailrace cluster status`)? The "
                "next leader answers the request",
            )
        time.sleep(_POLL_S)
        replica = replay_log(configuration).replica
    for worker in cluster_view.workers(replica):
        if worker.resource_id == resource_id or worker.host == host:
            print_progress(f"TaskExecutor {worker.resource_id} is {cluster_view.describe_quarantine(worker)}")


def _mode(replica: Replica, resource_id: str | None, host: str | None) -> QuarantineMode:
    known = cluster_view.quarantines(replica)
    found = known.task_executors.get(resource_id or "") if host is None else known.hosts.get(host)
    return QuarantineMode.RELEASED if found is None else found.mode
