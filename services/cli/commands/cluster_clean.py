"""`tailrace cluster clean`: what is left in ZooKeeper and storage although nobody will use it goes, when people say so.

A log without events knows no jobs, so that by it everything would go: it is taken for the wrong one.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result


def clean(
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; else only show what would be removed.")
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Remove orphans: nodes in ZooKeeper, blobs and snapshots that the log has no use for.

    Shows them and why, and removes nothing without --yes. The cluster need not run; what is needed is its Kafka.
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
            f"event, but {len(found)} things of it are kept elsewhere: is this its Kafka? Nothing was removed",
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
            raise CommandFailure(ExitCode.UNREACHABLE, f"not all of {things} went: {error}") from error
        print_progress(f"{things} removed")
    return ExitCode.OK
