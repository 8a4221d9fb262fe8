"""A graph as plain text: its nodes in topological order, each with its facts and its outgoing edges."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from ...render.wrapping import wrap_text
from .diagram import Arrow, Box, Diagram

_INDENT = 4
_MAX_WIDTH = 120


def to_text(diagram: Diagram, width: int) -> Iterator[Text]:
    """The lines, none wider than `width` cells (40 or more)."""
    width = min(width, _MAX_WIDTH)
    yield Text(diagram.title, "bold")
    yield from (Text(line, "dim") for line in wrap_text(diagram.summary, width))
    for number, box in enumerate(diagram.boxes):
        yield Text("")
        yield from _node(box, width)
        for arrow in diagram.arrows:
            if arrow.source == number:
                yield from _edge(arrow, diagram.boxes[arrow.target].name, width)


def _node(box: Box, width: int) -> Iterator[Text]:
    first, *rest = wrap_text(box.title, width - len(box.badge) - 2)
    padding = " " * max(2, min(width, 60) - cell_len(first) - len(box.badge))
    yield Text.assemble((first, "bold"), padding[: width - cell_len(first) - len(box.badge)], box.badge)
    yield from (Text(line, "bold") for line in rest)
    for fact in box.facts:
        yield from _indented(fact, width, "dim")
    for row in box.rows:
        yield from _indented(row, width, "")


def _edge(arrow: Arrow, target: str, width: int) -> Iterator[Text]:
    style = "green" if arrow.chained else "cyan"
    yield from _indented(f"-> {target}: {arrow.label}", width, style)
    for note in arrow.notes:
        yield from _indented(f"   {note}", width, "dim")


def _indented(text: str, width: int, style: str) -> Iterator[Text]:
    for line in wrap_text(text, width - _INDENT):
        yield Text(" " * _INDENT).append(line, style)
