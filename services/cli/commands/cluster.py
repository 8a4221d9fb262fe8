"""`tailrace cluster start | stop | status | snapshot`: manage a cluster whose processes run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..args.common_options import (
    BootstrapServers,
    ClusterId,
    Definitions,
    Format,
    Home,
    Output,
    configuration,
    find_cluster,
)
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result
from .cluster_clean import clean
from .cluster_recover import recover
from .cluster_status import cluster_to_data, processes, servers, show, show_processes
from .cluster_upgrade import upgrade

app = typer.Typer(help="Start, stop and inspect a cluster on this machine.", no_args_is_help=True)
app.command()(clean)
app.command()(recover)


@app.command()
def start(
    masters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Number of jobmanagers; more than one needs high-availability.type=zookeeper. \\[default: 1]",
        ),
    ] = None,
    taskexecutors: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Number of TaskExecutors. \\[default: 2, or 0 with resourcemanager.mode=active]",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Slots per TaskExecutor. \\[default: 2]")] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Start Kafka, jobmanagers and TaskExecutors in the background.

    With --bootstrap-servers, the command uses that Kafka and starts none.

    With -D high-availability.type=zookeeper it also starts ZooKeeper, unless high-availability.zookeeper.quorum is set.

    It starts only the processes that do not run. If all run, it changes nothing.
    """
    from ..local import LocalCluster, LocalClusterOptions

    more = {"--slots": ("taskmanager.numberOfTaskSlots", slots)}
    found = configuration(home, bootstrap_servers, cluster_id, definitions, more)
    if found.bootstrap_servers:
        from ..readers.kafka_check import check_kafka_reachable

        check_kafka_reachable(found)
    try:
        with progress("Starting the cluster") as say:
            local = LocalCluster(found, progress=say)
            fresh = local.start(LocalClusterOptions(taskexecutors=taskexecutors, masters=masters))
    except OSError as error:
        where = error.filename or found.home
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"the cluster can't start in {found.home}: {where}: {error.strerror or error}: check the free disk space "
            "and the write permission, or choose another directory with --home",
        ) from error
    addresses = f"{servers(local.configuration)}, home {found.home}"
    name = local.configuration.cluster_id
    print_progress(
        f"cluster {name} runs: {addresses}" if fresh else f"cluster {name} already runs: {addresses}"
    )
    return ExitCode.OK


@app.command()
def stop(
    suspend: Annotated[
        bool,
        typer.Option(
            "--suspend", help="Suspend the jobs instead of cancelling them. The next start resumes them."
        ),
    ] = False,
    home: Home = None,
) -> int:
    """Cancel the jobs, stop the processes, then stop ZooKeeper and Kafka. The log is kept."""
    from ..local import LocalCluster
    from ..local.topic_recovery import describe_remaining_topics

    found = configuration(home, None, None)
    with progress("Stopping the cluster") as say:
        local = LocalCluster.from_configuration(found, progress=say)
        if local is None:
            say(f"no cluster runs in {found.home}: nothing to stop")
            return ExitCode.OK
        has_log = local.stop(suspend=suspend)
    place = f"in {local.kafka_dir}" if local.embedded else "on its Kafka"
    for line in describe_remaining_topics(local.configuration.cluster_id, place, has_log):
        print_progress(line)
    return ExitCode.OK


@app.command()
def status(
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Show processes, masters and their roles, TaskExecutors, slots and jobs. Exit code 3 if a process is down."""
    from ..local import LocalCluster

    found = configuration(home, bootstrap_servers, cluster_id)
    local = LocalCluster.from_configuration(found)
    running = processes(local) if local is not None else []
    if local is not None and local.kafka is None and local.embedded:
        from ....infra.disk_space import describe_shortage

        show_processes(output, running)
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"the Kafka of the cluster in {found.home} does not run: `tailrace cluster start` starts what is missing"
            f"{describe_shortage(found.home / 'kafka')}",
        )
    reachable = find_cluster(home, bootstrap_servers, cluster_id)
    from ..readers.cluster_state import replay_log
    from ..readers.orphaned_resources import list_resources

    kept = list_resources(reachable)
    fold = replay_log(reachable)
    data = {
        "cluster_id": reachable.cluster_id,
        "bootstrap_servers": reachable.bootstrap_servers,
        "processes": running,
        **cluster_to_data(fold, kept, reachable, local),
    }
    if output is Format.JSON:
        import json

        print_result(json.dumps(data))
    else:
        show(data)
    return ExitCode.OK if all(each["running"] for each in running) else ExitCode.UNREACHABLE


@app.command()
def snapshot(
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Take a snapshot of the log's state now. Jobmanagers load it when they start.

    The command needs the cluster's Kafka and storage. The jobmanagers need not run; if they run, they do not pause.
    """
    found = find_cluster(home, bootstrap_servers, cluster_id, definitions)
    from ....infra.logging_setup import log_to_stderr
    from ....infra.storage.errors import CheckpointError
    from ...history.job_history_store import JobHistoryStore
    from ...history.snapshot_history import create_snapshot_with_history
    from ...log.factory import open_event_log
    from ...snapshots.store import SnapshotStore

    log_to_stderr()
    try:
        log, histories = open_event_log(found, timeout=10.0), JobHistoryStore.from_configuration(found)
        taken = create_snapshot_with_history(log, SnapshotStore.from_configuration(found), histories)
    except CheckpointError as error:
        raise CommandFailure(ExitCode.UNREACHABLE, f"the snapshot could not be stored: {error}") from error
    if taken is None:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"the log of cluster {found.cluster_id} is empty: there is no state to snapshot",
        )
    if output is Format.JSON:
        import msgspec

        print_result(msgspec.json.encode(taken).decode())
    else:
        there = "" if taken.fresh else ", which already existed"
        print_result(f"snapshot of offset {taken.offset}, {taken.size:,} bytes, {taken.uri}{there}")
    return ExitCode.OK


app.command()(upgrade)


@contextmanager
def progress(title: str) -> Iterator[Any]:
    """Yields a function that prints a progress line. A terminal also shows a spinner with `title`."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_progress
        return
    with console.status(f"{title} ..."):
        yield lambda line: console.print(f"  {line}", markup=False, highlight=False)
