"""Prints the difference of two states, entity by entity."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from ....infra.sanitize import escape_control_characters
from ...core.replica import Replica
from ...history.entity_diff import EntityDifference, entity_differences
from ...history.event_formatting import shorten_ids
from ...history.log_source import LogSource
from ...history.state_diff import ChangeKind, StateChange, StateDifference
from ...history.state_tree import format_path
from ..args.common_options import Format
from ..args.time_travel import format_moment, time_of
from .formatting import format_count, format_duration
from .output import print_json, print_result
from .state import format_brief

_COLOURS = {"+": "green", "-": "red"}
_SIGNS = {"appeared": "+", "gone": "-", "changed": "~"}


def print_difference(
    source: LogSource, before: Replica, after: Replica, output: Format, *, fields: bool
) -> None:
    """Prints the changes from the state before to the state after; `fields`: with all fields."""
    found, entities = entity_differences(before, after)
    if output is Format.JSON:
        print_json(_data(found, entities))
        return
    lines = _text(source, found, entities, fields=fields)
    print_result("\n".join(map(_colour, lines) if sys.stdout.isatty() else lines))


def _colour(line: str) -> str:
    sign = line.lstrip()[:1]
    return typer.style(line, fg=_COLOURS[sign]) if sign in _COLOURS else line


def _data(found: StateDifference, entities: Iterable[EntityDifference]) -> dict[str, Any]:
    return {
        "before": found.before,
        "after": found.after,
        "entities": [
            {
                "kind": entity.entity.kind.value,
                "id": entity.entity.id,
                "name": entity.name,
                "became": entity.became.value,
                "facts": entity.facts,
                "changes": len(entity.changes),
            }
            for entity in entities
        ],
        "changes": found.changes,
    }


def _text(
    source: LogSource, found: StateDifference, entities: list[EntityDifference], *, fields: bool
) -> Iterator[str]:
    before, after = found.before, found.after
    times = [time_of(source, state.offset) for state in (before, after)]
    yield f"from offset {before.offset}  {format_moment(times[0])}  state hash {before.state_hash}"
    yield f"to offset   {after.offset}  {format_moment(times[1])}  state hash {after.state_hash}"
    yield f"{abs(after.offset - before.offset):,} events{_between(times)}"
    if not found.changes:
        yield "the states are equal"
        return
    yield ""
    for entity in entities:
        yield _headline(entity)
        if fields:
            yield from (f"      {field}" for field in map(field_line, entity.changes))
    if not fields:
        yield ""
        yield f"{format_count(len(found.changes), 'field')} differ: --fields shows them"


def _between(times: list[int | None]) -> str:
    first, last = times
    return "" if first is None or last is None else f" in {format_duration(abs(last - first))}"


def _headline(difference: EntityDifference) -> str:
    entity = difference.entity
    below = "  " if entity.kind.value in ("slot", "task", "checkpoint") else ""
    called = {"role": "", "taskexecutor": "TaskExecutor "}.get(entity.kind.value, f"{entity.kind.value} ")
    name = f' "{difference.name}"' if difference.name and difference.name != entity.id else ""
    if entity.kind.value == "task":
        shown, name = difference.name or entity.id, ""
    else:
        shown = entity.id
    facts = "; ".join(_fact(*pair) for pair in difference.facts.items() if pair[0] != "name")
    if not facts:
        facts = format_count(len(difference.changes), "field")
    return escape_control_characters(
        f"{_SIGNS[difference.became.value]} {below}{called}{shown}{name}: {shorten_ids(facts)}"
    )


def _fact(name: str, pair: tuple[str | None, str | None]) -> str:
    before, after = (None if text is None else " ".join(text.split()) for text in pair)
    if before is None:
        return f"{name} {after}"
    if after is None:
        return f"no {name} any more ({before})"
    return f"{name} {before} -> {after}"


def field_line(change: StateChange) -> str:
    """Returns a change of a field as one line: its path, the old value, the new value."""
    where = escape_control_characters(format_path([str(part) for part in change.path]))
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
