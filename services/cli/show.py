"""How commands speak to people: progress on stderr, results on stdout, tables with rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime


def tell(line: str) -> None:
    """A line of progress, on stderr."""
    print(line, file=sys.stderr, flush=True)


def result(line: str) -> None:
    """A line of what was asked for, on stdout. Raises BrokenPipeError where nobody reads it any more."""
    print(line, flush=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stdout; plain columns where stdout is no terminal."""
    if not sys.stdout.isatty():
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        for row in [columns, *rows]:
            result("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console().print(drawn)


def clock(microseconds: int | None) -> str:
    """Local date and time; empty where there is none."""
    if microseconds is None:
        return ""
    return datetime.fromtimestamp(microseconds / 1e6).strftime("%Y-%m-%d %H:%M:%S")
