"""The options --type and --job, which select events of the log."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Set
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
    named = (job.job_id for job in jobs(fold) if job.name == wanted)
    return select_job(wanted, known, named, live_jobs(fold.replica.states), "the log has")


def select_job(wanted: str, known: Collection[str], named: Iterable[str], live: Set[str], where: str) -> str:
    """Returns the id of the job with this id, name or id prefix; of several, the only one that has not ended.

    `known` are all ids, `named` those with that name, `live` those that have not ended. Raises CommandFailure if no job
    or several jobs match.
    """
    if wanted in known:
        return wanted
    matching = {*named, *(job for job in known if job.startswith(wanted))}
    found = sorted(matching & live if len(matching & live) == 1 else matching)
    if not found:
        raise CommandFailure(ExitCode.NOT_FOUND, f"{where} no job {wanted!r}: `tailrace list` shows all jobs")
    if len(found) > 1:
        raise CommandFailure(
            ExitCode.USAGE,
            f"{wanted!r} is the name or id prefix of {len(found)} jobs ({', '.join(found[:5])}): "
            "give a longer id prefix",
        )
    return found[0]
