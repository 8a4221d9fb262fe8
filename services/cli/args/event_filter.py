"""The options --type and --job, which select events of the log."""

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
        help="Only events of this type, such as RequestSlot or task_executor.RequestSlot.",
    ),
]
Job = Annotated[str | None, typer.Option("--job", "-j", help="Only events of this job.")]


def check_types(types: Iterable[str]) -> None:
    """Raises CommandFailure for a name that is no event type."""
    from ....schemas.catalog import EVENTS

    full = {name.partition(".")[2].lower() for name in EVENTS}
    known = full | {name.rpartition(".")[2] for name in full}
    for wanted in types:
        if wanted.lower() not in known:
            names = {name.rpartition(".")[2] for name in EVENTS}
            near = difflib.get_close_matches(wanted, names, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(names))}"
            raise CommandFailure(ExitCode.USAGE, f"there is no event type {wanted!r}: {hint}")


def job_id(source: LogSource, wanted: str) -> str:
    """Returns the id of the job with this id, name or id prefix; of several, the only one that has not ended.

    It also finds rejected jobs, which have events too. Raises CommandFailure if no job or several jobs match.
    """
    from ...history import HistoryProjection
    from ...history.cluster_view import jobs, live_jobs

    fold, known = HistoryProjection(), set()
    with ProgressLine(f"looks for {wanted!r} in {source.log.topic}", source.log.end()) as progress:
        for entry in fold.read(source.log, store=source.store):
            progress(entry.record.offset)
            if entry.job is not None:
                known.add(entry.job)
    named = {job.job_id for job in jobs(fold) if job.name == wanted}
    named |= {job for job in known if job.startswith(wanted)}
    live = named & live_jobs(fold.replica.states)
    found = [wanted] if wanted in known else sorted(live if len(live) == 1 else named)
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandFailure(
            ExitCode.USAGE,
            f"{wanted!r} is the name or id prefix of {len(found)} jobs ({', '.join(found[:5])}): "
            "give a longer id prefix",
        )
    raise CommandFailure(ExitCode.NOT_FOUND, f"the log has no job {wanted!r}: `tailrace list` shows all jobs")
