"""The recorded verdict on a submission is final, whichever release and Python version reads the log."""

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
from tailrace.services.dispatcher import submission_validation
from tailrace.services.dispatcher.state import DispatcherState, Phase
from tailrace.services.log import Codec

from ..simulated_cluster.cluster import Cluster, graph, replay_to_replica, start_cluster

PROGRAM = EntryPoint(target="program:main", arguments=(), configuration={}, python_files=())


def dispatcher_of(replica: Replica) -> DispatcherState:
    state = replica.states["dispatcher"]
    assert isinstance(state, DispatcherState)
    return state


def leader_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission_validation, "validate", lambda _: ["no longer possible"])
    monkeypatch.setattr(submission_validation, "_find_program_error", lambda *_: "no longer possible")


def conversation(
    *, program: bool, cancelled: bool, monkeypatch: pytest.MonkeyPatch | None = None
) -> list[Record]:
    """Returns the log of a cluster with one submitted job; with a monkeypatch, its leader rejects the job."""
    cluster = start_cluster("te")
    if monkeypatch is not None:
        leader_refuses(monkeypatch)
    body = dispatcher.SubmitJob(
        job_id="j", job_graph=None if program else graph(), entry_point=PROGRAM if program else None
    )
    cluster.send("client/test", "dispatcher", body)
    if cancelled:
        cluster.send("client/test", "dispatcher", dispatcher.CancelJob(job_id="j"))
    cluster.settle()
    if monkeypatch is not None:
        monkeypatch.undo()
    return cluster.log


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("program", [False, True])
def test_accepted_job_runs_although_present_rules_reject_it(
    program: bool, cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = conversation(program=program, cancelled=cancelled)
    expected = replay_to_replica(records)
    leader_refuses(monkeypatch)
    replica = replay_to_replica(records)
    assert replica.states == expected.states
    assert ("job_master/j" in replica.states) is not (program and cancelled)


@pytest.mark.parametrize("program", [False, True])
def test_rejected_job_does_not_exist_although_present_rules_accept_it(
    program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = conversation(program=program, cancelled=False, monkeypatch=monkeypatch)
    assert [record.body for record in records if isinstance(record.body, client.JobRejected)]
    state = dispatcher_of(replay_to_replica(records))
    assert (dict(state.jobs), dict(state.owing), len(state.building), dict(state.requests)) == ({}, {}, 0, {})


def test_rejection_of_duplicate_job_id_leaves_first_job_unchanged() -> None:
    cluster = start_cluster("te")
    for _ in range(2):
        cluster.submit("j")
    cluster.settle()
    assert len(cluster.events_of("JobRejected")) == 1
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
    role, state = replica.role("dispatcher"), replica.states["dispatcher"]
    print(role.decide(state, 0), [instruction.key for instruction in role.instructions(state)])

fold(600 if sys.argv[2] == "shallow stack" else 0)
print(sorted(StateHasher(replica).hashes().items()))
"""


def nested(depth: int) -> JobGraph:
    """Returns a graph with a record type of this nesting depth."""
    of = '{"kind":"list","of":' * depth + '"str"' + "}" * depth
    head = replace(operator("s", OperatorKind.GENERATOR), parameters=f'{{"output_type":{of}}}')
    return JobGraph(
        name="deep",
        vertices=(vertex("v", head, operator("p", OperatorKind.PRINT, upstream="s")),),
        edges=(),
        configuration={},
        python_files=(),
    )


def test_verdict_is_independent_of_stack_depth_and_module_names(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.start_master()
    for depth in (1, MOST - 1, MOST, 100, 400, 900, 1000):
        cluster.submit(f"deep{depth}", nested(depth))
    for name in ("pipes", "sys", "tomllib", "shop"):
        file = PythonFile(path=f"{name}.py", content=b"x = 1")
        body = dispatcher.SubmitJob(
            job_id=name, job_graph=None, entry_point=replace(PROGRAM, python_files=(file,))
        )
        cluster.send("client/test", "dispatcher", body)
    undecided = fold_everywhere(cluster, tmp_path)
    assert "JobAccepted" in undecided
    cluster.settle()
    state = dispatcher_of(cluster.replica)
    assert sorted(state.jobs) == ["deep1", f"deep{MOST - 1}", "shop"]
    decided = fold_everywhere(cluster, tmp_path)
    assert decided.startswith("[] [")


def fold_everywhere(cluster: Cluster, folder: Path) -> str:
    """Returns what another process owes after the log, and the hashes of its states: whatever its stack and modules."""
    codec = Codec("c.log")
    path = folder / "log"
    path.write_bytes(
        pickle.dumps([codec.encode(Event(record.header, record.body)) for record in cluster.log])
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    (result,) = {
        subprocess.run(
            [sys.executable, "-c", FOLD, str(path), how],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for how in ("plain", "shallow stack", "other names")
    }
    return result


@pytest.mark.parametrize("depth", [0, 1, MOST, MOST + 1, 100_000])
def test_excessive_nesting_is_detected_in_text_and_value(depth: int) -> None:
    assert is_too_deep("[" * depth + "]" * depth) is (depth > MOST)
    assert is_too_deep('"' + "[" * depth) is False
    assert is_too_deep('"\\"[" ' + "[]" * depth) is False
    if depth <= 2 * MOST:
        value: object = 1
        for number in range(depth):
            value = {"of": value} if number % 2 else [value]
        assert is_value_too_deep(value) is (depth > MOST)


def test_graph_of_maximum_depth_is_accepted() -> None:
    assert validate(nested(MOST - 1)) == []
    assert validate(nested(MOST)) == [
        f"vertex 'v': operator 's': its parameters are nested more than {MOST} deep"
    ]
