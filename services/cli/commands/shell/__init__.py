"""`tailrace shell`: browses the state of a cluster like a file system, now or at any offset of its log.

It is like KRaft's metadata shell (kafka-metadata-shell), but for any offset of the log instead of one snapshot.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ...args.log_source import DEFAULT_LOG, At, LogOptions


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
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Browse the state with ls, cat, tree, find and cd; change the offset with at; compare with diff.

    Without -c and without a terminal, the shell reads commands from stdin. `help` lists them.
    """
    with log_options.open() as source:
        from ...render.prompt import run_prompt
        from .explorer import Explorer

        explorer = Explorer(source, at)
        if commands is None and sys.stdin.isatty():
            names = ", ".join(explorer.commands)
            run_prompt(
                f"{explorer.where()}. Commands: {names}; Tab completes, Ctrl-D ends.", explorer, " \t\n;'\""
            )
            return
        for line in sys.stdin if commands is None else commands:
            if not explorer.do(line):
                break
