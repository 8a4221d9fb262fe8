"""`tailrace what-if`: a stretch of history again, with a scenario's changes, beside what really happened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....infra.sanitize import escape_control_characters
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ..args.log_source import At, File, at, find_source
from ..args.output_file import Overwrite, check_free, format_of
from ..exit_codes import ExitCode, Failure
from ..render.output import clock, result, table, tell
from ..render.progress import Progress

if TYPE_CHECKING:
    from ...history.archive.formats import ArchiveFormat
    from ...history.log_source import Source
    from ...simulation.what_if.scenario import Scenario
    from ...simulation.what_if.what_if import WhatIf


def what_if(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.yaml", help="What is to be otherwise: see docs/history.md.")
    ],
    place: At = None,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Draw slots over time, of both, into an SVG file."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Keep the log that would have been, as `tailrace log export` does: story, state and diff read it.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    output: Output = Format.TEXT,
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Have the cluster's own roles go on from any place of its history, in a simulated world, with changes.

    What came from outside happens again at its time, and the scenario's events beside it: TaskExecutors die or join,
    jobs are submitted or cancelled, options are others. Nothing real is touched.
    """
    from ...simulation.what_if.scenario import ScenarioError
    from ...simulation.what_if.scenario_parser import read_scenario

    kind = None
    if log is not None:
        kind = format_of(log)
        check_free(log, file, overwrite=overwrite)
    try:
        wanted = read_scenario(scenario)
        with find_source(home, bootstrap_servers, cluster_id, file) as source:
            _check_whole(source)
            offset = at(source, place)
            found = _simulated(source, source.log.end() - 1 if offset is None else offset, wanted)
            if log is not None and kind is not None:
                _export(source, found, log, kind)
    except ScenarioError as error:
        raise Failure(ExitCode.USAGE, str(error)) from error
    if svg is not None:
        _write_svg(svg, found)
    if output is Format.JSON:
        import msgspec

        from ...simulation.what_if.report import as_data

        result(msgspec.json.encode(as_data(found)).decode())
    else:
        _show(found)
    return ExitCode.OK


def _check_whole(source: Source) -> None:
    if not source.whole:
        raise Failure(
            ExitCode.ARCHIVE,
            f"{source.file} is a selection: a history goes on only from all that was before; export it without "
            "--from, --job and --type",
        )


def _simulated(source: Source, offset: int, scenario: Scenario) -> WhatIf:
    from ...simulation.what_if.history_log import SourceHistory
    from ...simulation.what_if.what_if import what_if as run

    with Progress(f"reads {source.log.topic}") as reading, Progress("simulates") as simulating:
        return run(SourceHistory(source, offset, reading), scenario, simulating)


def _export(source: Source, found: WhatIf, path: Path, kind: ArchiveFormat) -> None:
    from ...history.archive.exporter import Choice, export
    from ...simulation.what_if.history_log import ContinuedLog

    continued = ContinuedLog(source.log, found.offset, found.log)
    export(continued, found.cluster, Choice(0, continued.end()), path, kind)
    tell(f"{path} is written: what would have been said begins behind offset {found.offset}")


def _write_svg(path: Path, found: WhatIf) -> None:
    from ...simulation.what_if.timeline_svg import svg_of
    from ..render.svg_file import write_svg

    write_svg(path, svg_of(found, f"what if: {Path(found.scenario.name).name}"))


def _show(found: WhatIf) -> None:
    from ...simulation.what_if.report import JOB_COLUMNS, SLOT_COLUMNS, job_rows, lasted, slot_rows

    begin, end = found.would.start, found.would.end
    result(
        escape_control_characters(
            f"cluster {found.cluster}, from offset {found.offset} ({clock(begin)}) on, for {lasted(end - begin)}: "
            f"{found.scenario.name}"
        )
    )
    if found.really is None:
        result("nothing is behind that place yet: there is only what would happen")
    rows = list(job_rows(found))
    if rows:
        result("")
        table("Jobs", JOB_COLUMNS, rows)
    result("")
    table("Slots", SLOT_COLUMNS, list(slot_rows(found)))
    if found.notes:
        result("")
    for note in found.notes:
        result(escape_control_characters(f"nothing came of {note}"))
