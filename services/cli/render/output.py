"""Output of commands: progress on stderr, results on stdout, tables with rich."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ....infra.redaction import redacted
from ....infra.sanitize import escape_control_characters


def print_progress(line: str) -> None:
    """Prints a line of progress on stderr, without secrets."""
    print(redacted(line), file=sys.stderr, flush=True)


def print_result(line: str) -> None:
    """Prints a line of the result on stdout, without secrets. Raises BrokenPipeError if the reader is gone."""
    print(redacted(line), flush=True)


def to_json(data: object) -> str:
    """Returns data as one line of JSON."""
    import msgspec

    return msgspec.json.encode(data).decode()


def print_json(data: object) -> None:
    """Prints data as one line of JSON, like `print_result`."""
    print_result(to_json(data))


def print_verbatim(line: str) -> None:
    """Prints a line of a job's output on stdout. Raises BrokenPipeError like `print_result`."""
    print(line, flush=True)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, progress: bool = False
) -> None:
    """Prints a table on stdout, or, as `progress`, on stderr; plain columns if that is not a terminal.

    Cells may contain external text.
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
