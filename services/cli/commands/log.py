"""`tailrace log`: prints the log, event by event; exports it to a file, imports it, and archives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.event_filter import EventTypes, Job, check_types, job_id
from ..args.log_source import DEFAULT_LOG, PLACE, From, LogOptions, To, check_place, position_range
from ..args.option_groups import CommandGroup, expand_groups
from ..args.output_file import Overwrite, archive_format, check_free
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_size, format_time
from ..render.output import print_json, print_progress, print_result, to_json
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...history import FormattedEvent
    from ...history.archive.formats import ArchiveFormat
    from ...history.archive.manifest import ArchiveManifest
    from ...history.log_source import LogSource


def log(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events.")] = False,
    start: From = None,
    end: To = None,
    types: EventTypes = None,
    job: Job = None,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Print the log: offset, time, sender -> recipient, type, cause, key fields. JSON: one object per line.

    An event that all readers ignore (from a deposed leader, or impossible) is marked IGNORED, with the reason.
    """
    if context.invoked_subcommand is not None:
        _check_nothing_given(context)
        return
    check_types(types or [])
    if follow and (log_options.file is not None or end is not None):
        other = "--file" if log_options.file is not None else "--to"
        raise CommandFailure(
            ExitCode.USAGE, f"--follow and {other} exclude each other: no events follow the end"
        )
    from ...history import EventFilter
    from ...history.event_formatting import line

    with log_options.open(selections=True) as source:
        first, last = position_range(source, start, end)
        if job is not None and source.whole:
            job = job_id(source, job)
        wanted = EventFilter.from_options(types or (), job if source.whole else None, first)
        entries = _follow(source) if follow else _read_entries(source, last)
        with ProgressLine(f"reads {source.log.topic}", last) as progress:
            for entry in entries:
                if wanted.matches(entry):
                    progress.close()
                    print_result(to_json(entry.as_data()) if output is Format.JSON else line(entry))
                else:
                    progress(entry.record.offset)


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


def _read_entries(source: LogSource, end: int) -> Iterator[FormattedEvent]:
    from ...history import FormattedEvent, HistoryProjection
    from ...log.event_log import read_to_end

    if source.whole:
        yield from HistoryProjection().read(source.log, end, source.store)
        return
    # A selection misses events, so the job and the task of an event are unknown.
    for batch in read_to_end(source.log, 0, end=end):
        for record in batch:
            yield FormattedEvent(record, None)


def _follow(source: LogSource) -> Iterator[FormattedEvent]:
    from ...history import HistoryProjection

    fold = HistoryProjection()
    tail = source.log.tail(fold.begin(source.log, source.store))
    try:
        while True:
            for record in tail.poll(0.5):
                yield fold.apply(record)
    finally:
        tail.close()


