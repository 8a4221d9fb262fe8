"""Any graph is complete and safe to print in any format."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from graphs import edge, job_graph, line, node, stream_graphs, vertex
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
from tailrace.services.cli.commands.plan.formats import to_dot, to_mermaid, to_text
from tailrace.services.cli.render.wrapping import wrap_text
from tailrace.services.history.execution_history import graph_before_start
from tailrace.services.rest.flink.plan import plan_of

LABEL = r'"(?:[^"\\]|\\.)*"'


def diagrams_of(graph: StreamGraph) -> list[Diagram]:
    job = create_job_graph(graph)
    return [
        stream_diagram(graph),
        job_diagram(graph, job),
        execution_diagram(ExecutionGraph.attach("job", job)),
    ]


def in_terminal(diagrams: Sequence[Diagram], width: int) -> list[str]:
    return [line.plain for diagram in diagrams for line in to_text(diagram, width)]


@st.composite
def named_graphs(draw: st.DrawFn) -> StreamGraph:
    """Draws graphs with unusual names."""
    graph = draw(stream_graphs())
    nodes = {
        n: dataclasses.replace(
            of, name=draw(st.text(max_size=60)), location=draw(st.none() | st.text(max_size=20))
        )
        for n, of in graph.nodes.items()
    }
    return dataclasses.replace(graph, nodes=nodes)


@given(named_graphs(), st.integers(40, 200))
def test_lines_fit_terminal_and_have_no_control_characters(graph: StreamGraph, width: int) -> None:
    for text in in_terminal(diagrams_of(graph), width):
        assert cell_len(text) <= width
        assert text.isprintable()


@given(stream_graphs(), st.integers(40, 200))
def test_text_has_every_box_row_and_arrow(graph: StreamGraph, width: int) -> None:
    for diagram in diagrams_of(graph):
        text = " ".join(" ".join(in_terminal([diagram], width)).split())
        for box in diagram.boxes:
            assert all(" ".join(row.split())[:20] in text for row in box.rows)
        assert text.count("-> ") >= len(diagram.arrows)
        # A narrow terminal may break a label behind any of its words.
        labels = [arrow.label.split()[0] for arrow in diagram.arrows]
        assert all(text.count(word) >= labels.count(word) for word in labels)


@given(named_graphs())
def test_flowchart_has_line_per_box_and_arrow_with_escaped_labels(
    graph: StreamGraph,
) -> None:
    diagrams = diagrams_of(graph)
    first, *lines = to_mermaid(diagrams).splitlines()
    assert first == "flowchart TD"
    label = r'"[^"`]*"'
    nodes = [line for line in lines if re.fullmatch(rf"    g\dn\d+\[{label}\]", line)]
    arrows = [line for line in lines if re.fullmatch(rf"    g\dn\d+ (==>|-->)\|{label}\| g\dn\d+", line)]
    groups = [line for line in lines if re.fullmatch(rf"  subgraph g\d\[{label}\]|  end", line)]
    assert len(nodes) == sum(len(diagram.boxes) for diagram in diagrams)
    assert len(arrows) == sum(len(diagram.arrows) for diagram in diagrams)
    assert len(nodes) + len(arrows) + len(groups) == len(lines)
    assert len(groups) == 2 * len(diagrams)


@given(named_graphs())
def test_digraph_has_line_per_box_and_arrow_with_escaped_labels(
    graph: StreamGraph,
) -> None:
    diagrams = diagrams_of(graph)
    first, _, *lines, last = to_dot(diagrams, graph.name).splitlines()
    assert re.fullmatch(rf"digraph {LABEL} {{", first)
    assert last == "}"
    nodes = [line for line in lines if re.fullmatch(rf"    g\dn\d+ \[label={LABEL}\];", line)]
    edges = [
        line
        for line in lines
        if re.fullmatch(rf"    g\dn\d+ -> g\dn\d+ \[label={LABEL}(, style=bold)?\];", line)
    ]
    assert len(nodes) == sum(len(diagram.boxes) for diagram in diagrams)
    assert len(edges) == sum(len(diagram.arrows) for diagram in diagrams)
    assert len(lines) == len(nodes) + len(edges) + 3 * len(diagrams)


@given(stream_graphs())
def test_diagrams_are_complete(graph: StreamGraph) -> None:
    job = create_job_graph(graph)
    stream, vertices, execution = diagrams_of(graph)
    assert [len(stream.boxes), len(stream.arrows)] == [len(graph.nodes), len(graph.edges)]
    assert [len(vertices.boxes), len(vertices.arrows)] == [len(job.vertices), len(job.edges)]
    assert sum(arrow.chained for arrow in stream.arrows) == len(graph.edges) - len(job.edges)
    assert sum(len(box.rows) for box in execution.boxes) == sum(v.parallelism for v in job.vertices)
    for diagram in (stream, vertices, execution):
        assert all(arrow.source < arrow.target for arrow in diagram.arrows), "boxes are in topological order"


def test_names_are_escaped() -> None:
    diagrams = diagrams_of(line(node(1, OperatorKind.FILES, name='<script>alert("&")</script>')))
    assert "#lt;script#gt;alert(#quot;#amp;#quot;)#lt;/script#gt;" in to_mermaid(diagrams)
    assert '<script>alert(\\"&\\")</script>' in to_dot(diagrams, "job")


def test_control_characters_are_escaped() -> None:
    graph = line(node(1, OperatorKind.FILES, name="a\x1b[31mb\nc"))
    assert any(r"a\x1b[31mb\nc" in text for text in in_terminal(diagrams_of(graph), 80))


def test_terminal_output_has_partitioning_and_reasons_against_chaining() -> None:
    graph = line(
        node(1, OperatorKind.FILES, name="Source"),
        node(2, name="Map", parallelism=2, slot_sharing_group="other"),
        partitioner=Partitioner.REBALANCE,
    )
    assert "\n".join(in_terminal([stream_diagram(graph)], 80)) == WANTED


WANTED = """\
StreamGraph
2 operators, 1 edge

