"""`tailrace log`: prints the log of the cluster, event by event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ...args.event_filter import EventTypes, Job, check_types, job_id
from ...args.log_source import File, From, To, find_source, position_range
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_result
from ...render.progress import ProgressLine

if TYPE_CHECKING:
    from ....history import FormattedEvent
    from ....history.log_source import LogSource


def log(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events.")] = False,
    start: From = None,
    end: To = None,
    types: EventTypes = None,
    job: Job = None,
    file: File = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Print the log: offset, time, sender -> recipient, type, cause, key fields. JSON: one object per line.

    An event that all readers ignore (from a deposed leader, or impossible) is marked IGNORED, with the reason.
    """
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return ExitCode.OK
    check_types(types or [])
    if follow and (file is not None or end is not None):
        other = "--file" if file is not None else "--to"
        raise CommandFailure(
            ExitCode.USAGE, f"--follow and {other} exclude each other: no events follow the end"
        )
    from ....history import EventFilter
    from ....history.entity_history import line

    with find_source(home, bootstrap_servers, cluster_id, file, selections=True) as source:
        first, last = position_range(source, start, end)
        if job is not None and source.whole:
            job = job_id(source, job)
        wanted = EventFilter.from_options(types or (), job if source.whole else None, first)
        entries = _follow(source) if follow else _read_entries(source, last)
        with ProgressLine(f"reads {source.log.topic}", last) as progress:
            for entry in entries:
                if wanted.matches(entry):
                    progress.close()
                    print_result(to_json(entry) if output is Format.JSON else line(entry))
                else:
                    progress(entry.record.offset)
    return ExitCode.OK


def _check_nothing_given(context: typer.Context) -> None:
    """Raises CommandFailure for options before the name of a subcommand, where they would have no effect."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise CommandFailure(
                ExitCode.USAGE,
                f"{parameter.opts[0]} stands before {context.invoked_subcommand!r}: "
                "the options of a subcommand follow its name",
            )


def to_json(entry: FormattedEvent) -> str:
    """Returns all fields of an event as one line of JSON."""
    import msgspec

    return msgspec.json.encode(entry.as_data()).decode()


def _read_entries(source: LogSource, end: int) -> Iterator[FormattedEvent]:
    from ....history import FormattedEvent, HistoryProjection
    from ....log.event_log import read_to_end

    if source.whole:
        yield from HistoryProjection().read(source.log, end, source.store)
        return
    # A selection misses events, so the job and the task of an event are unknown.
    for batch in read_to_end(source.log, 0, end=end):
        for record in batch:
            yield FormattedEvent(record, None)


def _follow(source: LogSource) -> Iterator[FormattedEvent]:
    from ....history import HistoryProjection

    fold = HistoryProjection()
    tail = source.log.tail(fold.begin(source.log, source.store))
    try:
        while True:
            for record in tail.poll(0.5):
                yield fold.apply(record)
    finally:
        tail.close()
