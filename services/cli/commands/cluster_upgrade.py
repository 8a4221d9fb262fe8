"""`tailrace cluster upgrade`: the rules of this release, once all masters know them."""

from __future__ import annotations

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..render.output import print_progress, print_result


def upgrade(
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Have the cluster go by the feature level of this release, for good.

    Until then a cluster that an earlier release began goes by the rules of that one, also with newer processes. Run it
    when all jobmanagers, TaskExecutors and clients are of this release: earlier ones stop at it.
    """
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ...client.feature_level_upgrade import raise_to_latest_level as ask

    before, now = ask(configuration)
    if output is Format.JSON:
        import json

        print_result(json.dumps({"before": before, "feature_level": now}))
    elif before == now:
        print_progress(f"the cluster is at feature level {now} already, which is this release's")
    else:
        print_progress(f"the cluster is at feature level {now} now; it was at {before}")
    return 0
