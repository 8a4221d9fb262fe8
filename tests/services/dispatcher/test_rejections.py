"""What a leader said of a submission is what became of it, under whatever release and Python the log is read."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import operator, vertex
from msgspec.structs import replace

from tailrace.infra.json_depth import MOST, is_too_deep, is_value_too_deep
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas import client, dispatcher
from tailrace.schemas.event import Event, Record
from tailrace.schemas.types import EntryPoint, JobGraph, PythonFile
from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher import jobs
from tailrace.services.dispatcher.state import DispatcherState, Phase
from tailrace.services.log import Codec

from ..simulated_cluster.cluster import Cluster, graph, replay_to_replica

PROGRAM = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())


def dispatcher_of(replica: Replica) -> DispatcherState:
    state = replica.states["dispatcher"]
    assert isinstance(state, DispatcherState)
    return state


def leader_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "validate", lambda _: ["no longer possible"])
    monkeypatch.setattr(jobs, "_find_program_error", lambda _: "no longer possible")


def conversation(
    *, program: bool, cancelled: bool, monkeypatch: pytest.MonkeyPatch | None = None
) -> list[Record]:
    """The log of a cluster to which one job was submitted; with a monkeypatch: its leader refuses it."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te", 1)
    cluster.settle()
    if monkeypatch is not None:
        leader_refuses(monkeypatch)
    body = dispatcher.SubmitJob(
        job_id="j", job_graph=None if program else graph(), entry_point=PROGRAM if program else None
    )
    cluster.say("client/test", "dispatcher", body)
    if cancelled:
        cluster.say("client/test", "dispatcher", dispatcher.CancelJob(job_id="j"))
    cluster.settle()
    if monkeypatch is not None:
        monkeypatch.undo()
    return cluster.log


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("program", [False, True])
def test_a_job_that_was_accepted_runs_where_it_would_be_refused_now(
    program: bool, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = conversation(program=program, cancelled=cancelled)
    expected = replay_to_replica(records)
    leader_refuses(monkeypatch)
    found = replay_to_replica(records)
    assert dispatcher_of(found) == dispatcher_of(expected)
    assert found.states["job_master/j"] == expected.states["job_master/j"]


@pytest.mark.parametrize("program", [False, True])
def test_a_job_that_was_rejected_is_none_where_it_would_be_accepted_now(
    program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = conversation(program=program, cancelled=False, monkeypatch=monkeypatch)
    assert [each.body for each in records if isinstance(each.body, client.JobRejected)]
    state = dispatcher_of(replay_to_replica(records))
    assert (dict(state.jobs), dict(state.owing), len(state.building), dict(state.refusals)) == ({}, {}, 0, {})


def test_a_rejection_of_a_second_job_of_an_id_leaves_the_first_alone() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te", 1)
    cluster.settle()
    for _ in range(2):
        cluster.submit("j")
    cluster.settle()
    assert len(cluster.said("JobRejected")) == 1
    assert dispatcher_of(cluster.replica).jobs["j"].phase is Phase.RUNNING


FOLD = """
import pathlib, pickle, sys
if sys.argv[2] == "other names":
    sys.stdlib_module_names = frozenset({"sys"})
from tailrace.schemas.event import Record
from tailrace.services.log import Codec
from tailrace.services.snapshots.state_hash import StateHasher
from tailrace.services.snapshots.builder import all_roles

codec, replica = Codec("c.log"), all_roles()
records = [codec.decode(each) for each in pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())]

def fold(depth):
    if depth:
        return fold(depth - 1)
    for offset, event in enumerate(records):
        replica.apply(Record(offset, event.header, event.body))

fold(600 if sys.argv[2] == "shallow stack" else 0)
print(sorted(StateHasher(replica).hashes().items()))
"""


def nested(depth: int) -> JobGraph:
    """A graph with a record type that is nested so deep."""
    of = '{"kind":"list","of":' * depth + '"str"' + "}" * depth
    head = replace(operator("s", OperatorKind.GENERATOR), parameters=f'{{"output_type":{of}}}')
    return JobGraph(
        name="deep",
        vertices=(vertex("v", head, operator("p", OperatorKind.PRINT, upstream="s")),),
        edges=(),
        configuration={},
        python_files=(),
    )


def test_a_verdict_does_not_depend_on_the_stack_or_on_the_names_of_modules(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.start_master()
    for depth in (1, MOST - 1, MOST, 100, 400, 900, 1000):
        cluster.submit(f"deep{depth}", nested(depth))
    for name in ("pipes", "sys", "tomllib", "shop"):
        file = PythonFile(path=f"{name}.py", content=b"x = 1")
        body = dispatcher.SubmitJob(
            job_id=name, job_graph=None, entry_point=replace(PROGRAM, python_files=(file,))
        )
        cluster.say("client/test", "dispatcher", body)
    codec = Codec("c.log")
    path = tmp_path / "log"
    path.write_bytes(pickle.dumps([codec.encode(Event(each.header, each.body)) for each in cluster.log]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = {
        subprocess.run(
            [sys.executable, "-c", FOLD, str(path), how],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for how in ("plain", "shallow stack", "other names")
    }
    assert len(found) == 1
    state = dispatcher_of(cluster.replica)
    assert sorted(state.jobs) == ["deep1", f"deep{MOST - 1}", "shop"]


@pytest.mark.parametrize("depth", [0, 1, MOST, MOST + 1, 100_000])
def test_how_deep_a_text_is_nested(depth: int) -> None:
    assert is_too_deep("[" * depth + "]" * depth) is (depth > MOST)
    assert is_too_deep('"' + "[" * depth) is False
    assert is_too_deep('"\\"[" ' + "[]" * depth) is False
    if depth <= 2 * MOST:
        value: object = 1
        for number in range(depth):
            value = {"of": value} if number % 2 else [value]
        assert is_value_too_deep(value) is (depth > MOST)


def test_a_graph_of_the_greatest_depth_is_possible() -> None:
    assert validate(nested(MOST - 1)) == []
    assert validate(nested(MOST)) == [
        f"vertex 'v': operator 's': its parameters are nested more than {MOST} deep"
    ]
