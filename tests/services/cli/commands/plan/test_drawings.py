"""What is drawn of any graph: complete, inside its bounds, safe to show."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from graphs import line, node, stream_graphs
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tailrace.pipelines.graph.execution_graph import ExecutionGraph
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.schemas.types import Partitioner
from tailrace.services.cli.commands.plan.diagram import (
    Diagram,
    execution_diagram,
    job_diagram,
    stream_diagram,
)
from tailrace.services.cli.commands.plan.svg import to_svg
from tailrace.services.cli.commands.plan.terminal import draw
from tailrace.services.cli.render.wrapping import wrap_text

SVG = "{http://www.w3.org/2000/svg}"


def diagrams_of(graph: StreamGraph) -> list[Diagram]:
    job = create_job_graph(graph)
    return [
        stream_diagram(graph),
        job_diagram(graph, job),
        execution_diagram(ExecutionGraph.attach("job", job)),
    ]


def in_terminal(diagrams: Sequence[Diagram], width: int) -> list[str]:
    return [line.plain for diagram in diagrams for line in draw(diagram, width)]


@st.composite
def named_graphs(draw: st.DrawFn) -> StreamGraph:
    """Graphs with names that people should not use."""
    graph = draw(stream_graphs())
    nodes = {
        n: dataclasses.replace(
            of, name=draw(st.text(max_size=60)), location=draw(st.none() | st.text(max_size=20))
        )
        for n, of in graph.nodes.items()
    }
    return dataclasses.replace(graph, nodes=nodes)


@given(named_graphs(), st.integers(40, 200))
def test_no_line_is_wider_than_the_terminal_or_steers_it(graph: StreamGraph, width: int) -> None:
    for text in in_terminal(diagrams_of(graph), width):
        assert cell_len(text) <= width
        assert text.isprintable()


@given(stream_graphs(), st.integers(40, 200))
def test_every_box_row_and_arrow_is_drawn(graph: StreamGraph, width: int) -> None:
    for diagram in diagrams_of(graph):
        lines = in_terminal([diagram], width)
        assert sum(line.endswith("╮") for line in lines) == len(diagram.boxes)
        text = " ".join("".join(lines).split())
        for box in diagram.boxes:
            assert all(" ".join(row.text.split())[:20] in text for row in box.rows)
        # A narrow terminal may break a label behind any of its words.
        said = [arrow.label.split()[0] for arrow in diagram.arrows]
        assert all(text.count(word) >= said.count(word) for word in said)


@given(stream_graphs())
def test_the_diagrams_have_all_there_is(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    stream, vertices, execution = diagrams_of(graph)
    assert [len(stream.boxes), len(stream.arrows)] == [len(graph.nodes), len(graph.edges)]
    assert [len(vertices.boxes), len(vertices.arrows)] == [len(job.vertices), len(job.edges)]
    assert sum(arrow.chained for arrow in stream.arrows) == len(graph.edges) - len(job.edges)
    assert sum(len(box.rows) for box in execution.boxes) == sum(v.parallelism for v in job.vertices)
    for diagram in (stream, vertices, execution):
        assert all(arrow.source < arrow.target for arrow in diagram.arrows), "boxes are in topological order"


@given(named_graphs())
def test_an_svg_is_xml_and_holds_every_text_inside_its_bounds(graph: StreamGraph) -> None:
    root = ElementTree.fromstring(to_svg(diagrams_of(graph), graph.name))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "style", "defs", "marker", "path", "rect", "g", "text")
    }
    for group in root.findall(f"{SVG}g"):
        for element in group.iter(f"{SVG}rect"):
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
            assert float(element.attrib["y"]) + float(element.attrib["height"]) <= height


def test_a_name_is_escaped() -> None:
    graph = line(node(1, OperatorKind.FILES, name='<script>alert("&")</script>'))
    text = to_svg(diagrams_of(graph), "<job>")
    assert "<script>" not in text
    root = ElementTree.fromstring(text)
    assert any(each.text == '<script>alert("&")</script>' for each in root.iter(f"{SVG}text"))


def test_controls_are_shown_not_obeyed() -> None:
    graph = line(node(1, OperatorKind.FILES, name="a\x1b[31mb\nc"))
    assert any(r"a\x1b[31mb\nc" in text for text in in_terminal(diagrams_of(graph), 80))


def test_the_terminal_says_how_records_are_partitioned_and_why_operators_are_not_chained() -> None:
    graph = line(
        node(1, OperatorKind.FILES, name="Source"),
        node(2, name="Map", parallelism=2, slot_sharing_group="other"),
        partitioner=Partitioner.REBALANCE,
    )
    assert "\n".join(in_terminal([stream_diagram(graph)], 80)) == WANTED


WANTED = """\
StreamGraph
2 operators, 1 edge

╭──────────────────────────╮
│ Source                x1 │
│ 1: files, program.py:1   │
╰┬─────────────────────────╯
 │ REBALANCE
 │ not chained: they are in different slot sharing groups; records are
 │ partitioned between them; their parallelism differs
╭▼─────────────────────────╮
│ Map                   x2 │
│ 2: map, program.py:2     │
│ slot sharing group other │
╰──────────────────────────╯
"""


def test_a_chain_is_drawn_as_a_tree() -> None:
    graph = line(node(1, OperatorKind.FILES, name="Source"), node(2, name="Map"), node(3, name="Filter"))
    _, job, _ = diagrams_of(graph)
    assert [row.text for row in job.boxes[0].rows] == ["Source", "└─ Map", "   └─ Filter"]


def test_of_many_subtasks_the_first_and_the_last_are_drawn() -> None:
    graph = line(node(1, OperatorKind.GENERATOR, parallelism=100))
    *_, execution = diagrams_of(graph)
    assert [row.text for row in execution.boxes[0].rows] == [
        "1/100 in slot default 0",
        "2/100 in slot default 1",
        "3/100 in slot default 2",
        "4/100 in slot default 3",
        "...",
        "100/100 in slot default 99",
    ]


@pytest.mark.parametrize("partitioner", [Partitioner.FORWARD, Partitioner.RESCALE, Partitioner.REBALANCE])
def test_links_are_those_of_the_execution_graph(partitioner: Partitioner) -> None:
    receivers = 2 if partitioner is Partitioner.FORWARD else 5
    graph = line(
        node(1, OperatorKind.GENERATOR, parallelism=2),
        node(2, parallelism=receivers, slot_sharing_group="other"),
        partitioner=partitioner,
    )
    execution = ExecutionGraph.attach("job", create_job_graph(graph))
    (arrow,) = execution_diagram(execution).arrows
    assert set(arrow.links) == {
        (producer.subtask_index, edge.consumer.subtask_index)
        for edge in execution.execution_edges()
        for producer in edge.producers()
    }


@given(st.text(max_size=200), st.integers(8, 80))
def test_wrapped_text_is_all_there_and_fits(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert lines
    assert all(cell_len(each) <= width for each in lines)


@given(st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), max_size=30), st.integers(12, 80))
def test_words_stay_whole_where_they_can(words: list[str], width: int) -> None:
    assert " ".join(wrap_text(" ".join(words), width)).split() == words


def test_a_long_program_is_drawn() -> None:
    nodes = [node(1, OperatorKind.GENERATOR), *(node(i, parallelism=1 + i % 3) for i in range(2, 500))]
    diagrams = diagrams_of(line(*nodes, partitioner=Partitioner.REBALANCE))
    assert len(re.findall("<rect", to_svg(diagrams, "long"))) > 500
    assert in_terminal(diagrams, 80)
