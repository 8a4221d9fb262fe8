"""Output of commands: progress on stderr, results on stdout, tables with rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ....infra.redaction import redacted
from ....infra.sanitize import escape_control_characters, local_time


def print_progress(line: str) -> None:
    """A line of progress, on stderr, without secrets."""
    print(redacted(line), file=sys.stderr, flush=True)


def print_result(line: str) -> None:
    """A line of what was asked for, on stdout, without secrets. Raises BrokenPipeError where nobody reads it any
    more."""
    print(redacted(line), flush=True)


def print_verbatim(line: str) -> None:
    """A line that a job has printed, on stdout. Raises BrokenPipeError as `result`."""
    print(line, flush=True)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, progress: bool = False
) -> None:
    """A table on stdout, or, as `progress`, on stderr; plain columns where that is no terminal.

    Cells may hold what others wrote.
    """
    rows = [[escape_control_characters(cell) for cell in row] for row in rows]
    stream = sys.stderr if progress else sys.stdout
    if not stream.isatty():
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        for row in [columns, *rows]:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            print(line, file=stream, flush=True)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    Console(file=stream).print(drawn)


def format_amount(value: float) -> str:
    """A number for people: whole numbers without a point."""
    return f"{int(value):,}" if value.is_integer() else f"{value:,}"


def format_size(count: int) -> str:
    """Bytes for people."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{count} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def format_duration(microseconds: int) -> str:
    """A length of time for people."""
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.3g} ms" if microseconds < 999_500 else "1 s"
    seconds = microseconds / 1e6
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s"


def format_time(microseconds: int | None) -> str:
    """Local date and time; empty where there is none."""
    return "" if microseconds is None else local_time(microseconds, "%Y-%m-%d %H:%M:%S")
