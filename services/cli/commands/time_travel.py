"""`tailrace state`, `diff` and `replay`: the states of the roles at any offset of the log, from the log alone.

This module declares the commands. `render/` and `readers/` run them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.log_source import DEFAULT_LOG, PLACE, At, LogOptions
from ..exit_codes import ExitCode
from ..render.output import print_json, print_result


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
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Print the state of every role, now or at any offset or time. The same log gives the same state hash.

    The text output shows one line per ended job, and only the first entries of long maps. -o json shows everything.
    """
    with log_options.open() as source:
        from ..args.time_travel import replica_at
        from ..render.state import format_states, matching_addresses

        replica = replica_at(source, at)
        wanted = matching_addresses(replica, addresses) if addresses else None
        if output is Format.JSON:
            from ...history.time_travel import cluster_moment

            print_json(cluster_moment(replica, wanted))
        else:
            print_result("\n".join(format_states(source, replica, wanted)))


def diff(
    first: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=PLACE,
            help="The state after this offset or time: 2026-11-22T08:30, 08:30 (today), -10m (10 minutes ago).",
        ),
    ],
    last: Annotated[
        str | None, typer.Option("--to", metavar=PLACE, help="Like --from. \\[default: the last event]")
    ] = None,
    fields: Annotated[bool, typer.Option("--fields", help="Also show every field that differs.")] = False,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Compare the state at two offsets or times: jobs and tasks, TaskExecutors and slots, leaders.

    -o json prints all differences. They turn the first state into the second.
    """
    with log_options.open() as source:
        from ..args.time_travel import replica_at
        from ..render.state_difference import print_difference

        before, after = (replica_at(source, place) for place in (first, last))
        print_difference(source, before, after, output, fields=fields)


def replay(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A file that `tailrace log export` wrote. \\[default: the cluster's log]",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Decide again, and compare with the events in the log.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar=PLACE, help="The last event. \\[default: the end of the log]"),
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Stop after this number of differences.")] = 20,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Replay a log from its start and print the state hash; with --check, compare every decision with the log.

    --check computes what each leader decides from the state and at the time that its events name, and compares it with
    the events in the log. A difference means that this release decides differently. The command prints it with the
    state around it, and ends with exit code 11.
    """
    options = LogOptions(cluster.home, cluster.bootstrap_servers, cluster.cluster_id, file)
    with options.open() as source:
        from ..readers.log_replay import check_decisions, print_check, replay_log

        checking = check_decisions(source, to, most) if check else replay_log(source, to)
        print_check(checking, output, is_checked=check)
    return ExitCode.DIFFERS if checking.differences else ExitCode.OK
