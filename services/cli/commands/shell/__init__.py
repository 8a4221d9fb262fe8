"""`tailrace shell`: browses the state of a cluster like a file system, now or at any offset of its log.

It is like KRaft's metadata shell (kafka-metadata-shell), but for any offset of the log instead of one snapshot.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Home
from ...args.log_source import At, File, find_source
from ...exit_codes import CommandFailure, ExitCode


def shell(
    at: At = None,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "-c",
            metavar="COMMANDS",
            help="Run these commands, and exit: 'cat /dispatcher/jobs/*/status; ls'. May be given several times.",
        ),
    ] = None,
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Browse the state with ls, cat, tree, find and cd; change the offset with at; compare with diff.

    Without -c and without a terminal, the shell reads commands from stdin. `help` lists them.
    """
    from .....infra.logging_setup import log_to_stderr

    log_to_stderr()
    with find_source(home, bootstrap_servers, cluster_id, file) as source:
        from .command_line import CommandFailed
        from .explorer import Explorer
        from .prompt import Prompt

        explorer = Explorer(source, at)
        if commands is None and sys.stdin.isatty():
            return Prompt(explorer).run()
        for line in sys.stdin if commands is None else commands:
            try:
                if not explorer.do(line):
                    break
            except CommandFailed as error:
                raise CommandFailure(
                    ExitCode.NOT_FOUND if error.missing else ExitCode.USAGE, str(error)
                ) from None
    return ExitCode.OK
