"""Which events of the log are asked for, as people say it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...history.log_source import LogSource

EventTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="TYPE",
        help="Only this type, such as RequestSlot or task_executor.RequestSlot.",
    ),
]
Job = Annotated[str | None, typer.Option("--job", "-j", help="Only what belongs to this job.")]


def check_types(types: Iterable[str]) -> None:
    """Raises Failure for what is the name of no event."""
    from ....schemas.catalog import EVENTS

    full = {name.partition(".")[2].lower() for name in EVENTS}
    known = full | {name.rpartition(".")[2] for name in full}
    for each in types:
        if each.lower() not in known:
            names = {name.rpartition(".")[2] for name in EVENTS}
            near = difflib.get_close_matches(each, names, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(names))}"
            raise CommandFailure(ExitCode.USAGE, f"there is no event type {each!r}: {hint}")


def job_id(source: LogSource, wanted: str) -> str:
    """The job whose id or name is, or whose id alone begins with, what was asked for; of several the only one that has
    not ended. Rejected jobs have events too. Raises Failure."""
    from ...history import HistoryProjection
    from ...history.cluster_view import jobs, live_jobs

    fold, known = HistoryProjection(), set()
    with ProgressLine(f"looks for {wanted!r} in {source.log.topic}", source.log.end()) as progress:
        for entry in fold.read(source.log, store=source.store):
            progress(entry.record.offset)
            if entry.job is not None:
                known.add(entry.job)
    named = {job.job_id for job in jobs(fold) if job.name == wanted}
    named |= {each for each in known if each.startswith(wanted)}
    live = named & live_jobs(fold.replica.states)
    found = [wanted] if wanted in known else sorted(live if len(live) == 1 else named)
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandFailure(
            ExitCode.USAGE,
            f"{wanted!r} is the name, or the beginning of the id, of {len(found)} jobs ({', '.join(found[:5])}): "
            "give more of the id",
        )
    raise CommandFailure(
        ExitCode.NOT_FOUND, f"the log has no job {wanted!r}: `tailrace list` shows those there are"
    )
