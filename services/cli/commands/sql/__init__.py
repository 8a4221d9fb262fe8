"""`tailrace sql`: the log as tables, one for each type of event, and Spark to ask them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Home, find_cluster
from ...args.log_source import File, From, To, find_source, position_range
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_progress
from .results import ResultFormat, list_tables, print_rows

if TYPE_CHECKING:
    from ....history.log_source import LogSource
    from ....history.sql.scan import ScanOrigin


def sql(
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUERY]...",
            help='Such as "SELECT job_id, status FROM client_JobFinished"; several with ; between them. '
            "\\[default: from stdin, with a prompt where that is a terminal]",
            show_default=False,
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="List the tables, or the columns of those that are named; without Spark."
        ),
    ] = False,
    output: Annotated[
        ResultFormat, typer.Option("--output", "-o", help="For people; JSON, an object a row; or CSV.")
    ] = ResultFormat.TEXT,
    start: From = None,
    end: To = None,
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Ask the log in SQL: a table for each type of event (task_executor_SubmitTask), and `log` with all their headers.

    Spark takes some seconds to start. A long log is best exported to Parquet: of that, Spark reads what a query needs.
    """
    if tables:
        list_tables(queries or ())
        return ExitCode.OK
    asked = None if queries is None and sys.stdin.isatty() else _statements(queries)
    with find_source(home, bootstrap_servers, cluster_id, file, selections=True) as source:
        begin, behind = position_range(source, start, end)
        from ....history.sql.scan import ScanOrigin, first_entry

        of = file if file is not None else find_cluster(home, bootstrap_servers, cluster_id)
        begin = max(begin, first_entry(source.log))
        _answer(source, ScanOrigin.from_source(of), begin, behind, asked, output, follows=end is None)
    return ExitCode.OK


def _statements(queries: Sequence[str] | None) -> list[str]:
    """What is asked, one by one. Raises Failure where that is nothing."""
    from ....history.sql.statements import split_statements

    texts = [sys.stdin.read()] if queries is None else queries
    found = [each for text in texts for each in split_statements(f"{text}\n;")[0]]
    if not found:
        raise CommandFailure(
            ExitCode.USAGE, 'there is no query: `tailrace sql "SELECT type, count(*) FROM log GROUP BY 1"`'
        )
    return found


def _answer(
    source: LogSource,
    origin: ScanOrigin,
    begin: int,
    end: int,
    asked: Sequence[str] | None,
    output: ResultFormat,
    *,
    follows: bool,
) -> None:
    """Of the log's offsets from `begin` to `end`; `follows`: or what there is when a person asks the next question."""
    print_progress("starts Spark, which takes some seconds")
    from ....history.sql.session import session

    with session() as spark:
        from ....history.sql.queries import Queries
        from ....history.sql.reader import LogTables

        told = Queries(spark, LogTables(spark, origin, begin, end))
        if asked is not None:
            for each in asked:
                print_rows(told, each, output)
            return
        from .prompt import Prompt

        def ask(statement: str) -> None:
            now = source.log.end() if follows else end
            if now > told.log.end:
                told.log = LogTables(spark, origin, begin, now)
            print_rows(told, statement, output)

        Prompt(f"{source.log.topic}, offsets {begin} to {end - 1}", told.log.tables, ask).run()
