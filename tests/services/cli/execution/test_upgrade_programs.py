"""The programs of an upgrade: which are the same, what they are checked for, and the old one under another id."""

from __future__ import annotations

import json
from pathlib import Path

from checkpoint_files import metadata_of, pipeline
from graphs import job_graph, operator, vertex
from msgspec.structs import replace

from tailrace.pipelines.checkpoint.compatibility import incompatibilities
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.program import BuildRequest
from tailrace.schemas.types import InFlightState, JobGraph, StateFile, SubtaskState
from tailrace.services.blobs.job_blobs import offload
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.cli.execution.upgrade.checks import misfits, topics_of
from tailrace.services.cli.execution.upgrade.programs import build_new_program, is_same_program

PROGRAM = """
from tailrace import StreamExecutionEnvironment

WORDS = {"a", "b", "c", "d", "e"}


class Word:
    def __init__(self, text: str) -> None:
        self.text = text


def is_known(text: str) -> bool:
    return Word(text).text in WORDS or text in {"f", "g", "h", "i"}


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["a"]).key_by(lambda text: text, str).filter(is_known).print()
env.execute("words")
"""


def with_first_vertex(graph: JobGraph, **changes: object) -> JobGraph:
    first, *others = graph.vertices
    return replace(graph, vertices=(replace(first, **changes), *others))


def test_two_builds_of_program_are_same_and_changed_one_is_not(tmp_path: Path) -> None:
    program = tmp_path / "words.py"
    program.write_text(PROGRAM)
    one, again = (build_new_program(BuildRequest(file=str(program))) for _ in range(2))
    assert is_same_program(one, again)
    stored = offload(one, 1, lambda content: BlobKey(compute_digest(content), "job"))
    assert stored != one
    assert is_same_program(one, stored)
    assert is_same_program(one, with_first_vertex(one, max_parallelism=7))
    assert not is_same_program(
        one, with_first_vertex(one, max_parallelism=7, is_max_parallelism_configured=True)
    )
    assert not is_same_program(one, with_first_vertex(one, parallelism=3))
    (changed,) = (replace(each, code=each.code + b"x") for each in one.vertices[0].operators[-1:])
    operators = (*one.vertices[0].operators[:-1], changed)
    assert not is_same_program(one, with_first_vertex(one, operators=operators))


def test_records_in_flight_of_checkpoint_are_no_obstacle() -> None:
    file = StateFile(path="shared/f", length=1, crc=0)
    channel = InFlightState(operator_id="reduce", input=0, partition=0, files=(file,))
    metadata = metadata_of(pipeline(), {("reduce", 0): SubtaskState(in_flight=(channel,))})
    without_edge = job_graph(*pipeline().vertices)
    assert incompatibilities(metadata, without_edge)
    assert misfits(metadata, without_edge, allow_non_restored_state=False) == []


def test_topics_are_those_of_sources_and_sinks_in_own_kafka() -> None:
    def graph(kind: OperatorKind, **parameters: object) -> JobGraph:
        return job_graph(vertex("v", replace(operator("o", kind), parameters=json.dumps(parameters))))

    source, sink = OperatorKind.KAFKA_SOURCE, OperatorKind.KAFKA_SINK
    elsewhere = {"bootstrap_servers": "other:9092"}
    assert list(topics_of(graph(source, topics=["a", "b"]))) == [("a", "reads", "o"), ("b", "reads", "o")]
    assert list(topics_of(graph(sink, topic="a"))) == [("a", "writes", "o")]
    for other in (
        graph(source, topics=[], topic_pattern="a.*"),
        graph(source, topics=["a"], connection=elsewhere),
        graph(sink, topic=None),
        graph(OperatorKind.PRINT),
    ):
        assert list(topics_of(other)) == []
