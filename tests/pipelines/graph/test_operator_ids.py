"""Operator ids are the same for each build of an unchanged program, in every process and on every machine."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import line, node, stream_graphs
from hypothesis import given

from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.schemas.types import JobGraph

SOURCE = OperatorKind.SOCKET_TEXT_STREAM
HERE = Path(__file__).parent
KNOWN = json.loads((HERE / "known_ids.json").read_text("utf-8"))


def ids_of(graph: JobGraph) -> dict[str, str]:
    """Returns the id of each operator by its name."""
    return {of.name: of.operator_id for vertex in graph.vertices for of in vertex.operators}


@pytest.mark.parametrize("hash_seed", ["0", "random"])
def test_ids_equal_those_of_other_machine_for_any_hash_seed(hash_seed: str) -> None:
    """State is found by them: if one of these changes, no savepoint without uids can be read."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(HERE.parents[1])}
    ran = subprocess.run(
        [sys.executable, HERE / "known_programs.py"], env=environment, capture_output=True, check=True
    )
    assert json.loads(ran.stdout) == KNOWN


@given(stream_graphs())
def test_ids_do_not_depend_on_node_numbers(graph: StreamGraph) -> None:
    """A program that creates a step and drops it again numbers the rest differently."""
    renumbered = StreamGraph(
        graph.name,
        {n + 100: dataclasses.replace(of, node_id=n + 100) for n, of in graph.nodes.items()},
        [
            dataclasses.replace(edge, source_id=edge.source_id + 100, target_id=edge.target_id + 100)
            for edge in graph.edges
        ],
        graph.chaining,
    )
    assert create_job_graph(graph) == create_job_graph(renumbered)


@given(stream_graphs())
def test_ids_do_not_depend_on_names_functions_locations_or_settings(graph: StreamGraph) -> None:
    """Users change these in a program that they restore from a savepoint."""
    changed = StreamGraph(
        "other",
        {
            n: dataclasses.replace(of, code=of.code and b"other", location=None, max_parallelism=256)
            for n, of in graph.nodes.items()
        },
        graph.edges,
        graph.chaining,
        {"execution.commit-interval-ms": "10"},
    )
    before, after = create_job_graph(graph), create_job_graph(changed)
    assert ids_of(before) == ids_of(after)
    assert [edge.data_set_id for edge in before.edges] == [edge.data_set_id for edge in after.edges]


def test_uid_fixes_id_at_any_place() -> None:
    short = create_job_graph(line(node(1, SOURCE), node(2, uid="counts", name="counts")))
    long = create_job_graph(line(node(1, SOURCE), node(2), node(3), node(4, uid="counts", name="counts")))
    assert ids_of(short)["counts"] == ids_of(long)["counts"]


def test_duplicate_uid_is_rejected_with_both_locations() -> None:
    twice = line(node(1, SOURCE), node(2, uid="counts", name="Map"), node(3, uid="counts", name="Filter"))
    with pytest.raises(ProgramError) as caught:
        create_job_graph(twice)
    assert str(caught.value) == (
        "Filter at program.py:3: the uid 'counts' is taken by Map at program.py:2: each operator needs its own"
    )
