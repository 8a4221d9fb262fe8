"""`tailrace logs`: the logs of an application in YARN.

This module declares the command, so that its help is quick. `local/yarn_logs.py` runs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Definitions


def logs(
    application: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The application's id. \\[default: the one of cluster.json]"),
    ] = None,
    container: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the logs of this container.")
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Print the logs of the containers of an application in YARN.

    While it runs, they come from the NodeManagers of the containers that run; afterwards from HDFS, if the cluster has
    log aggregation (docs/yarn.md).
    """
    from ..local.yarn_logs import print_logs

    print_logs(cluster.configuration(definitions), application, container)
