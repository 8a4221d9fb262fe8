"""Wraps external text to a fixed width: escapes control characters, breaks at blanks or, without blanks, anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, chop_cells

from ....infra.sanitize import escape_control_characters


def wrap_text(text: str, width: int) -> list[str]:
    """Returns lines of at most `width` cells, one or more, each indented like the first."""
    own = escape_control_characters(text).lstrip(" ")
    indent = " " * min(len(text) - len(text.lstrip(" ")), width // 2)
    return [indent + line for line in _lines(own, width - len(indent))] or [""]


def _lines(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        *full, line = chop_cells(word, width) or [""]
        yield from full
    if line:
        yield line
