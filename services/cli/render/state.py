"""States as text: indented lines, one for each value, without what is empty."""

from __future__ import annotations

from typing import Any

from ....infra.sanitize import escape_control_characters

_LONGEST_TEXT = 100
_LONGEST_VALUE = 60


def lines(data: Any, depth: int = 0, most: int | None = None) -> list[str]:
    """Data as indented lines; `most`: of how many entries of each map and list."""
    indent = "  " * depth
    shown: list[str] = []
    if not isinstance(data, dict | list):
        return [f"{indent}{value(data)}"]
    pairs = (
        list(data.items()) if isinstance(data, dict) else [(f"- {i}", each) for i, each in enumerate(data)]
    )
    pairs = [(key, each) for key, each in pairs if each not in (None, {}, [], "")]
    for key, each in pairs[:most]:
        if isinstance(each, dict | list):
            shown += [f"{indent}{escape_control_characters(str(key))}:", *lines(each, depth + 1, most)]
        else:
            shown.append(f"{indent}{escape_control_characters(str(key))}: {value(each)}")
    if most is not None and len(pairs) > most:
        shown.append(f"{indent}... and {len(pairs) - most:,} more")
    return shown


def value(data: Any, longest: int = _LONGEST_TEXT) -> str:
    """A value on a line, cut where it is long."""
    text = " ".join(str(data).split())
    return escape_control_characters(text if len(text) <= longest else f"{text[: longest - 3]}...")


def brief(data: Any) -> str:
    """Any data in a few words, as JSON."""
    import msgspec

    match data:
        case dict() | list() if len(data) > 3:
            return f"{len(data)} entries"
        case _:
            return value(msgspec.json.encode(data).decode(), _LONGEST_VALUE)
