"""Graphs as a Mermaid flowchart, one subgraph each (https://mermaid.js.org/syntax/flowchart.html)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .....infra.sanitize import escape_control_characters
from .diagram import Diagram

_ESCAPES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}


def to_mermaid(diagrams: Sequence[Diagram]) -> str:
    """The text of the flowchart. Arrows between operators of one chain are thick."""
    return "\n".join(["flowchart TD", *(line for each in enumerate(diagrams) for line in _subgraph(*each))])


def _subgraph(number: int, diagram: Diagram) -> Iterator[str]:
    yield f"  subgraph g{number}[{_label(diagram.title, diagram.summary)}]"
    for place, box in enumerate(diagram.boxes):
        yield f"    g{number}n{place}[{_label(f'{box.title} {box.badge}', *box.facts, *box.rows)}]"
    for arrow in diagram.arrows:
        line = "==>" if arrow.chained else "-->"
        label = _label(arrow.label, *arrow.notes)
        yield f"    g{number}n{arrow.source} {line}|{label}| g{number}n{arrow.target}"
    yield "  end"


def _label(*lines: str) -> str:
    return '"' + "<br/>".join(map(_escape, lines)) + '"'


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in escape_control_characters(text))
