"""`tailrace sql`: queries the log with Spark SQL. Every event type is a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.log_source import DEFAULT_LOG, From, LogOptions, To
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_progress
from .results import ResultFormat, list_tables, print_rows

if TYPE_CHECKING:
    from ....configuration import Configuration


def sql(
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUERY]...",
            help='Such as "SELECT job_id, status FROM client_JobFinished"; separate several with ;. '
            "\\[default: read stdin; a terminal gets a prompt]",
            show_default=False,
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="List the tables, or the columns of the named tables. Does not start Spark."
        ),
    ] = False,
    output: Annotated[
        ResultFormat, typer.Option("--output", "-o", help="Text; JSON, one object per row; or CSV.")
    ] = ResultFormat.TEXT,
    start: From = None,
    end: To = None,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Query the log in SQL: one table per event type (task_executor_SubmitTask), and the table `log` with all headers.

    Spark takes some seconds to start. Export a long log to Parquet: Spark then reads only the columns of the query.
    """
    if tables:
        list_tables(queries or ())
        return
    asked = None if queries is None and sys.stdin.isatty() else _statements(queries)
    place = log_options.find_place()
    from ....history.sql.scan import extent

    begin, behind = extent(place, start, end)
    _answer(place, begin, behind, asked, output, follows=end is None and log_options.file is None)


def _statements(queries: Sequence[str] | None) -> list[str]:
    """Returns the SQL statements. Raises CommandFailure if there are none."""
    from ....history.sql.statements import split_statements

    texts = [sys.stdin.read()] if queries is None else queries
    found = [statement for text in texts for statement in split_statements(f"{text}\n;")[0]]
    if not found:
        raise CommandFailure(
            ExitCode.USAGE, 'there is no query: `tailrace sql "SELECT type, count(*) FROM log GROUP BY 1"`'
        )
    return found


def _answer(
    place: Configuration | Path,
    begin: int,
    end: int,
    asked: Sequence[str] | None,
    output: ResultFormat,
    *,
    follows: bool,
) -> None:
    """Runs the statements, or a prompt if `asked` is None, on the offsets from `begin` up to, not including, `end`.

    With `follows`, every statement of the prompt reads up to the current end of the log.
    """
    print_progress("starting Spark; this takes some seconds")
    from ....history.sql.session import session

    with session() as spark:
        from ....history.sql.queries import Queries
        from ....history.sql.reader import LogTables

        queries = Queries(spark, LogTables(spark, place, begin, end))
        if asked is not None:
            for statement in asked:
                print_rows(queries, statement, output)
            return
        from ....history.sql.scan import extent
        from ...render.prompt import run_prompt
        from .prompt import DELIMITERS, SqlPrompt

        def ask(statement: str) -> None:
            now = extent(place, begin, None)[1] if follows else end
            if now > queries.log.end:
                queries.log = LogTables(spark, place, begin, now)
            print_rows(queries, statement, output)

        name = place if isinstance(place, Path) else f"cluster {place.cluster_id}"
        intro = (
            f"{name}, offsets {begin} to {end - 1}. SHOW TABLES; DESCRIBE log; Tab completes, ; ends a statement, "
            "Ctrl-D all."
        )
        run_prompt(intro, SqlPrompt(queries.log.tables, ask), DELIMITERS)
