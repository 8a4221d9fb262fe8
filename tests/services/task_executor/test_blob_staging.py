"""Tasks of a job with blobs are deployed when the blobs are here, fail if they are unavailable, and are never
deployed after a cancellation."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from graphs import edge, job_graph, operator, source, vertex
from immutables import Map
from msgspec.structs import replace
from polling import wait_until
from services.task_executor.test_shell import ADDRESS, RuntimeThatNotes, task

from tailrace.schemas import job_master
from tailrace.schemas.types import ExecutionState, JobGraph, PythonFile
from tailrace.services.blobs import job_graph_blob
from tailrace.services.blobs.cache import BlobCache
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.library_cache import BlobLibraryCacheManager
from tailrace.services.blobs.local_blob_files import Incoming
from tailrace.services.blobs.store import VoidBlobStore
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.task_executor.instructions import RunTasks, StopTask
from tailrace.services.task_executor.resources import Task
from tailrace.services.task_executor.shell import TaskExecutorShell
from tailrace.services.task_executor.state import TaskExecutorState


class Store(VoidBlobStore):
    """A store with some blobs; it blocks requests while it is shut."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = {compute_digest(content): content for content in contents}
        self.open = threading.Event()
        self.open.set()

    def get(self, key: BlobKey, into: Incoming) -> bool:
        assert self.open.wait(60)
        content = self.contents.get(key.digest)
        if content is not None:
            into.write(content)
        return content is not None


def key_of(content: bytes, job_id: str = "job") -> str:
    return str(BlobKey(compute_digest(content), job_id))


def graph_with(*, file: bytes | None = None, code: bytes | None = None, job_id: str = "job") -> JobGraph:
    own = operator("o") if code is None else operator("o", code=b"", code_blob=key_of(code))
    shipped = () if file is None else (PythonFile(path="f", content=b"", blob=key_of(file, job_id)),)
    return job_graph(source(), vertex("v", own), edge("source", "v"), python_files=shipped)


def run(graph: JobGraph | str, *tasks: Task) -> RunTasks:
    known = {task.execution_attempt_id: task for task in tasks}
    return RunTasks("deployment", "job", graph, "v", frozenset(known), Map(known))


