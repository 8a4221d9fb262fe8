"""`tailrace config`: every option, its value here, and where that comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import (
    BootstrapServers,
    ClusterId,
    Definitions,
    Format,
    Home,
    Output,
    configuration,
)
from ..render.output import print_result, print_table

if TYPE_CHECKING:
    from ...configuration import Configuration


def config(
    changed: Annotated[bool, typer.Option("--changed", help="Only what has not its default.")] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """List the options: key, value, and where it was set. Says what a process that starts here would go by.

    What the command line of `cluster start` has set holds until `cluster stop`: it is from cluster.json.
    """
    found = _of_cluster(configuration(home, bootstrap_servers, cluster_id, definitions))
    from ...configuration.configuration import DEFAULT, display_value

    settings = [each for each in found.effective() if not changed or each.origin != DEFAULT]
    values = [(each.key, display_value(each), each.origin) for each in settings]
    if output is Format.TEXT:
        print_table("Options", ("KEY", "VALUE", "FROM"), values)
        return 0
    import json

    print_result(json.dumps([{"key": key, "value": value, "from": origin} for key, value, origin in values]))
    return 0


def _of_cluster(found: Configuration) -> Configuration:
    """With what the cluster that lives in the home was started with, below what this command line says."""
    from ..local.cluster_record import read_record, record_path

    record = read_record(found.home)
    if record is None:
        return found
    here = {each.key for each in found.settings() if each.origin.startswith("-")}
    started = {key: value for key, value in record.configuration.items() if key not in here}
    return found.replace(started, str(record_path(found.home)))
