"""`tailrace cluster`: starts, stops, inspects and repairs a cluster. Its processes run on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ..args.common_options import (
    DEFAULT_CLUSTER,
    ClusterOptions,
    Definitions,
    Format,
    Output,
    check_kafka_is_wanted,
)
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_count
from ..render.output import print_json, print_progress, print_result, print_table
from .cluster_acls import acls
from .cluster_doctor import doctor

app = CommandGroup(help="Start, stop and inspect a cluster on this machine.", no_args_is_help=True)
app.command()(acls)
app.command()(doctor)


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
            help="Number of TaskExecutors. \\[default: 1, or 0 with resourcemanager.mode=active]",
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            help="Slots per TaskExecutor. \\[default: one for each core, at least 4, divided among the TaskExecutors]"
        ),
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Start Kafka, jobmanagers and TaskExecutors in the background.

    With --bootstrap-servers, the command uses that Kafka and starts none.

    With -D high-availability.type=zookeeper it also starts ZooKeeper, unless high-availability.zookeeper.quorum is set.

    It starts only the processes that do not run. If all run, it changes nothing.
    """
    from ...configuration.options.kafka import KafkaUser
    from ..local.cluster import LocalCluster, LocalClusterOptions
    from .cluster_status import servers

    more = {"--slots": ("taskmanager.numberOfTaskSlots", slots)}
    found = cluster.configuration(definitions, more).as_user(KafkaUser.JOBMANAGER)
    check_kafka_is_wanted(found)
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
    if fresh:
        print_progress(f"cluster {name} runs: {addresses}")
        return
    unused = definitions or slots is not None
    hint = "; its processes keep their options: `tailrace cluster stop --suspend` first, to start with others"
    print_progress(f"cluster {name} already runs: {addresses}{hint if unused else ''}")


@app.command()
def stop(
    suspend: Annotated[
        bool,
        typer.Option(
            "--suspend", help="Suspend the jobs instead of cancelling them. The next start resumes them."
        ),
    ] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Cancel the jobs, stop the processes, then stop ZooKeeper and Kafka. The log stays.

    If no cluster was started in --home, and a Kafka is named, the processes on all hosts end, and Kafka runs on.
    """
    from ...configuration.options.kafka import KafkaUser
    from ..local.cluster import LocalCluster
    from ..local.shutdown import STOP_REASON, request_end
    from ..local.topic_recovery import describe_remaining_topics
    from ..local.yarn_staging import is_in_yarn

    found = cluster.configuration().as_user(KafkaUser.JOBMANAGER)
    check_kafka_is_wanted(found)
    with progress("Stopping the cluster") as say:
        if is_in_yarn(found):
            from ..local.yarn_application import remove_if_ended

            if remove_if_ended(found):
                return
        local = LocalCluster.from_configuration(found, progress=say)
        if local is None and not found.bootstrap_servers:
            say(f"no cluster runs in {found.home}: nothing to stop")
            return
        if local is None:
            if not request_end(cluster.find(), STOP_REASON, say, suspend=suspend):
                raise CommandFailure(
                    ExitCode.UNREACHABLE,
                    f"cluster {found.cluster_id} on {found.bootstrap_servers} has not ended: does a jobmanager "
                    "lead it? `tailrace cluster status` lists them",
                )
            return
        has_log = local.stop(suspend=suspend)
    place = f"in {local.servers.kafka_dir}" if local.servers.embedded else "on its Kafka"
    for line in describe_remaining_topics(local.configuration.cluster_id, place, has_log):
        print_progress(line)


@app.command()
def status(
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show processes, masters and their roles, TaskExecutors, slots and jobs. Exit code 3 if a process is down."""
    from ..local.cluster import LocalCluster
    from .cluster_status import cluster_to_data, processes, read_by_rest, show, show_processes

    served = cluster.with_rest()
    if served is not None:
        data = read_by_rest(served)
        if output is Format.JSON:
            print_json(data)
        else:
            show(data, f"the cluster of {data['rest_url']}")
        return ExitCode.OK
    found = cluster.configuration()
    local = LocalCluster.from_configuration(found)
    running = processes(local) if local is not None else []
    if local is not None and local.servers.kafka is None and local.servers.embedded:
        from ....infra.disk_space import describe_shortage

        show_processes(output, running)
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"the Kafka of the cluster in {found.home} does not run: `tailrace cluster start` starts what is missing"
            f"{describe_shortage(found.home / 'kafka')}",
        )
    reachable = cluster.find()
    from ..readers.cluster_state import replay_log
    from ..readers.orphaned_resources import list_resources

    resources = list_resources(reachable)
    fold = replay_log(reachable)
    data = {
        "cluster_id": reachable.cluster_id,
        "bootstrap_servers": reachable.bootstrap_servers,
        "processes": running,
        **cluster_to_data(fold, resources, reachable, local),
    }
    if output is Format.JSON:
        print_json(data)
    else:
        show(data, f"cluster {data['cluster_id']} on Kafka at {data['bootstrap_servers']}")
    return ExitCode.OK if all(each["running"] for each in running) else ExitCode.UNREACHABLE


