"""The formats of graphs: text, a Mermaid flowchart, Graphviz's DOT, and the JSON of Flink's plan visualizer.

Mermaid: https://mermaid.js.org/syntax/flowchart.html. DOT: https://graphviz.org/doc/info/lang.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .....infra.sanitize import escape_control_characters
from .....pipelines.graph.operators import traits_of
from .....pipelines.graph.stream_graph import StreamGraph, StreamNode
from ...render.wrapping import wrap_text
from .diagram import Arrow, Box, Diagram

_INDENT = 4
_MIN_WIDTH, _MAX_WIDTH = 40, 120
_MERMAID_ESCAPES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"}


def print_text(diagrams: Sequence[Diagram]) -> None:
    """Prints graphs as text, as wide as the terminal."""
    console = Console(highlight=False)
    width = max(console.width, _MIN_WIDTH)
    for i, diagram in enumerate(diagrams):
        if i:
            console.print()
        for line in to_text(diagram, width):
            console.print(line, soft_wrap=True)


def to_text(diagram: Diagram, width: int) -> Iterator[Text]:
    """Returns each node in topological order, with its facts and its outgoing edges, in at most `width` cells (40 or
    more)."""
    width = min(width, _MAX_WIDTH)
    yield Text(diagram.title, "bold")
    yield from (Text(line, "dim") for line in wrap_text(diagram.summary, width))
    for number, box in enumerate(diagram.boxes):
        yield Text("")
        yield from _text_node(box, width)
        for arrow in diagram.arrows:
            if arrow.source == number:
                yield from _text_edge(arrow, diagram.boxes[arrow.target].name, width)


def _text_node(box: Box, width: int) -> Iterator[Text]:
    first, *rest = wrap_text(box.title, width - len(box.badge) - 2)
    padding = " " * max(2, min(width, 60) - cell_len(first) - len(box.badge))
    yield Text.assemble((first, "bold"), padding[: width - cell_len(first) - len(box.badge)], box.badge)
    yield from (Text(line, "bold") for line in rest)
    for fact in box.facts:
        yield from _indented(fact, width, "dim")
    for row in box.rows:
        yield from _indented(row, width, "")


def _text_edge(arrow: Arrow, target: str, width: int) -> Iterator[Text]:
    style = "green" if arrow.chained else "cyan"
    yield from _indented(f"-> {target}: {arrow.label}", width, style)
    for note in arrow.notes:
        yield from _indented(f"   {note}", width, "dim")


def _indented(text: str, width: int, style: str) -> Iterator[Text]:
    for line in wrap_text(text, width - _INDENT):
        yield Text(" " * _INDENT).append(line, style)


def to_mermaid(diagrams: Sequence[Diagram]) -> str:
    """Returns the text of the flowchart. Arrows between operators of one chain are thick."""
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
    return "".join(
        _MERMAID_ESCAPES.get(character, character) for character in escape_control_characters(text)
    )


def to_dot(diagrams: Sequence[Diagram], name: str) -> str:
    """Returns the text of one digraph. Edges between operators of one chain are bold."""
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
    """Returns a quoted id of left-aligned lines."""
    escaped = [escape_control_characters(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + (escaped[0] if len(escaped) == 1 else "".join(f"{line}\\l" for line in escaped)) + '"'


def to_json(graph: StreamGraph) -> str:
    """`{"nodes": [{"id", "type", "pact", "contents", "parallelism", "predecessors": [...]}]}`, by id, sinks last.

    This is the form of Flink's JSONGenerator. A source has no predecessors; each of the others says where records come
    from, how they are shipped, and on which side of a connected operator they arrive.
    """
    nodes = sorted(graph.nodes.values(), key=lambda node: (traits_of(node.kind).sink, node.node_id))
    return json.dumps({"nodes": [_json_node(graph, node) for node in nodes]}, indent=2, ensure_ascii=False)


def _json_node(graph: StreamGraph, node: StreamNode) -> dict[str, Any]:
    traits = traits_of(node.kind)
    drawn: dict[str, Any] = {
        "id": node.node_id,
        "type": node.name,
        "pact": "Data Source" if traits.source else "Data Sink" if traits.sink else "Operator",
        "contents": node.name,
        "parallelism": node.parallelism,
    }
    if not traits.source:
        drawn["predecessors"] = [
            {
                "id": edge.source_id,
                "ship_strategy": edge.partitioner.value,
                "side": "second" if edge.input_index else "first",
            }
            for edge in graph.in_edges(node.node_id)
        ]
    return drawn
