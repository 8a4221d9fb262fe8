"""`tailrace savepoint`: triggers, disposes of and inspects savepoints."""

from __future__ import annotations

from typing import Annotated

import typer

from ..args.common_options import DEFAULT_CLUSTER, ClusterOptions, Format, Output
from ..args.option_groups import CommandGroup
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_json, print_progress
from .jobs import JobId, Target

app = CommandGroup(name="savepoint", help="Trigger, inspect and dispose of savepoints.", no_args_is_help=True)

Path = Annotated[str, typer.Argument(metavar="PATH", help="The directory of the savepoint (path or URI).")]


@app.command("trigger")
def trigger(
    job: JobId,
    target: Target = None,
    output: Output = Format.TEXT,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Trigger a savepoint of a job, and print its path. The cluster keeps it until `savepoint dispose`.

    The command waits until the savepoint is complete, and names the tasks that have not acknowledged yet.
    """
    from ..args.savepoint_location import parse_optional_location

    directory, configuration = parse_optional_location(target), cluster.find_or_rest()
    from ..execution.checkpoint_wait import take_checkpoint

    take_checkpoint(
        configuration,
        job,
        "savepoint",
        lambda client, job_id: client.trigger_savepoint(job_id, directory),
        output,
    )


@app.command("dispose")
def dispose(path: Path, output: Output = Format.TEXT, cluster: ClusterOptions = DEFAULT_CLUSTER) -> None:
    """Delete a savepoint of tailrace. The cluster deletes only the savepoint's own files."""
    from ..args.savepoint_location import parse_location

    uri, configuration = parse_location(path), cluster.find()
    from ...client.checkpoint_requests import dispose_savepoint

    left = dispose_savepoint(configuration, uri)
    if output is Format.JSON:
        print_json({"uri": uri, "disposed": True, "left": left})
    else:
        more = f"; its directory remains, because it holds other files: {', '.join(left)}" if left else ""
        print_progress(f"savepoint {uri} is deleted{more}")


@app.command("inspect")
def inspect(
    path: Path,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files, and report missing or damaged ones.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Show the contents of a savepoint or checkpoint. Needs no cluster."""
    from ..args.savepoint_location import find_faults, read_checkpoint_metadata
    from ..render import checkpoint_inspection

    metadata = read_checkpoint_metadata(path)
    faults = find_faults(metadata) if verify else None
    found = checkpoint_inspection.inspect(metadata, faults)
    if output is Format.JSON:
        print_json(found)
    else:
        checkpoint_inspection.print_text(found)
    if faults:
        raise CommandFailure(
            ExitCode.SAVEPOINT,
            f"{found.uri} is damaged: {faults[0]}" + (f"; and {len(faults) - 1} more" if faults[1:] else ""),
            "\n".join(faults[1:]),
        )
    if verify:
        many = "1 file is" if found.files == 1 else f"all {found.files} files are"
        print_progress(f"{many} present and unchanged")
