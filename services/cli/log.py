"""`tailrace log`: the story of the cluster, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import ExitCode, Failure
from .options import BootstrapServers, ClusterId, Format, Home, Output, find_cluster
from .show import result

if TYPE_CHECKING:
    from ..history import Entry, Fold
    from ..log import EventLog
    from ..snapshots.store import SnapshotStore


def log(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is said from now on.")
    ] = False,
    start: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="The first offset.")] = 0,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            "-t",
            metavar="TYPE",
            help="Only this type, such as RequestSlot or task_executor.RequestSlot.",
        ),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", "-j", help="Only what belongs to this job.")] = None,
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Print the cluster's log: offset, time, sender -> recipient, type, cause, key fields. JSON: one object a line.

    What no reader takes notice of (said by a deposed leader, or impossible) is shown as IGNORED, with the reason.
    """
    _check_types(types or [])
    configuration = find_cluster(home, bootstrap_servers, cluster_id)
    from ..connections import event_log
    from ..history import Fold, Wanted
    from ..history.story import line
    from ..snapshots.store import SnapshotStore

    events, fold = event_log(configuration, timeout=10.0), Fold()
    if job is not None:
        job = _job_id(events, job, SnapshotStore.of(configuration))
    wanted = Wanted.of(types or (), job, start)
    store = SnapshotStore.of(configuration)
    told = _followed(events, fold, store) if follow else fold.read(events, store=store)
    for entry in told:
        if wanted.takes(entry):
            result(as_json(entry) if output is Format.JSON else line(entry))
    return ExitCode.OK


def as_json(entry: Entry) -> str:
    """All of an event on one line."""
    import msgspec

    return msgspec.json.encode(entry.as_data()).decode()


def _followed(events: EventLog, fold: Fold, store: SnapshotStore) -> Iterator[Entry]:
    tail = events.tail(fold.begin(events, store))
    try:
        while True:
            for record in tail.poll(0.5):
                yield fold.tell(record)
    finally:
        tail.close()


def _job_id(events: EventLog, wanted: str, store: SnapshotStore) -> str:
    """The job whose id is, or alone begins with, what was asked for; rejected jobs have events too."""
    from ..history import Fold

    fold = Fold()
    known = {entry.job for entry in fold.read(events, store=store) if entry.job is not None}
    found = [wanted] if wanted in known else sorted(each for each in known if each.startswith(wanted))
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(
            ExitCode.USAGE, f"{wanted!r} is the beginning of {len(found)} job ids ({', '.join(found[:5])})"
        )
    raise Failure(ExitCode.NOT_FOUND, f"the log has no job {wanted!r}: `tailrace list` shows those there are")


def _check_types(types: Iterable[str]) -> None:
    from ...schemas.catalog import EVENTS

    full = {name.partition(".")[2].lower() for name in EVENTS}
    known = full | {name.rpartition(".")[2] for name in full}
    for each in types:
        if each.lower() not in known:
            import difflib

            names = {name.rpartition(".")[2] for name in EVENTS}
            near = difflib.get_close_matches(each, names, 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(sorted(names))}"
            raise Failure(ExitCode.USAGE, f"there is no event type {each!r}: {hint}")
