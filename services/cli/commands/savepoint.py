"""`tailrace savepoint`: triggers, disposes of and inspects savepoints."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from ..args.savepoint_location import parse_location, read_checkpoint_metadata
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_result, print_table
from . import checkpoints

app = typer.Typer(name="savepoint", help="Trigger, inspect and dispose of savepoints.", no_args_is_help=True)
app.command("trigger")(checkpoints.trigger)

Path = Annotated[str, typer.Argument(metavar="PATH", help="The directory of the savepoint (path or URI).")]


@app.command("dispose")
def dispose(
    path: Path,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Delete a savepoint of tailrace. The cluster deletes only the savepoint's own files."""
    uri = parse_location(path)
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ...client.checkpoint_requests import dispose_savepoint as ask

    left = ask(configuration, uri)
    if output is Format.JSON:
        import msgspec

        print_result(msgspec.json.encode({"uri": uri, "disposed": True, "left": left}).decode())
    else:
        more = f"; its directory remains, because it holds other files: {', '.join(left)}" if left else ""
        print_progress(f"savepoint {uri} is deleted{more}")
    return ExitCode.OK


@app.command("inspect")
def inspect(
    path: Path,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files, and report missing or damaged ones.")
    ] = False,
    output: Output = Format.TEXT,
) -> int:
    """Show the contents of a savepoint or checkpoint. Needs no cluster."""
    metadata = read_checkpoint_metadata(path)
    from ..render.checkpoint_inspection import (
        OPERATOR_COLUMNS,
        SUBTASK_COLUMNS,
        format_header,
        operator_rows,
        subtask_rows,
    )
    from ..render.checkpoint_inspection import inspect as inspected

    faults = _faults(path) if verify else None
    found = inspected(metadata, faults)
    if output is Format.JSON:
        import msgspec

        print_result(msgspec.json.encode(found).decode())
    else:
        from ....infra.sanitize import escape_control_characters

        for line in format_header(found):
            print_result(escape_control_characters(line))
        print_result("")
        print_table("Operators", OPERATOR_COLUMNS, operator_rows(found))
        print_result("")
        print_table("Subtasks", SUBTASK_COLUMNS, subtask_rows(found))
    if faults:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"{found.uri} is damaged: {faults[0]}" + (f"; and {len(faults) - 1} more" if faults[1:] else ""),
            "\n".join(faults[1:]),
        )
    if verify:
        many = "1 file is" if found.files == 1 else f"all {found.files} files are"
        print_progress(f"{many} present and unchanged")
    return ExitCode.OK


def _faults(path: str) -> list[str]:
    from ....infra.storage.errors import CheckpointError
    from ....pipelines.checkpoint.metadata import verify

    try:
        return verify(read_checkpoint_metadata(path), checksums=True)
    except CheckpointError as error:
        raise CommandFailure(ExitCode.SAVEPOINT, str(error)) from error
