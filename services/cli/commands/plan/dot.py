"""Graphs in Graphviz's DOT language, one cluster each (https://graphviz.org/doc/info/lang.html)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .....infra.sanitize import escape_control_characters
from .diagram import Diagram


def to_dot(diagrams: Sequence[Diagram], name: str) -> str:
    """The text of one digraph. Edges between operators of one chain are bold."""
    lines = [line for each in enumerate(diagrams) for line in _cluster(*each)]
    return "\n".join([f"digraph {_quote(name)} {{", "  node [shape=box];", *lines, "}"])


def _cluster(number: int, diagram: Diagram) -> Iterator[str]:
    yield f"  subgraph cluster_{number} {{"
    yield f"    label={_quote(diagram.title, diagram.summary)};"
    for place, box in enumerate(diagram.boxes):
        yield f"    g{number}n{place} [label={_quote(f'{box.title} {box.badge}', *box.facts, *box.rows)}];"
    for arrow in diagram.arrows:
        style = ", style=bold" if arrow.chained else ""
        label = _quote(arrow.label, *arrow.notes)
        yield f"    g{number}n{arrow.source} -> g{number}n{arrow.target} [label={label}{style}];"
    yield "  }"


def _quote(*lines: str) -> str:
    """A quoted id of left-aligned lines."""
    escaped = [escape_control_characters(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + (escaped[0] if len(escaped) == 1 else "".join(f"{line}\\l" for line in escaped)) + '"'
