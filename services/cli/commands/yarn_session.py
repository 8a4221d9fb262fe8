"""`tailrace yarn-session`: a cluster in YARN.

This module declares the command, so that its help is quick. `local/yarn_application.py` runs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Definitions


def yarn_session(
    detached: Annotated[
        bool,
        typer.Option("--detached", "-d", help="Return when the session runs. \\[default: end it on Ctrl-C]"),
    ] = False,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue in YARN.")] = None,
    jobmanager_memory: Annotated[
        str | None,
        typer.Option(
            "--jobmanager-memory", "-jm", help="The memory of the jobmanager's container, as 1600m."
        ),
    ] = None,
    taskmanager_memory: Annotated[
        str | None,
        typer.Option("--taskmanager-memory", "-tm", help="The memory of a TaskExecutor's container, as 2g."),
    ] = None,
    slots: Annotated[int | None, typer.Option("--slots", "-s", help="The slots of a TaskExecutor.")] = None,
    name: Annotated[str | None, typer.Option("--name", "-nm", help="The name of the application.")] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Start a cluster in YARN: a jobmanager as ApplicationMaster, and TaskExecutors in containers as jobs need them.

    The Hadoop configuration is in HADOOP_CONF_DIR. Kafka must run where the nodes reach it (--bootstrap-servers).

    cluster.json in --home has the session then, so that other commands find it; `cluster stop` ends it (docs/yarn.md).
    """
    from ..local.yarn_application import run_session

    more = {
        "--queue": ("yarn.application.queue", queue),
        "--jobmanager-memory": ("jobmanager.memory.process.size", jobmanager_memory),
        "--taskmanager-memory": ("taskmanager.memory.process.size", taskmanager_memory),
        "--slots": ("taskmanager.numberOfTaskSlots", slots),
        "--name": ("yarn.application.name", name),
    }
    run_session(cluster.configuration(definitions, more), detached=detached)
