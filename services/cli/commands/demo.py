"""`tailrace demo`: starts a cluster, runs a job, checks its result, stops, and prints the log, in half a minute.

This module declares the command, so that its help is quick. `demo/` runs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..exit_codes import ExitCode


def demo(
    windows: Annotated[int, typer.Option(min=1, max=1000, help="Number of windows to wait for.")] = 2,
    window_seconds: Annotated[int, typer.Option(min=1, max=3600, help="The size of the windows.")] = 5,
    parallelism: Annotated[
        int,
        typer.Option(
            "--parallelism", "-p", min=1, max=4, help="Parallelism of all operators except the source."
        ),
    ] = 2,
    words_per_second: Annotated[int, typer.Option(min=1, help="Number of words sent per second.")] = 2000,
    home: Annotated[
        Path | None,
        typer.Option(help="Keep the cluster's data and logs here. \\[default: a temporary directory]"),
    ] = None,
) -> int:
    """Start a cluster, count words in windows, check the counts, shut down, and show the history from the log."""
    from ..demo.demo import run_demo

    is_right = run_demo(home, windows, window_seconds, parallelism, words_per_second)
    return ExitCode.OK if is_right else ExitCode.DEMO_MISMATCH