@app.command()
def snapshot(
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Take a snapshot of the log's state now. Jobmanagers load it when they start.

    The command needs the cluster's Kafka and storage. The jobmanagers need not run; if they run, they do not pause.
    """
    found = cluster.find(definitions)
    from ....infra.logging_setup import log_to_stderr
    from ....infra.storage.errors import CheckpointError
    from ...history.job_history_store import JobHistoryStore
    from ...history.retention.archived_log import open_archived_log
    from ...history.snapshot_history import create_snapshot_with_history
    from ...snapshots.store import SnapshotStore

    log_to_stderr()
    try:
        log, histories = open_archived_log(found, timeout_s=10.0), JobHistoryStore.from_configuration(found)
        taken = create_snapshot_with_history(log, SnapshotStore.from_configuration(found), histories)
    except CheckpointError as error:
        raise CommandFailure(ExitCode.UNREACHABLE, f"the snapshot could not be stored: {error}") from error
    if taken is None:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"the log of cluster {found.cluster_id} is empty: there is no state to snapshot",
        )
    if output is Format.JSON:
        print_json(taken)
    else:
        there = "" if taken.fresh else ", which already existed"
        print_result(f"snapshot of offset {taken.offset}, {taken.size:,} bytes, {taken.uri}{there}")


@app.command()
def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the orphans. Without it, the command only lists them.")
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Remove orphans: blobs and snapshots that the log does not use, and staging directories of ended applications.

    The command lists every orphan with the reason, and removes them only with --yes. It needs the cluster's Kafka; the
    other processes need not run.
    """
    configuration = cluster.find()
    from ....infra.logging_setup import log_to_stderr
    from ...history import fold_to
    from ...history.cluster_view import statuses
    from ...history.retention.archived_log import open_archived_log
    from ...snapshots.store import SnapshotStore
    from ..local.yarn_staging import delete_left_directories, find_left_directories, is_in_yarn
    from ..readers.orphaned_resources import (
        OrphanNotRemoved,
        find_orphaned_resources,
        list_resources,
        remove_orphan,
    )

    log_to_stderr()
    resources = list_resources(configuration)
    replica = fold_to(
        open_archived_log(configuration, timeout_s=10.0),
        store=SnapshotStore.from_configuration(configuration),
    )
    found = find_orphaned_resources(configuration, resources, statuses(replica), replica.offset)
    staging = find_left_directories(configuration) if is_in_yarn(configuration) else []
    if found and replica.offset < 0:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"the log of cluster {configuration.cluster_id} on Kafka at {configuration.bootstrap_servers} holds no "
            f"event, but {len(found)} resources of the cluster exist elsewhere: nothing was removed; check that this "
            "is the cluster's Kafka",
        )
    found += staging
    if output is Format.JSON:
        shown = {"cluster_id": configuration.cluster_id, "removed": yes, "orphans": found}
        print_json(shown)
    else:
        for orphan in found:
            print_result(f"{orphan.kind} {orphan.path}: {orphan.reason}")
    things = format_count(len(found), "orphan")
    if not found:
        print_progress(f"cluster {configuration.cluster_id} has no orphans")
    elif not yes:
        print_progress(f"{things}; nothing was removed: `tailrace cluster clean --yes` removes them")
    else:
        try:
            delete_left_directories(configuration, staging)
            remove_orphan(configuration, found)
        except OrphanNotRemoved as error:
            raise CommandFailure(
                ExitCode.UNREACHABLE, f"not all of {things} could be removed: {error}"
            ) from error
        print_progress(f"{things} removed")