class Around:
    """A shell with a recording runtime, and a library cache over a store."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.sent: list[OutgoingEvent] = []
        self.manager = BlobLibraryCacheManager(BlobCache(directory, lambda: None, store, retries=0), 60.0)
        self.shell = TaskExecutorShell(
            lambda _, owed: self.sent.append(owed), ADDRESS, "cluster", blobs=self.manager
        )
        self.runtime = RuntimeThatNotes()
        self.shell.register(self.runtime, Configuration(), resource_id="te", process_address="here")
        self.sent.clear()

    def states(self) -> list[tuple[str, ExecutionState, str | None]]:
        bodies = [event.body for event in self.sent]
        return [
            (body.execution_attempt_id, body.execution_state, body.failure)
            for body in bodies
            if isinstance(body, job_master.UpdateTaskExecutionState)
        ]


def test_job_without_blobs_is_deployed_at_once(tmp_path: Path) -> None:
    around = Around(tmp_path, Store())
    around.shell.perform(ADDRESS, [run(graph_with(), task())], None)
    assert len(around.runtime.deployed) == 1


def test_task_is_deployed_with_its_files_and_functions(tmp_path: Path) -> None:
    around = Around(tmp_path, Store(b"the file", b"the code"))
    around.shell.perform(
        ADDRESS, [run(graph_with(file=b"the file", code=b"the code"), task("a"), task("b"))], None
    )
    wait_until(lambda: bool(around.runtime.deployed), "it is deployed")
    (deployed,) = around.runtime.deployed
    assert deployed.job_graph.vertices[1].operators[0].code == b"the code"
    assert Path(deployed.blobs[key_of(b"the file")]).read_bytes() == b"the file"
    assert len(deployed.subtasks) == 2
    assert around.manager.references("job") == 2
    for number, attempt in enumerate("ab", 1):
        around.shell.reported(attempt, ExecutionState.FINISHED, None)
        assert around.manager.references("job") == 2 - number


def test_task_counts_as_deployed_while_its_blobs_are_fetched(tmp_path: Path) -> None:
    store = Store(b"the file")
    store.open.clear()
    around = Around(tmp_path, store)
    around.shell.perform(ADDRESS, [run(graph_with(file=b"the file"), task("a"))], None)
    state = TaskExecutorState(resource_id="te")
    assert [snapshot.execution_attempt_id for snapshot in around.shell.running(state)] == ["a"]
    assert not around.runtime.deployed
    store.open.set()
    wait_until(lambda: bool(around.runtime.deployed), "it is deployed")


def test_task_cancelled_during_fetch_is_not_deployed(tmp_path: Path) -> None:
    store = Store(b"the file")
    store.open.clear()
    around = Around(tmp_path, store)
    tasks = task("a"), task("b")
    around.shell.perform(ADDRESS, [run(graph_with(file=b"the file"), *tasks)], None)
    around.shell.perform(ADDRESS, [run(graph_with(file=b"the file"), *tasks), StopTask("a", "job", 9)], None)
    assert around.runtime.cancelled == ["a"]
    store.open.set()
    wait_until(lambda: bool(around.runtime.deployed), "the other is deployed")
    (deployed,) = around.runtime.deployed
    assert [subtask.execution_attempt_id for subtask in deployed.subtasks] == ["b"]
    wait_until(lambda: around.manager.references("job") == 1, "the cancelled one is not counted")


def test_unavailable_blob_fails_tasks_with_reason(tmp_path: Path) -> None:
    around = Around(tmp_path, Store())
    around.shell.perform(ADDRESS, [run(graph_with(file=b"the file"), task("a"), task("b"))], None)
    wait_until(lambda: len(around.states()) == 2, "both have failed")
    for attempt, (report, state, reason) in zip("ab", sorted(around.states(), key=str), strict=True):
        assert (report, state) == (attempt, ExecutionState.FAILED)
        assert "can't be fetched" in (reason or "")
    assert not around.runtime.deployed
    assert around.manager.references("job") == 0


def test_job_cannot_use_blobs_of_other_job(tmp_path: Path) -> None:
    around = Around(tmp_path, Store(b"the file"))
    around.shell.perform(ADDRESS, [run(graph_with(file=b"the file", job_id="other"), task("a"))], None)
    wait_until(lambda: len(around.states()) == 1, "it has failed")
    assert "is not a blob of job job" in (around.states()[0][2] or "")


def test_blob_with_wrong_content_is_never_deployed(tmp_path: Path) -> None:
    store = Store()
    store.contents[compute_digest(b"the code")] = b"other code"
    around = Around(tmp_path, store)
    around.shell.perform(ADDRESS, [run(replace(graph_with(code=b"the code")), task("a"))], None)
    wait_until(lambda: len(around.states()) == 1, "it has failed")
    assert not around.runtime.deployed


@pytest.mark.parametrize("code", [None, b"the code"])
def test_graph_itself_may_be_a_blob(tmp_path: Path, code: bytes | None) -> None:
    graph = graph_with(code=code)
    content = job_graph_blob.encode("job", graph)
    around = Around(tmp_path, Store(content, b"the code"))
    around.shell.perform(ADDRESS, [run(key_of(content), task("a"), task("b"))], None)
    wait_until(lambda: bool(around.runtime.deployed), "it is deployed")
    (deployed,) = around.runtime.deployed
    assert deployed.job_graph.vertices[0] == graph.vertices[0]
    assert deployed.job_graph.vertices[1].operators[0].code == (code or graph.vertices[1].operators[0].code)
    assert len(deployed.subtasks) == around.manager.references("job") == 2
    for attempt in "ab":
        around.shell.reported(attempt, ExecutionState.FINISHED, None)
    assert around.manager.references("job") == 0
