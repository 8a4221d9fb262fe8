"""`tailrace cluster upgrade`: the rules of this release, once all masters know them."""

from __future__ import annotations

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..render.output import result, tell


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
    from ...client.feature_level_upgrade import upgrade as ask

    before, now = ask(configuration)
    if output is Format.JSON:
        import json

        result(json.dumps({"before": before, "feature_level": now}))
    elif before == now:
        tell(f"the cluster is at feature level {now} already, which is this release's")
    else:
        tell(f"the cluster is at feature level {now} now; it was at {before}")
    return 0
