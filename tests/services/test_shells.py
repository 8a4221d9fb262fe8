"""Shells say what came of every instruction, also where it went wrong in a way that nobody thought of."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import metadata_of, pipeline
from confluent_kafka import KafkaError, KafkaException
from graphs import edge, job_graph, source, vertex
from msgspec.structs import replace
from polling import TIMEOUT_S

from tailrace.pipelines.checkpoint.metadata import write_metadata
from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import EntryPoint, JobGraph, PythonFile, SubtaskState
from tailrace.services.blobs.keys import BlobKey
from tailrace.services.blobs.local_blob_files import BlobFiles
from tailrace.services.blobs.store import VoidBlobStore
from tailrace.services.blobs.tiered_store import TieredBlobStore
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher import shell as dispatcher_shell
from tailrace.services.dispatcher.inline_limit import InlineLimit
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.shell import DispatcherShell
from tailrace.services.job_master import shell as job_master_shell
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.job_master.shell import JobMasterShell

GRAPH = job_graph(source(), vertex("map"), edge("source", "map"))


class Broker:
    """Answers with the failures that it was given, then well."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        return {topic.topic: self._answer() for topic in topics}

    def delete_topics(self, names: list[str], **_: Any) -> dict[str, Future[None]]:
        return {name: self._answer() for name in names}

    def _answer(self) -> Future[None]:
        future: Future[None] = Future()
        if self.failures:
            future.set_exception(self.failures.pop(0))
        else:
            future.set_result(None)
        return future


class Submissions:
    def start(self, admitted: object) -> None: ...

    def follow(self, admitted: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def said() -> queue.Queue[OutgoingEvent]:
    return queue.Queue()


@pytest.fixture
def broker() -> Broker:
    return Broker(RuntimeError("unheard of"), RuntimeError("again"))


@pytest.fixture
def channels(
    said: queue.Queue[OutgoingEvent], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobMasterShell]:
    monkeypatch.setattr(job_master_shell, "_FIRST_PAUSE_S", 0.01)
    shell = JobMasterShell(lambda _, owed: said.put(owed), broker, "c", 60_000_000)  # type: ignore[arg-type]
    yield shell
    shell.close()


def test_channels_that_can_not_be_created_fail_the_job(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent]
) -> None:
    channels.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3)], None)
    assert said.get(timeout=TIMEOUT_S).body == job_master.ChannelsFailed(job_id="j", reason="unheard of")


PASSING = KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_a_kafka_that_can_not_be_reached_for_a_moment_fails_no_job(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures = [PASSING] * 3
    channels.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3)], None)
    assert said.get(timeout=TIMEOUT_S).body == job_master.ChannelsCreated(job_id="j")


@pytest.mark.parametrize("how", ["not demanded", "retired", "closed"])
def test_channels_that_are_not_wanted_here_any_more_are_not_waited_for_and_the_job_does_not_fail(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker, how: str
) -> None:
    broker.failures = [PASSING] * 100_000
    channels.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3)], None)
    match how:
        case "not demanded":
            channels.perform("job_master/j", [], None)
        case "retired":
            channels.retire("job_master/j")
        case _:
            pass
    channels.close()
    assert said.empty()


