"""Formats states as text: indented lines, one per value, without empty values."""

from __future__ import annotations

from typing import Any

from ....infra.sanitize import escape_control_characters

_MAX_TEXT_LENGTH = 100
_MAX_VALUE_LENGTH = 60


def format_lines(data: Any, depth: int = 0, most: int | None = None) -> list[str]:
    """Data as indented lines; `most`: of how many entries of each map and list."""
    indent = "  " * depth
    shown: list[str] = []
    if not isinstance(data, dict | list):
        return [f"{indent}{format_value(data)}"]
    pairs = (
        list(data.items()) if isinstance(data, dict) else [(f"- {i}", each) for i, each in enumerate(data)]
    )
    pairs = [(key, each) for key, each in pairs if each not in (None, {}, [], "")]
    for key, each in pairs[:most]:
        if isinstance(each, dict | list):
            shown += [f"{indent}{escape_control_characters(str(key))}:", *format_lines(each, depth + 1, most)]
        else:
            shown.append(f"{indent}{escape_control_characters(str(key))}: {format_value(each)}")
    if most is not None and len(pairs) > most:
        shown.append(f"{indent}... and {len(pairs) - most:,} more")
    return shown


def format_value(data: Any, longest: int = _MAX_TEXT_LENGTH) -> str:
    """A value on a line, cut where it is long."""
    text = " ".join(str(data).split())
    return escape_control_characters(text if len(text) <= longest else f"{text[: longest - 3]}...")


def format_brief(data: Any) -> str:
    """Any data in a few words, as JSON."""
    import msgspec

    match data:
        case dict() | list() if len(data) > 3:
            return f"{len(data)} entries"
        case _:
            return format_value(msgspec.json.encode(data).decode(), _MAX_VALUE_LENGTH)
