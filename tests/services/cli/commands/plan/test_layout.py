"""Layouts: nothing overlaps, everything flows to the right."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.cli.commands.plan.layout import Layout, Size, compute_layout

GAP = 20.0
sizes = st.builds(Size, st.floats(10, 200), st.floats(10, 200))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[tuple[int, int]]]:
    """Nodes, and edges from lower to higher ones, several between the same two included."""
    nodes = draw(st.lists(sizes, min_size=1, max_size=12))
    pairs = list(itertools.combinations(range(len(nodes)), 2))
    return nodes, draw(st.lists(st.sampled_from(pairs), max_size=20)) if pairs else []


def laid_out(graph: tuple[list[Size], list[tuple[int, int]]]) -> Layout:
    return compute_layout(*graph, column_gap=GAP, row_gap=GAP)


@given(graphs())
def test_no_two_nodes_overlap_and_all_lie_inside(graph: tuple[list[Size], list[tuple[int, int]]]) -> None:
    nodes, _ = graph
    layout = laid_out(graph)
    boxes = [(p.x, p.y, p.x + p.width, p.y + s.height) for p, s in zip(layout.places, nodes, strict=True)]
    for a, b in itertools.combinations(boxes, 2):
        beside = a[2] + GAP <= b[0] + 1e-6 or b[2] + GAP <= a[0] + 1e-6
        below = a[3] + GAP <= b[1] + 1e-6 or b[3] + GAP <= a[1] + 1e-6
        assert beside or below
    for box in boxes:
        assert min(box) >= -1e-6
        assert box[2] <= layout.width + 1e-6
        assert box[3] <= layout.height + 1e-6
    assert all(p.width >= s.width for p, s in zip(layout.places, nodes, strict=True))


@given(graphs())
def test_edges_flow_to_the_right_and_cross_no_node(graph: tuple[list[Size], list[tuple[int, int]]]) -> None:
    nodes, edges = graph
    layout = laid_out(graph)
    for (source, target), bends in zip(edges, layout.bends, strict=True):
        before, behind = layout.places[source], layout.places[target]
        stretches = [(before.x, before.x + before.width), *((x, to) for _, x, to in bends)]
        stretches.append((behind.x, behind.x + behind.width))
        for (_, left), (right, _) in itertools.pairwise(stretches):
            assert left + GAP <= right + 1e-6
        for y, first, last in bends:
            for place, size in zip(layout.places, nodes, strict=True):
                if place.x < last and first < place.x + place.width:
                    assert y <= place.y or y >= place.y + size.height


@given(graphs())
def test_a_layout_is_decided_by_the_graph(graph: tuple[list[Size], list[tuple[int, int]]]) -> None:
    assert laid_out(graph) == laid_out(graph)


def test_a_line_is_level() -> None:
    nodes = [Size(50, 20), Size(80, 60), Size(50, 40)]
    layout = laid_out((nodes, [(0, 1), (1, 2)]))
    assert [p.y + s.height / 2 for p, s in zip(layout.places, nodes, strict=True)] == [30.0, 30.0, 30.0]


def test_edges_are_untangled() -> None:
    """Two lines beside each other, though the second layer is given in the other order."""
    layout = laid_out(([Size(10, 10)] * 4, [(0, 3), (1, 2)]))
    assert layout.places[0].y == layout.places[3].y
    assert layout.places[1].y == layout.places[2].y


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        laid_out(([Size(10, 10)] * 2, [(0, 1), (1, 0)]))


def test_many_nodes_are_laid_out() -> None:
    nodes = [Size(100, 40)] * 2_000
    edges = [(i, i + 1) for i in range(1_999)] + [(i, i + 3) for i in range(0, 1_990, 7)]
    assert len(laid_out((nodes, edges)).places) == 2_000