def export(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="The file to write. Its suffix .avro, .jsonl or .parquet sets the format.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar=f"{PLACE}|FILE",
            help="The last offset or time. \\[default: the last one] It may also be FILE.",
        ),
    ] = None,
    start: From = None,
    types: EventTypes = None,
    job: Job = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="avro|jsonl|parquet", help="The format, whatever the suffix of FILE is."
        ),
    ] = None,
    overwrite: Overwrite = False,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Write the log to a file: Avro with its schemas, JSON lines, or Parquet.

    Avro is the archive: all history commands read it, and you can import a whole log. A selection (--from, --job,
    --type) can be read, but not imported. JSON lines and Parquet are for other programs; `tailrace sql` reads Parquet.
    """
    path, last = _places(path, to or ())
    form = archive_format(path, kind)
    check_types(types or [])
    check_free(path, log_options.file, overwrite=overwrite)
    from ...history.archive.exporter import EventSelection
    from ...history.archive.exporter import export as write

    with log_options.open(selections=True) as source:
        if job is not None and not source.whole:
            raise CommandFailure(
                ExitCode.USAGE,
                f"{log_options.file} is a selection of events, which does not show the job of an event: remove --job",
            )
        first, end = position_range(source, start, last)
        job = job_id(source, job) if job is not None else None
        choice = EventSelection(first, end, tuple(types or ()), job, source.whole)
        with ProgressLine(f"exports to {path}", end - first) as progress:
            description = write(
                source.log, source.cluster, choice, path, form, store=source.store, on_progress=progress
            )
    _report(path, form, description, output)


def _places(path: Path | None, to: Sequence[str]) -> tuple[Path, str | None]:
    """Returns the file and the last offset or time. Raises CommandFailure if there is no file, or several places."""
    from ...history.log_position import InvalidPosition, LogPosition

    last = None
    for text in to:
        try:
            LogPosition.parse(text)
        except InvalidPosition:
            if path is not None:
                raise
            path = Path(text)
            continue
        if last is not None:
            raise CommandFailure(ExitCode.USAGE, f"--to {last} and --to {text} exclude each other")
        last = text
    if path is None:
        raise CommandFailure(ExitCode.USAGE, "no file is named: use `tailrace log export history.avro`")
    return path, last


def _report(path: Path, form: ArchiveFormat, description: ArchiveManifest, output: Format) -> None:
    import msgspec

    written = path.stat().st_size
    if output is Format.JSON:
        data = {"file": str(path), "format": form.value, "bytes": written, **msgspec.to_builtins(description)}
        print_json(data)
        return
    print_result(f"{path}: {form.value}, {format_size(written)}, of cluster {description.cluster}")
    if description.entries == 0:
        print_result("  no entries")
    else:
        print_result(
            f"  {description.entries:,} entries, offsets {description.first} to {description.last}, "
            f"{format_time(description.first_time)} to {format_time(description.last_time)}"
        )
    if description.unreadable:
        print_result(
            f"  {description.unreadable:,} of them can't be read as events by this release: they are kept as bytes"
        )
    if form.value != "avro":
        print_result("  for other programs: only the Avro format can be imported or replayed")
    elif not description.whole:
        print_result(f"  a selection ({description.selected}): it can't be imported or replayed")


def import_log(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tailrace log export` wrote.")],
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Write an exported log to another Kafka, or to another cluster id, with the same offsets.

    The command first checks the whole file. If an import was interrupted, run the same command again to continue. The
    command does not change a log that holds other events.
    """
    configuration = cluster.locate()
    import msgspec

    from ..readers.log_import import import_log as write

    topic, imported = write(path, configuration)
    if output is Format.JSON:
        print_json({"cluster": configuration.cluster_id, "topic": topic, **msgspec.to_builtins(imported)})
        return
    print_result(f"{topic}: {imported.entries:,} entries, {imported.written:,} of them written now")
    print_result(f"state hash {imported.state_hash}, the same for the file and the log")


def archive(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "--until",
            metavar=PLACE,
            callback=check_place,
            help="The last offset or time. \\[default: the last one]",
        ),
    ] = None,
    truncate: Annotated[
        bool,
        typer.Option(
            "--truncate",
            help="Then delete the archived events below the oldest snapshot from the topic, after comparing their "
            "checksums.",
        ),
    ] = False,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Write the log into the cluster's archive, in its storage, from where the archive ends.

    With log.retention.time or log.retention.bytes the leader does this by itself. All history commands read the archive
    and the topic as one log. If the command was interrupted, run it again: it continues.
    """
    configuration = cluster.find()
    from ....infra.logging_setup import log_to_stderr
    from ..readers.log_archiving import archive_log

    log_to_stderr()
    done = archive_log(configuration, to, truncate=truncate)
    if output is Format.JSON:
        print_json(done)
        return
    for segment in done.segments:
        print_result(
            f"{segment.file}: {segment.entries:,} entries, offsets {segment.first} to {segment.last}, "
            f"{format_size(segment.bytes)}"
        )
    print_result(
        f"{done.archive}: complete up to offset {done.archived - 1}; {done.topic} begins at {done.first}"
    )
    if truncate and not done.deleted:
        print_progress(
            "nothing was deleted from the topic: all archived events that it has are needed after the oldest snapshot; "
            "`tailrace cluster snapshot` takes a new one"
        )
    elif truncate:
        print_result(f"{done.deleted:,} offsets were deleted from the topic")


app = CommandGroup(name="log", invoke_without_command=True, rich_markup_mode="rich")
app.callback()(expand_groups(log))
app.command("export")(export)
app.command("import")(import_log)
app.command("archive")(archive)
