"""`tailrace jobmanager` and `tailrace taskexecutor`: one process of a cluster, in the foreground."""

from __future__ import annotations

import re
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Definitions, Home, find_cluster
from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ...configuration import Configuration


def jobmanager(
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Run a jobmanager: Dispatcher, ResourceManager and the JobMasters of all jobs.

    Killed at any moment it loses nothing: start it again. SIGTERM ends the process, not the cluster.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id, definitions)
    from ....infra import threads
    from ....infra.logging_setup import log_to_stderr
    from ...configuration.options.simulation import SIMULATED
    from ...processes.process_lifecycle import stop_on_signals

    log_to_stderr()
    threads.handle(threads.end_process)
    if configuration.get(SIMULATED):
        from ...processes import simulated_jobmanager

        simulated_jobmanager.run(configuration, stop_on_signals())
    else:
        from ...processes import jobmanager as process

        process.run(configuration, stop_on_signals())
    return ExitCode.OK


def taskexecutor(
    resource_id: Annotated[
        str | None,
        typer.Option(
            help="Its name. One that restarts under the same name goes on with its slots. \\[default: host-random]"
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Slots that it offers. \\[default: 2]")] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Run a TaskExecutor with its Spark and its tasks; may be started before the jobmanager.

    SIGTERM makes it leave in order. In a cluster that is simulated (`tailrace fork`) it runs no Spark and no tasks.
    """
    more = {
        "--slots": ("taskmanager.numberOfTaskSlots", slots),
        "--resource-id": ("taskmanager.resource-id", resource_id),
    }
    configuration = find_cluster(home, bootstrap_servers, cluster_id, definitions, more)
    from ...configuration.options.simulation import SIMULATED
    from ...configuration.options.task_executor import RESOURCE_ID

    if configuration.get(SIMULATED):
        return _simulated(configuration, configuration.get(RESOURCE_ID))
    name = (
        configuration.get(RESOURCE_ID)
        or f"{re.sub('[^A-Za-z0-9_-]', '-', socket.gethostname())[:40]}-{secrets.token_hex(3)}"
    )
    from ....infra import threads
    from ....infra.logging_setup import log_to_stderr
    from ...processes import taskexecutor as entrypoint
    from ...processes.process_lifecycle import stop_on_signals

    log_to_stderr()
    threads.handle(threads.end_process)
    scratch = configuration.home.absolute() / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    # Fresh for each process: what one that was killed has left there must not meet its successor.
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch, ignore_cleanup_errors=True) as own:
        entrypoint.run(configuration, name, Path(own), stop_on_signals())
    return ExitCode.OK


def _simulated(configuration: Configuration, resource_id: str | None) -> int:
    """One TaskExecutor whose tasks only run, or all that the home names."""
    from ....infra import threads
    from ....infra.logging_setup import log_to_stderr
    from ...processes import simulated_taskexecutor as entrypoint
    from ...processes.process_lifecycle import stop_on_signals
    from ...simulation.fork_members import ForkMember, members_path, read_members

    members = (
        [ForkMember(resource_id, configuration.task_slots)]
        if resource_id
        else read_members(configuration.home)
    )
    if not members:
        raise CommandFailure(
            ExitCode.USAGE,
            f"{members_path(configuration.home)} names no TaskExecutors to simulate: give --resource-id, or fork a "
            "cluster that has some",
        )
    log_to_stderr()
    threads.handle(threads.end_process)
    entrypoint.run(configuration, members, stop_on_signals())
    return ExitCode.OK
