"""`tailrace config`: lists every option, its value here, and the source of the value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import (
    DEFAULT_CLUSTER,
    ClusterOptions,
    Definitions,
    Format,
    Output,
)
from ..render.output import print_json, print_table

if TYPE_CHECKING:
    from ...configuration import Configuration


def config(
    changed: Annotated[
        bool, typer.Option("--changed", help="Only options whose value is not the default.")
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """List the options that a process started here would use: key, value, and where it was set.

    Options from the command line of `cluster start` hold until `cluster stop`. They come from cluster.json.
    """
    found = _with_cluster_record(cluster.configuration(definitions))
    from ...configuration.configuration import DEFAULT, display_value

    settings = [setting for setting in found.effective() if not changed or setting.origin != DEFAULT]
    values = [(setting.key, display_value(setting), setting.origin) for setting in settings]
    if output is Format.TEXT:
        print_table("Options", ("KEY", "VALUE", "FROM"), values)
        return
    print_json([{"key": key, "value": value, "from": origin} for key, value, origin in values])


def _with_cluster_record(found: Configuration) -> Configuration:
    """Adds the options that the cluster in the home was started with. This command line takes precedence."""
    from ..local.cluster_record import read_record, record_path

    record = read_record(found.home)
    if record is None:
        return found
    here = {setting.key for setting in found.settings() if setting.origin.startswith("-")}
    started = {key: value for key, value in record.configuration.items() if key not in here}
    return found.replace(started, str(record_path(found.home)))
