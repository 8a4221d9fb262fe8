"""`tailrace config`: every option, its value here, and where that comes from."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from .options import BootstrapServers, ClusterId, Definitions, Format, Home, Output, configuration
from .show import result, table

_PASSWORD = re.compile(r"(?<=://)[^/@]*@")


def config(
    changed: Annotated[bool, typer.Option("--changed", help="Only what has not its default.")] = False,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """List the options: key, value, and where it was set. Says what a process that starts here would go by."""
    found = configuration(home, bootstrap_servers, cluster_id, definitions)
    from ..configuration.configuration import DEFAULT

    settings = [each for each in found.effective() if not changed or each.origin != DEFAULT]
    values = [(each.key, _PASSWORD.sub("...@", each.text), each.origin) for each in settings]
    if output is Format.TEXT:
        table("Options", ("KEY", "VALUE", "FROM"), values)
        return 0
    import json

    result(json.dumps([{"key": key, "value": value, "from": origin} for key, value, origin in values]))
    return 0
