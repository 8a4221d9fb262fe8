"""`tailrace state`: the state of every role at any offset of the log, from the log alone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..text import printable
from .errors import ExitCode, Failure
from .options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from .show import result

_LONGEST_TEXT = 100


def state(
    at: Annotated[
        int | None,
        typer.Option(
            min=-1, metavar="OFFSET", help="After the event at this offset. \\[default: the last one]"
        ),
    ] = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Print the state of every role, now or at any offset, with a hash that is the same for the same log."""
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    import msgspec

    from ..connections import event_log
    from ..entrypoints.process import log_to_stderr
    from ..history import state_at
    from ..snapshots.store import SnapshotStore

    log_to_stderr()
    log = event_log(configuration, timeout=10.0)
    end = log.end()
    if at is not None and at >= end:
        raise Failure(ExitCode.NOT_FOUND, f"the log ends before offset {at}: its last offset is {end - 1}")
    moment = state_at(log, at, SnapshotStore.of(configuration))
    if output is Format.JSON:
        result(msgspec.json.encode(moment).decode())
        return ExitCode.OK
    result(f"offset {moment.offset}  state hash {moment.state_hash}")
    for role, leader in moment.leaders.items():
        result(
            f"{role} is led by {leader['address']}, epoch {leader['epoch']}, since offset {leader['offset']}"
        )
    for address, data in moment.roles.items():
        result("")
        result(printable(f"{address}:"))
        for line in lines(data, 1):
            result(line)
    return ExitCode.OK


def lines(data: Any, depth: int) -> list[str]:
    """Data as indented lines, without what is empty."""
    indent = "  " * depth
    shown: list[str] = []
    pairs = data.items() if isinstance(data, dict) else ((f"- {i}", each) for i, each in enumerate(data))
    for key, value in pairs:
        if value in (None, {}, [], ""):
            continue
        if isinstance(value, dict | list):
            shown += [f"{indent}{printable(str(key))}:", *lines(value, depth + 1)]
        else:
            text = " ".join(str(value).split())
            text = text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."
            shown.append(printable(f"{indent}{key}: {text}"))
    return shown
