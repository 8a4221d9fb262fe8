"""`tailrace cluster recover`: the way back for a cluster whose log holds a claim with an epoch that is out of reach."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result


def recover(
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the wrong snapshots; else only show them.")
    ] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Find claims to lead that use up all epochs, and remove the snapshots that took them for valid.

    Reads the whole log, and writes nothing into it. Removes nothing without --yes. Run it when no jobmanager runs, if
    none can claim its roles any more; then start the cluster again.
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
                f"offset {claim.offset}: a claim of {claim.role} under epoch {claim.epoch}, after {claim.last}: "
                "readers ignore it"
            )
        for snapshot in found.snapshots:
            print_result(
                f"{snapshot.uri}: who leads {', '.join(snapshot.roles)} in it is not what the log says"
            )
    if found.exhausted:
        raise CommandFailure(
            ExitCode.PROCESS_FAILED,
            f"the epochs of {', '.join(found.exhausted)} are used up: no process can claim them any more; go on under "
            "another cluster id: `tailrace log export`, then `tailrace log import`",
        )
    if found.snapshots:
        things = f"{len(found.snapshots)} wrong snapshot{'' if len(found.snapshots) == 1 else 's'}"
        how = "removed" if yes else "nothing was removed: `tailrace cluster recover --yes` removes them"
        print_progress(f"{things}; {how}")
    elif found.claims:
        print_progress("no snapshot is wrong: `tailrace cluster start` goes on with this log")
    else:
        print_progress(
            f"cluster {configuration.cluster_id} needs no recovery: its {found.end:,} offsets hold no such claim"
        )
    return ExitCode.OK
