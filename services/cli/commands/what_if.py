"""`tailrace what-if`: simulates a part of the history with a scenario's changes, and compares it with the real one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....infra.sanitize import escape_control_characters
from ..args.common_options import Format, Output
from ..args.log_source import DEFAULT_LOG, At, LogOptions, position_at
from ..args.output_file import Overwrite, archive_format, check_free
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_time
from ..render.output import print_json, print_progress, print_result, print_table
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...history.archive.formats import ArchiveFormat
    from ...history.log_source import LogSource
    from ...simulation.what_if.scenario import Scenario
    from ...simulation.what_if.what_if import WhatIf


def what_if(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.yaml", help="The changes to simulate: see docs/history.md.")
    ],
    place: At = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Write the simulated log to a file, as `tailrace log export` does: story, state and diff read it.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Simulate how a history continues from an offset or time with changes, and compare it with what happened.

    The cluster's own roles run in a simulation. External events of the history happen again at their times, and the
    scenario adds its changes: TaskExecutors die or join, jobs are submitted or cancelled, options change. The command
    does not change the real cluster.
    """
    from ...simulation.what_if.scenario import ScenarioError
    from ...simulation.what_if.scenario_parser import load_scenario

    kind = None
    if log is not None:
        kind = archive_format(log)
        check_free(log, log_options.file, overwrite=overwrite)
    try:
        wanted = load_scenario(scenario)
        with log_options.open() as source:
            _check_whole(source)
            offset = position_at(source, place)
            found = _simulated(source, source.log.end() - 1 if offset is None else offset, wanted)
            if log is not None and kind is not None:
                _export(source, found, log, kind)
    except ScenarioError as error:
        raise CommandFailure(ExitCode.USAGE, str(error)) from error
    if output is Format.JSON:
        from ...simulation.what_if.report import as_data

        print_json(as_data(found))
    else:
        _show(found)


def _check_whole(source: LogSource) -> None:
    if not source.whole:
        raise CommandFailure(
            ExitCode.ARCHIVE,
            f"{source.file} is a selection of events, but a simulation needs the whole history: export it without "
            "--from, --job and --type",
        )


def _simulated(source: LogSource, offset: int, scenario: Scenario) -> WhatIf:
    from ...simulation.what_if.source_history import SourceHistory
    from ...simulation.what_if.what_if import simulate as run

    with ProgressLine(f"reads {source.log.topic}") as reading, ProgressLine("simulates") as simulating:
        return run(SourceHistory(source, offset, reading), scenario, simulating)


def _export(source: LogSource, found: WhatIf, path: Path, kind: ArchiveFormat) -> None:
    from ...history.archive.exporter import EventSelection, export

    export(source.log, found.cluster, EventSelection(0, found.offset + 1), path, kind, appended=found.log)
    print_progress(f"{path} is written: the simulated events start after offset {found.offset}")


def _show(found: WhatIf) -> None:
    from ...simulation.what_if.report import (
        JOB_COLUMNS,
        SCALING_COLUMNS,
        SLOT_COLUMNS,
        format_duration,
        job_rows,
        scaling_rows,
        slot_rows,
    )

    begin, end = found.would.start, found.would.end
    print_result(
        escape_control_characters(
            f"cluster {found.cluster}, from offset {found.offset} ({format_time(begin)}) on, for "
            f"{format_duration(end - begin)}: "
            f"{found.scenario.name}"
        )
    )
    if found.really is None:
        print_result("the log ends at this offset: there is only the simulated result")
    rows = list(job_rows(found))
    if rows:
        print_result("")
        print_table("Jobs", JOB_COLUMNS, rows)
    print_result("")
    print_table("Slots", SLOT_COLUMNS, list(slot_rows(found)))
    scalings = list(scaling_rows(found))
    if scalings:
        print_result("")
        print_table("Decisions", SCALING_COLUMNS, scalings)
    if found.notes:
        print_result("")
    for note in found.notes:
        print_result(escape_control_characters(f"no effect: {note}"))
