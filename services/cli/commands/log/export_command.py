"""`tailrace log export`: writes the log, or a selection of its events, to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ...args.event_filter import EventTypes, Job, check_types, job_id
from ...args.log_source import PLACE, File, From, find_source, position_range
from ...args.output_file import Overwrite, archive_format, check_free
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import format_size, format_time, print_result
from ...render.progress import ProgressLine

if TYPE_CHECKING:
    from ....history.archive.formats import ArchiveFormat
    from ....history.archive.manifest import ArchiveManifest


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
    file: File = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Write the log to a file: Avro with its schemas, JSON lines, or Parquet.

    You can import, replay and query a whole log. You can read and query a selection (--from, --job, --type).
    """
    path, last = _places(path, to or ())
    form = archive_format(path, kind)
    check_types(types or [])
    check_free(path, file, overwrite=overwrite)
    from ....history.archive.exporter import EventSelection
    from ....history.archive.exporter import export as write

    with find_source(home, bootstrap_servers, cluster_id, file, selections=True) as source:
        if job is not None and not source.whole:
            raise CommandFailure(
                ExitCode.USAGE,
                f"{file} is a selection of events, which does not show the job of an event: remove --job",
            )
        first, end = position_range(source, start, last)
        job = job_id(source, job) if job is not None else None
        choice = EventSelection(first, end, tuple(types or ()), job, source.whole)
        with ProgressLine(f"exports to {path}", end - first) as progress:
            description = write(
                source.log, source.cluster, choice, path, form, store=source.store, on_progress=progress
            )
    _report(path, form, description, output)
    return ExitCode.OK


def _places(path: Path | None, to: Sequence[str]) -> tuple[Path, str | None]:
    """Returns the file and the last offset or time. Raises CommandFailure if there is no file, or several places."""
    from ....history.log_position import InvalidPosition, LogPosition

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
        print_result(msgspec.json.encode(data).decode())
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
    if not description.whole:
        print_result(f"  a selection ({description.selected}): it can't be imported or replayed")