def test_channels_are_deleted_in_the_end(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    channels.perform("job_master/j", [DeleteChannels("j", GRAPH, 3)], None)
    assert said.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    assert broker.failures == []


def test_a_shell_that_is_closed_leaves_its_deletions_to_its_successor(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures *= 1_000
    channels.perform("job_master/j", [DeleteChannels("j", GRAPH, 3)], None)
    channels.close()
    assert said.empty()


def test_what_has_been_done_is_forgotten_once_it_is_not_demanded_any_more(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures.clear()
    demand = DeleteChannels("j", GRAPH, 3)
    for demanded in ([demand], [demand], [], [demand]):
        channels.perform("job_master/j", demanded, None)
        channels.perform("job_master/other", [], None)
    for _ in range(2):
        assert said.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    channels.close()
    assert said.empty()


def test_a_job_that_is_led_elsewhere_is_left_alone_and_begun_afresh_when_it_is_back(
    channels: JobMasterShell, said: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures *= 1_000
    demand = DeleteChannels("j", GRAPH, 3)
    channels.perform("job_master/j", [demand], None)
    channels.retire("job_master/j")
    channels.retire("job_master/never_led")
    left = -1
    while left != len(broker.failures):
        left = len(broker.failures)
        threading.Event().wait(0.1)
    assert said.empty()
    broker.failures.clear()
    channels.perform("job_master/j", [demand], None)
    assert said.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    channels.close()
    assert said.empty()


def test_a_program_that_can_not_even_be_begun_is_answered(
    said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork_fails(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(dispatcher_shell, "build", fork_fails)
    shell = DispatcherShell(lambda _, owed: said.put(owed), Submissions())  # type: ignore[arg-type]
    try:
        shell.perform(
            "dispatcher", [BuildJobGraph("j", EntryPoint(target="a:b", arguments=()), None, 3)], None
        )
        body = said.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(body, dispatcher.JobGraphFailed)
    assert "a:b could not be run: BlockingIOError" in body.reason


def test_a_program_is_built_from_its_blobs_and_what_is_large_of_its_graph_becomes_one(
    said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    depot = TieredBlobStore(BlobFiles(tmp_path, durable=False), VoidBlobStore(), largest=1 << 20)
    key = str(depot.put(b"the program", "j"))
    files = (PythonFile(path="a.py", content=b"", blob=key),)
    seen: list[str] = []

    def build(*_: object, blobs: dict[str, str], **__: object) -> JobGraph:
        seen.append(Path(blobs[key]).read_text())
        return replace(GRAPH, python_files=(*files, PythonFile(path="model.bin", content=bytes(5000))))

    monkeypatch.setattr(dispatcher_shell, "build", build)
    shell = DispatcherShell(
        lambda _, owed: said.put(owed),
        Submissions(),  # type: ignore[arg-type]
        {},
        depot,
        inline=InlineLimit(depot, minsize=1000, most=1 << 20),
    )
    entry_point = EntryPoint(target="a:b", arguments=(), python_files=files)
    try:
        shell.perform("dispatcher", [BuildJobGraph("j", entry_point, None, 3)], None)
        built = said.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(built, dispatcher.JobGraphBuilt)
    assert seen == ["the program"]
    assert [each.content for each in built.job_graph.python_files] == [b"", b""]
    model = BlobKey.parse(built.job_graph.python_files[1].blob or "")
    assert depot.file(model).read_bytes() == bytes(5000)


@pytest.mark.parametrize(
    ("given", "programs", "clusters", "expected"),
    [
        ("saved", "gone", "gone", 128),
        (None, "saved", "gone", 128),
        (None, None, "saved", 128),
        ("gone", "saved", "saved", 256),
        (None, None, None, 256),
    ],
)
def test_a_built_graph_has_the_key_groups_of_what_the_job_begins_with(
    given: str | None,
    programs: str | None,
    clusters: str | None,
    expected: int,
    said: queue.Queue[OutgoingEvent],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The default is 128 key groups where it was saved, and 256 at the parallelism that it has now."""

    def configured(name: str | None) -> dict[str, str]:
        return {} if name is None else {"execution.state-recovery.path": str(tmp_path / name)}

    write_metadata(metadata_of(pipeline(), {("reduce", 0): SubtaskState()}, str(tmp_path / "saved")))
    graph = replace(pipeline(parallelism=100, max_parallelism=256), configuration=configured(programs))
    monkeypatch.setattr(dispatcher_shell, "build", lambda *_, **__: graph)
    shell = DispatcherShell(lambda _, owed: said.put(owed), Submissions())  # type: ignore[arg-type]
    entry_point = EntryPoint(target="a:b", arguments=())
    savepoint = None if given is None else str(tmp_path / given)
    try:
        demand = BuildJobGraph("j", entry_point, None, 3, savepoint, configured(clusters))
        shell.perform("dispatcher", [demand], None)
        built = said.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(built, dispatcher.JobGraphBuilt)
    assert built.job_graph.vertices[1].max_parallelism == expected


def test_a_program_whose_blobs_are_gone_is_answered(said: queue.Queue[OutgoingEvent], tmp_path: Path) -> None:
    depot = TieredBlobStore(BlobFiles(tmp_path, durable=False), VoidBlobStore(), largest=1 << 20)
    files = (PythonFile(path="a.py", content=b"", blob=f"permanent/j/{'a' * 64}"),)
    shell = DispatcherShell(lambda _, owed: said.put(owed), Submissions(), None, depot)  # type: ignore[arg-type]
    entry_point = EntryPoint(target="a:b", arguments=(), python_files=files)
    try:
        shell.perform("dispatcher", [BuildJobGraph("j", entry_point, None, 3)], None)
        failed = said.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(failed, dispatcher.JobGraphFailed)
    assert "is not here" in failed.reason


def test_a_program_is_built_once_for_as_long_as_that_is_demanded(
    said: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_shell, "build", lambda *_, **__: GRAPH)
    shell = DispatcherShell(lambda _, owed: said.put(owed), Submissions())  # type: ignore[arg-type]
    demand = BuildJobGraph("j", EntryPoint(target="a:b", arguments=()), None, 3)
    try:
        for demanded in ([demand], [demand], [], [demand]):
            shell.perform("dispatcher", demanded, None)
        for _ in range(2):
            assert isinstance(said.get(timeout=TIMEOUT_S).body, dispatcher.JobGraphBuilt)
    finally:
        shell.close()
    assert said.empty()
