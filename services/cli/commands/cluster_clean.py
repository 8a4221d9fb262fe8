"""`tailrace cluster clean`: removes unused ZooKeeper nodes, blobs and snapshots.

An empty log knows no jobs, so every resource would look unused. The command therefore rejects an empty log.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result


def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the orphans. Without it, the command only lists them.")
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Remove orphans: ZooKeeper nodes, blobs and snapshots that the log does not use.

    The command lists every orphan with the reason, and removes them only with --yes. It needs the cluster's Kafka; the
    other processes need not run.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ....infra.logging_setup import log_to_stderr
    from ...history import fold_to
    from ...history.cluster_view import statuses
    from ...log.factory import open_event_log
    from ...snapshots.store import SnapshotStore
    from ..readers.orphaned_resources import (
        OrphanNotRemoved,
        find_orphaned_resources,
        list_resources,
        remove_orphan,
    )

    log_to_stderr()
    kept = list_resources(configuration)
    replica = fold_to(
        open_event_log(configuration, timeout=10.0), store=SnapshotStore.from_configuration(configuration)
    )
    found = find_orphaned_resources(configuration, kept, statuses(replica), replica.offset)
    if found and replica.offset < 0:
        raise CommandFailure(
            ExitCode.NOT_FOUND,
            f"the log of cluster {configuration.cluster_id} on Kafka at {configuration.bootstrap_servers} holds no "
            f"event, but {len(found)} resources of the cluster exist elsewhere: nothing was removed; check that this "
            "is the cluster's Kafka",
        )
    if output is Format.JSON:
        import msgspec

        shown = {"cluster_id": configuration.cluster_id, "removed": yes, "orphans": found}
        print_result(msgspec.json.encode(shown).decode())
    else:
        for orphan in found:
            print_result(f"{orphan.kind} {orphan.path}: {orphan.reason}")
    things = f"{len(found)} orphan{'' if len(found) == 1 else 's'}"
    if not found:
        print_progress(f"cluster {configuration.cluster_id} has no orphans")
    elif not yes:
        print_progress(f"{things}; nothing was removed: `tailrace cluster clean --yes` removes them")
    else:
        try:
            remove_orphan(configuration, found)
        except OrphanNotRemoved as error:
            raise CommandFailure(
                ExitCode.UNREACHABLE, f"not all of {things} could be removed: {error}"
            ) from error
        print_progress(f"{things} removed")
    return ExitCode.OK
