"""`tailrace log export`: the log, or a selection of it, as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ...args.event_filter import Job, Types, check_types, job_id
from ...args.log_source import PLACE, File, From, find_source, stretch
from ...args.output_file import Overwrite, check_free, format_of
from ...exit_codes import ExitCode, Failure
from ...render.output import clock, result, size
from ...render.progress import Progress

if TYPE_CHECKING:
    from ....history.archive.formats import ArchiveFormat
    from ....history.archive.manifest import Description


def export(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Where to: .avro, .jsonl or .parquet says in which format.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar=f"{PLACE}|FILE",
            help="The last offset, or a time. \\[default: the last one] Or FILE, named this way.",
        ),
    ] = None,
    start: From = None,
    types: Types = None,
    job: Job = None,
    kind: Annotated[
        str | None,
        typer.Option("--format", metavar="avro|jsonl|parquet", help="Whatever the file is called."),
    ] = None,
    overwrite: Overwrite = False,
    file: File = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Write the log to a file: Avro with its schemas, JSON lines, or Parquet.

    All of it can be imported again, replayed and queried; a selection (--from, --job, --type) can be read and queried.
    """
    path, last = _places(path, to or ())
    form = format_of(path, kind)
    check_types(types or [])
    check_free(path, file, overwrite=overwrite)
    from ....history.archive.exporter import Choice
    from ....history.archive.exporter import export as write

    with find_source(home, bootstrap_servers, cluster_id, file, selections=True) as source:
        if job is not None and not source.whole:
            raise Failure(
                ExitCode.USAGE,
                f"{file} is a selection: which job its events belong to can't be told any more",
            )
        first, end = stretch(source, start, last)
        job = job_id(source, job) if job is not None else None
        choice = Choice(first, end, tuple(types or ()), job, source.whole)
        with Progress(f"exports to {path}", end - first) as progress:
            description = write(
                source.log, source.cluster, choice, path, form, store=source.store, on_progress=progress
            )
    _tell(path, form, description, output)
    return ExitCode.OK


def _places(path: Path | None, to: Sequence[str]) -> tuple[Path, str | None]:
    """The file, and the last place. Raises Failure."""
    from ....history.log_position import BadPosition, Position

    last = None
    for each in to:
        try:
            Position.parse(each)
        except BadPosition:
            if path is not None:
                raise
            path = Path(each)
            continue
        if last is not None:
            raise Failure(ExitCode.USAGE, f"--to {last} and --to {each} exclude each other")
        last = each
    if path is None:
        raise Failure(ExitCode.USAGE, "no file is named: `tailrace log export history.avro`")
    return path, last


def _tell(path: Path, form: ArchiveFormat, description: Description, output: Format) -> None:
    import msgspec

    written = path.stat().st_size
    if output is Format.JSON:
        data = {"file": str(path), "format": form.value, "bytes": written, **msgspec.to_builtins(description)}
        result(msgspec.json.encode(data).decode())
        return
    result(f"{path}: {form.value}, {size(written)}, of cluster {description.cluster}")
    if description.entries == 0:
        result("  no entries")
    else:
        result(
            f"  {description.entries:,} entries, offsets {description.first} to {description.last}, "
            f"{clock(description.first_time)} to {clock(description.last_time)}"
        )
    if description.unreadable:
        result(
            f"  {description.unreadable:,} of them are no events that this release can read: kept as bytes"
        )
    if not description.whole:
        result(f"  a selection ({description.selected}): it can't be imported or replayed")
