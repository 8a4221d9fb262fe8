"""`tailrace cluster upgrade`: raises the cluster's feature level to that of this release."""

from __future__ import annotations

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..render.output import print_progress, print_result


def upgrade(
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Raise the cluster's feature level to that of this release. This can't be undone.

    A cluster that an earlier release created keeps that release's feature level until then. Run this command when all
    jobmanagers, TaskExecutors and clients have this release: processes of earlier releases stop at the new level.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ...client.feature_level_upgrade import raise_to_latest_level as ask

    before, now = ask(configuration)
    if output is Format.JSON:
        import json

        print_result(json.dumps({"before": before, "feature_level": now}))
    elif before == now:
        print_progress(f"the cluster already has feature level {now}, the level of this release")
    else:
        print_progress(f"the cluster now has feature level {now}; before it had {before}")
    return 0
