"""`tailrace taskexecutor`: runs a TaskExecutor in the foreground, and drains, quarantines, releases and lists them."""

from __future__ import annotations

import re
import secrets
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Definitions, Format, Output
from ..args.option_groups import CommandGroup, expand_groups
from ..exit_codes import CommandFailure, ExitCode
from .processes import prepare

if TYPE_CHECKING:
    from ...configuration import Configuration

app = CommandGroup(name="taskexecutor")

ResourceId = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="The TaskExecutor, as `taskexecutor list` shows it.")
]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="All TaskExecutors of this host, in place of one."),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the log and `taskexecutor list` show it.")
]


@app.callback(invoke_without_command=True)
@expand_groups
def taskexecutor(
    context: typer.Context,
    resource_id: Annotated[
        str | None,
        typer.Option(
            help="The resource id. A TaskExecutor that restarts with the same id keeps its slots. \\[default: "
            "host-random]"
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Number of slots that it offers. \\[default: 2]")] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Run a TaskExecutor: a Spark session and its tasks; its commands drain, quarantine, release and list them.

    It may start before the jobmanager. On SIGTERM it deregisters and stops. In a simulated cluster (`tailrace fork`) it
    runs no Spark and no real tasks.
    """
    if context.invoked_subcommand is not None:
        return
    more = {
        "--slots": ("taskmanager.numberOfTaskSlots", slots),
        "--resource-id": ("taskmanager.resource-id", resource_id),
    }
    configuration = cluster.locate(definitions, more)
    from ...configuration.options.simulation import SIMULATED
    from ...configuration.options.task_executor import RESOURCE_ID

    if configuration.get(SIMULATED):
        _simulated(configuration, configuration.get(RESOURCE_ID))
        return
    name = (
        configuration.get(RESOURCE_ID)
        or f"{re.sub('[^A-Za-z0-9_-]', '-', socket.gethostname())[:40]}-{secrets.token_hex(3)}"
    )
    from ...processes import taskexecutor as entrypoint

    stop = prepare(configuration)
    scratch = configuration.home.absolute() / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    # A new directory for every process, so that files of a killed predecessor are not reused.
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=scratch, ignore_cleanup_errors=True) as own:
        entrypoint.run(configuration, name, Path(own), stop)


@app.command("list")
def list_task_executors(output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """List the TaskExecutors with their slots, and which are quarantined or drained and why. JSON: one per line."""
    configuration = cluster.find_or_rest()
    from ..execution.quarantines import print_task_executors

    print_task_executors(configuration, output)


@app.command("quarantine")
def quarantine(
    resource_id: ResourceId = None,
    host: Host = None,
    reason: Reason = "asked for by hand",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Give a TaskExecutor or host no more slots. Its tasks move elsewhere, job by job, while other slots are free.

    It holds for every later process under the id or on the host, until `taskexecutor release`.
    """
    _set("QUARANTINED", resource_id, host, reason, cluster)


@app.command("drain")
def drain(
    resource_id: ResourceId = None,
    host: Host = None,
    reason: Reason = "asked for by hand",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Quarantine a TaskExecutor or host, and stop what the ResourceManager has started there when it is empty.

    A TaskExecutor that was started otherwise stays registered without tasks; stop its process.
    """
    _set("DRAINING", resource_id, host, reason, cluster)


@app.command("release")
def release(
    resource_id: ResourceId = None,
    host: Host = None,
    reason: Reason = "asked for by hand",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """End the quarantine of a TaskExecutor or host: its slots are used again."""
    _set("RELEASED", resource_id, host, reason, cluster)


def _set(mode: str, resource_id: str | None, host: str | None, reason: str, cluster: ClusterOptions) -> None:
    if (resource_id is None) == (host is None):
        raise CommandFailure(ExitCode.USAGE, "name a TaskExecutor or give --host, one of both")
    configuration = cluster.find_or_rest()
    from ....schemas.types import QuarantineMode
    from ..execution.quarantines import set_quarantine

    set_quarantine(configuration, resource_id, host, QuarantineMode(mode), reason)


def _simulated(configuration: Configuration, resource_id: str | None) -> None:
    """Runs the simulated TaskExecutor `resource_id`, or all members of the home if it is None."""
    from ...processes import simulated_taskexecutor as entrypoint
    from ...simulation.fork import ForkMember, members_path, read_members

    members = (
        [ForkMember(resource_id, configuration.task_slots)]
        if resource_id
        else read_members(configuration.home)
    )
    if not members:
        raise CommandFailure(
            ExitCode.USAGE,
            f"{members_path(configuration.home)} lists no TaskExecutors to simulate: give --resource-id, or fork a "
            "cluster that has TaskExecutors",
        )
    entrypoint.run(configuration, members, prepare(configuration))