Source                                                    x1
    1: files, program.py:1
    -> Map: REBALANCE
       not chained: they are in different slot sharing groups; records are
       partitioned between them; their parallelism differs

Map                                                       x2
    2: map, program.py:2
    slot sharing group other"""


def test_stages_and_blocking_exchanges_are_printed() -> None:
    options = {"execution.runtime-mode": "BATCH", "execution.bounded": "true"}
    names = ("source", "map", "sink")
    graph = job_graph(
        *(vertex(name, parallelism=4) for name in names),
        edge("source", "map"),
        edge("map", "sink"),
        configuration=options,
    )
    diagram = execution_diagram(ExecutionGraph.attach("job", graph))
    assert diagram.summary == "12 subtasks in 4 slots: 3 stages; in the largest 4 of default"
    assert [box.facts[1] for box in diagram.boxes] == ["stage 1", "stage 2", "stage 3"]
    assert all(arrow.notes[0].startswith("blocking") for arrow in diagram.arrows)
    plan = plan_of("job", "job", graph_before_start(graph))
    assert plan.type == "BATCH"
    assert {each.exchange for node in plan.nodes for each in node.inputs or ()} == {"blocking"}


def test_chain_is_printed_as_tree() -> None:
    graph = line(node(1, OperatorKind.FILES, name="Source"), node(2, name="Map"), node(3, name="Filter"))
    _, job, _ = diagrams_of(graph)
    assert list(job.boxes[0].rows) == ["Source", "└─ Map", "   └─ Filter"]


def test_first_and_last_of_many_subtasks_are_listed() -> None:
    graph = line(node(1, OperatorKind.GENERATOR, parallelism=100))
    *_, execution = diagrams_of(graph)
    assert list(execution.boxes[0].rows) == [
        "1/100 in slot default 0",
        "2/100 in slot default 1",
        "3/100 in slot default 2",
        "4/100 in slot default 3",
        "...",
        "100/100 in slot default 99",
    ]


@given(st.text(max_size=200), st.integers(8, 80))
def test_wrapped_text_is_complete_and_fits(text: str, width: int) -> None:
    lines = wrap_text(text, width)
    assert lines
    assert all(cell_len(line) <= width for line in lines)


@given(st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), max_size=30), st.integers(12, 80))
def test_words_are_not_split_if_possible(words: list[str], width: int) -> None:
    assert " ".join(wrap_text(" ".join(words), width)).split() == words


def test_long_program_is_printed() -> None:
    nodes = [node(1, OperatorKind.GENERATOR), *(node(i, parallelism=1 + i % 3) for i in range(2, 500))]
    diagrams = diagrams_of(line(*nodes, partitioner=Partitioner.REBALANCE))
    assert to_dot(diagrams, "long").count(" -> ") > 500
    assert in_terminal(diagrams, 80)
