"""Formats states as text: indented lines, one for each value, without empty values."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterator, Sequence
from typing import Any

from ....infra.sanitize import escape_control_characters
from ...core.replica import Replica
from ...history.log_source import LogSource
from ...history.time_travel import state_hash
from ...history.to_builtins import to_builtins
from ...job_master.state import TerminatedJob
from ..args.time_travel import format_moment, time_of
from ..exit_codes import CommandFailure, ExitCode
from .output import to_json

_MAX_TEXT_LENGTH = 100
_MAX_VALUE_LENGTH = 60
_MAX_ENTRIES = 50
"""The number of entries of a map in the text of all states."""


def format_lines(data: Any, depth: int = 0, most: int | None = None) -> list[str]:
    """Formats data as indented lines; `most`: the limit of entries of each map and list."""
    indent = "  " * depth
    shown: list[str] = []
    if not isinstance(data, dict | list):
        return [f"{indent}{format_value(data)}"]
    pairs = (
        list(data.items()) if isinstance(data, dict) else [(f"- {i}", item) for i, item in enumerate(data)]
    )
    pairs = [(key, value) for key, value in pairs if value not in (None, {}, [], "")]
    for key, value in pairs[:most]:
        if isinstance(value, dict | list):
            shown += [
                f"{indent}{escape_control_characters(str(key))}:",
                *format_lines(value, depth + 1, most),
            ]
        else:
            shown.append(f"{indent}{escape_control_characters(str(key))}: {format_value(value)}")
    if most is not None and len(pairs) > most:
        shown.append(f"{indent}... and {len(pairs) - most:,} more")
    return shown


def format_value(data: Any, longest: int = _MAX_TEXT_LENGTH) -> str:
    """Formats a value on one line, truncated if it is long."""
    text = " ".join(str(data).split())
    return escape_control_characters(text if len(text) <= longest else f"{text[: longest - 3]}...")


def format_brief(data: Any) -> str:
    """Formats any data briefly, as JSON."""
    match data:
        case dict() | list() if len(data) > 3:
            return f"{len(data)} entries"
        case _:
            return format_value(to_json(data), _MAX_VALUE_LENGTH)


def matching_addresses(replica: Replica, wanted: Sequence[str]) -> list[str]:
    """Returns the addresses that match the given names and patterns. Raises CommandFailure if one matches nothing."""
    found: dict[str, None] = {}
    for pattern in wanted:
        some = [pattern] if pattern in replica.states else fnmatch.filter(replica.states, pattern)
        if not some:
            near = difflib.get_close_matches(pattern, list(replica.states), 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "`tailrace state` shows all addresses"
            raise CommandFailure(
                ExitCode.NOT_FOUND, f"there is no state of {pattern!r} at offset {replica.offset}: {hint}"
            )
        found.update(dict.fromkeys(some))
    return sorted(found)


def format_states(source: LogSource, replica: Replica, wanted: Sequence[str] | None) -> Iterator[str]:
    """Yields the states at the wanted addresses, or all of them; then only the first entries of long maps."""
    time = format_moment(time_of(source, replica.offset))
    level = replica.leadership.feature_level
    yield (
        f"offset {replica.offset}{f'  {time}' if time else ''}  state hash {state_hash(replica)}"
        f"{f'  feature level {level}' if level > 1 else ''}"
    )
    leaders = replica.leadership.leaders
    for role in sorted(leaders):
        if wanted is None or role in wanted:
            leader = leaders[role]
            yield escape_control_characters(
                f"{role} is led by {leader.address}, epoch {leader.epoch}, since offset {leader.offset}"
            )
    for address in sorted(replica.states) if wanted is None else wanted:
        if wanted is None and (ended := _describe_ended_job(replica, address)) is not None:
            yield ended
            continue
        yield ""
        yield escape_control_characters(f"{address}:")
        yield from format_lines(
            to_builtins(replica.states[address]), 1, _MAX_ENTRIES if wanted is None else None
        )


def _describe_ended_job(replica: Replica, address: str) -> str | None:
    """Returns one line for the state of an ended job; None for all other states."""
    if replica.is_active(address):
        return None
    state = replica.states[address]
    if not isinstance(state, TerminatedJob):
        return None
    reason = f": {' '.join(state.reason.split())}" if state.reason else ""
    return escape_control_characters(f"{address}: {state.name}, {state.status.value}{reason}")