@app.command()
def verify(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Check only that files exist and have their sizes; do not read them."),
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Check the topics, snapshots, archive, blobs and checkpoints of a cluster, and say what would be lost.

    It changes nothing. The command needs the cluster's Kafka and storage; the other processes need not run. Exit code
    12 if something is missing or damaged.
    """
    configuration = cluster.find()
    from ....infra.logging_setup import log_to_stderr
    from ..verification.verify import verify_cluster

    log_to_stderr()
    result = verify_cluster(configuration, quick=quick)
    if output is Format.JSON:
        print_json(result)
    else:
        for fault in result.faults:
            print_result(f"{fault.kind} {fault.name}: {fault.problem}; lost: {fault.lost}")
        rows = [
            (
                kind,
                str(count),
                str(sum(fault.kind == kind for fault in result.faults)),
                result.lost_without[kind],
            )
            for kind, count in result.checked.items()
        ]
        print_table("Resources", ("RESOURCE", "CHECKED", "FAULTS", "LOST WITHOUT IT"), rows)
        for note in result.notes:
            print_progress(note)
        what = format_count(len(result.faults), "fault")
        print_progress(f"cluster {result.cluster_id} has {what if result.faults else 'no faults'}")
    return ExitCode.UNSOUND if result.faults else ExitCode.OK


@app.command()
def recover(
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Remove the wrong snapshots. Without it, the command only lists them."),
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Find leadership claims that use up all epochs, and remove the snapshots that accepted such a claim.

    Use it if no jobmanager can claim its roles any more. Stop all jobmanagers, run it, then start the cluster again. It
    reads the whole log and writes nothing into it. It removes snapshots only with --yes.
    """
    configuration = cluster.find()
    from ....infra.logging_setup import log_to_stderr
    from ...history.retention.archived_log import open_archived_log
    from ...snapshots.claim_recovery import find
    from ...snapshots.store import SnapshotStore

    log_to_stderr()
    store = SnapshotStore.from_configuration(configuration)
    found = find(open_archived_log(configuration, timeout_s=10.0), store)
    if yes:
        for snapshot in found.snapshots:
            store.delete(snapshot.offset)
    if output is Format.JSON:
        import msgspec

        shown = {"cluster_id": configuration.cluster_id, "removed": yes, **msgspec.to_builtins(found)}
        print_json(shown)
    else:
        for claim in found.claims:
            print_result(
                f"offset {claim.offset}: a claim of {claim.role} with epoch {claim.epoch}, after epoch {claim.last}: "
                "readers ignore it"
            )
        for snapshot in found.snapshots:
            print_result(f"{snapshot.uri}: its leader of {', '.join(snapshot.roles)} differs from the log")
    if found.exhausted:
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"the epochs of {', '.join(found.exhausted)} are used up: no process can claim these roles any more; move "
            "the log to another cluster id: `tailrace log export`, then `tailrace log import`",
        )
    if found.snapshots:
        things = format_count(len(found.snapshots), "wrong snapshot")
        how = "removed" if yes else "nothing was removed: `tailrace cluster recover --yes` removes them"
        print_progress(f"{things}; {how}")
    elif found.claims:
        print_progress("no snapshot is wrong: `tailrace cluster start` continues with this log")
    else:
        print_progress(
            f"cluster {configuration.cluster_id} needs no recovery: its {found.end:,} offsets hold no such claim"
        )


@app.command()
def upgrade(output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Raise the cluster's feature level to that of this release. This can't be undone.

    A cluster that an earlier release created keeps that release's feature level until then. Run this command when all
    jobmanagers, TaskExecutors and clients have this release: processes of earlier releases stop at the new level.
    """
    configuration = cluster.find()
    from ...client.feature_level_upgrade import raise_to_latest_level

    before, now = raise_to_latest_level(configuration)
    if output is Format.JSON:
        print_json({"before": before, "feature_level": now})
    elif before == now:
        print_progress(f"the cluster already has feature level {now}, the level of this release")
    else:
        print_progress(f"the cluster now has feature level {now}; before it had {before}")


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
