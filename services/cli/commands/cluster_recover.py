"""`tailrace cluster recover`: repairs a cluster whose log holds a leadership claim with an impossibly high epoch."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result


def recover(
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Remove the wrong snapshots. Without it, the command only lists them."),
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Find leadership claims that use up all epochs, and remove the snapshots that accepted such a claim.

    Use it if no jobmanager can claim its roles any more. Stop all jobmanagers, run it, then start the cluster again. It
    reads the whole log and writes nothing into it. It removes snapshots only with --yes.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ....infra.logging_setup import log_to_stderr
    from ...log.factory import open_event_log
    from ...snapshots.claim_recovery import find
    from ...snapshots.store import SnapshotStore

    log_to_stderr()
    store = SnapshotStore.from_configuration(configuration)
    found = find(open_event_log(configuration, timeout=10.0), store)
    if yes:
        for snapshot in found.snapshots:
            store.delete(snapshot.offset)
    if output is Format.JSON:
        import msgspec

        shown = {"cluster_id": configuration.cluster_id, "removed": yes, **msgspec.to_builtins(found)}
        print_result(msgspec.json.encode(shown).decode())
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
        things = f"{len(found.snapshots)} wrong snapshot{'' if len(found.snapshots) == 1 else 's'}"
        how = "removed" if yes else "nothing was removed: `tailrace cluster recover --yes` removes them"
        print_progress(f"{things}; {how}")
    elif found.claims:
        print_progress("no snapshot is wrong: `tailrace cluster start` continues with this log")
    else:
        print_progress(
            f"cluster {configuration.cluster_id} needs no recovery: its {found.end:,} offsets hold no such claim"
        )
    return ExitCode.OK
