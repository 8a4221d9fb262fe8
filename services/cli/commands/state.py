"""`tailrace state`: prints the state of every role at any offset, from the log alone."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ....infra.sanitize import escape_control_characters
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ..args.log_source import At, File, find_source
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_result
from ..render.state import format_lines

if TYPE_CHECKING:
    from ...core.replica import Replica
    from ...history.log_source import LogSource

_MOST = 50
"""The number of map entries shown if ADDRESS does not name the state."""


def state(
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ADDRESS]...",
            help="Only these states, in full: dispatcher, 'job_master/*', task_executor/te-1.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    output: Output = Format.TEXT,
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Print the state of every role, now or at any offset or time. The same log gives the same state hash.

    The text output shows one line per ended job, and only the first entries of long maps. -o json shows everything.
    """
    from ....infra.logging_setup import log_to_stderr

    log_to_stderr()
    with find_source(home, bootstrap_servers, cluster_id, file) as source:
        from ..args.time_travel import replica_at

        replica = replica_at(source, at)
        wanted = None if not addresses else _matching(replica, addresses)
        if output is Format.JSON:
            from ...history.time_travel import cluster_moment
            from ..args.time_travel import to_json

            print_result(to_json(cluster_moment(replica, wanted)))
        else:
            print_result("\n".join(_text(source, replica, wanted)))
    return ExitCode.OK


def _matching(replica: Replica, wanted: Sequence[str]) -> list[str]:
    """Returns the addresses that match the given names and patterns. Raises CommandFailure if one matches nothing."""
    found: dict[str, None] = {}
    for pattern in wanted:
        some = [pattern] if pattern in replica.states else fnmatch.filter(replica.states, pattern)
        if not some:
            import difflib

            near = difflib.get_close_matches(pattern, list(replica.states), 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "`tailrace state` shows all addresses"
            raise CommandFailure(
                ExitCode.NOT_FOUND, f"there is no state of {pattern!r} at offset {replica.offset}: {hint}"
            )
        found.update(dict.fromkeys(some))
    return sorted(found)


def _text(source: LogSource, replica: Replica, wanted: Sequence[str] | None) -> Iterator[str]:
    from ...history.time_travel import state_hash
    from ...history.to_builtins import to_builtins
    from ..args.time_travel import format_moment, time_of

    time = format_moment(time_of(source, replica.offset))
    level = replica.leadership.feature_level
    yield (
        f"offset {replica.offset}{f'  {time}' if time else ''}  state hash {state_hash(replica)}"
        f"{f'  feature level {level}' if level > 1 else ''}"
    )
    leaders = replica.leadership.leaders
    for role in sorted(leaders):
        if wanted is None or role in wanted:
            leader = leaders[role]
            yield escape_control_characters(
                f"{role} is led by {leader.address}, epoch {leader.epoch}, since offset {leader.offset}"
            )
    for address in sorted(replica.states) if wanted is None else wanted:
        if wanted is None and (ended := _describe_ended_job(replica, address)) is not None:
            yield ended
            continue
        yield ""
        yield escape_control_characters(f"{address}:")
        yield from format_lines(to_builtins(replica.states[address]), 1, _MOST if wanted is None else None)


def _describe_ended_job(replica: Replica, address: str) -> str | None:
    """Returns one line for the state of an ended job; None for all other states."""
    from ...job_master.state import JobMasterState

    if replica.is_active(address):
        return None
    state = replica.states[address]
    if not isinstance(state, JobMasterState) or state.terminated is None:
        return None
    reason = f": {' '.join(state.reason.split())}" if state.reason else ""
    return escape_control_characters(f"{address}: {state.terminated.name}, {state.status.value}{reason}")
