"""`tailrace diff`: compares the states at two offsets of the log, entity by entity."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....infra.sanitize import escape_control_characters
from ..args.common_options import BootstrapServers, ClusterId, Format, Home, Output
from ..args.log_source import PLACE, File, find_source
from ..exit_codes import ExitCode
from ..render.output import format_duration, print_result
from ..render.state import format_brief

if TYPE_CHECKING:
    from ...history.entity_diff import EntityDifference
    from ...history.log_source import LogSource
    from ...history.state_diff import StateChange, StateDifference

_COLOURS = {"+": "green", "-": "red"}
_SIGNS = {"appeared": "+", "gone": "-", "changed": "~"}


def diff(
    first: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=PLACE,
            help="The state after this offset or time: 2026-11-22T08:30, 08:30 (today), -10m (10 minutes ago).",
        ),
    ],
    last: Annotated[
        str | None, typer.Option("--to", metavar=PLACE, help="Like --from. \\[default: the last event]")
    ] = None,
    fields: Annotated[bool, typer.Option("--fields", help="Also show every field that differs.")] = False,
    output: Output = Format.TEXT,
    file: File = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Compare the state at two offsets or times: jobs and tasks, TaskExecutors and slots, leaders.

    -o json prints all differences. They turn the first state into the second.
    """
    from ....infra.logging_setup import log_to_stderr

    log_to_stderr()
    with find_source(home, bootstrap_servers, cluster_id, file) as source:
        from ...history.entity_diff import entity_differences
        from ..args.time_travel import replica_at, to_json

        before, after = (replica_at(source, place) for place in (first, last))
        found, entities = entity_differences(before, after)
        if output is Format.JSON:
            print_result(to_json(_data(found, entities)))
        else:
            colours = sys.stdout.isatty()
            lines = _text(source, found, entities, fields=fields)
            print_result("\n".join(map(_colour, lines) if colours else lines))
    return ExitCode.OK


def _colour(line: str) -> str:
    sign = line.lstrip()[:1]
    return typer.style(line, fg=_COLOURS[sign]) if sign in _COLOURS else line


def _data(found: StateDifference, entities: Iterable[EntityDifference]) -> dict[str, Any]:
    return {
        "before": found.before,
        "after": found.after,
        "entities": [
            {
                "kind": each.entity.kind.value,
                "id": each.entity.id,
                "name": each.name,
                "became": each.became.value,
                "facts": each.facts,
                "changes": len(each.changes),
            }
            for each in entities
        ],
        "changes": found.changes,
    }


def _text(
    source: LogSource, found: StateDifference, entities: list[EntityDifference], *, fields: bool
) -> Iterator[str]:
    from ..args.time_travel import format_moment, time_of

    before, after = found.before, found.after
    times = [time_of(source, each.offset) for each in (before, after)]
    yield f"from offset {before.offset}  {format_moment(times[0])}  state hash {before.state_hash}"
    yield f"to offset   {after.offset}  {format_moment(times[1])}  state hash {after.state_hash}"
    yield f"{abs(after.offset - before.offset):,} events{_between(times)}"
    if not found.changes:
        yield "the states are equal"
        return
    yield ""
    for each in entities:
        yield _headline(each)
        if fields:
            yield from (f"      {field}" for field in map(field_line, each.changes))
    if not fields:
        yield ""
        yield f"{_format_count(len(found.changes))} differ: --fields shows them"


def _format_count(count: int) -> str:
    return f"{count:,} field{'' if count == 1 else 's'}"


def _between(times: list[int | None]) -> str:
    first, last = times
    return "" if first is None or last is None else f" in {format_duration(abs(last - first))}"


def _headline(each: EntityDifference) -> str:
    from ...history.entity_history.event_formatting import shorten_ids

    entity = each.entity
    below = "  " if entity.kind.value in ("slot", "task", "checkpoint") else ""
    called = {"role": "", "taskexecutor": "TaskExecutor "}.get(entity.kind.value, f"{entity.kind.value} ")
    name = f' "{each.name}"' if each.name and each.name != entity.id else ""
    if entity.kind.value == "task":
        shown, name = each.name or entity.id, ""
    else:
        shown = entity.id
    facts = "; ".join(_fact(*pair) for pair in each.facts.items() if pair[0] != "name")
    if not facts:
        facts = _format_count(len(each.changes))
    return escape_control_characters(
        f"{_SIGNS[each.became.value]} {below}{called}{shown}{name}: {shorten_ids(facts)}"
    )


def _fact(name: str, pair: tuple[str | None, str | None]) -> str:
    before, after = (None if each is None else " ".join(each.split()) for each in pair)
    if before is None:
        return f"{name} {after}"
    if after is None:
        return f"no {name} any more ({before})"
    return f"{name} {before} -> {after}"


def field_line(change: StateChange) -> str:
    """Returns a change of a field as one line: its path, the old value, the new value."""
    from ...history.state_diff import ChangeKind
    from ...history.state_tree import change_path, format_path

    where = escape_control_characters(format_path(change_path(change.path)))
    match change.what:
        case ChangeKind.ADDED:
            return f"+ {where}: {format_brief(change.after)}"
        case ChangeKind.REMOVED:
            return f"- {where}: {format_brief(change.before)}"
        case ChangeKind.CHANGED:
            return f"~ {where}: {format_brief(change.before)} -> {format_brief(change.after)}"
        case ChangeKind.SPLICED:
            return f"~ {where}[{change.at}:]: {_items(change.before)} -> {_items(change.after)}"


def _items(some: list[Any]) -> str:
    return ", ".join(map(format_brief, some)) if some else "nothing"
