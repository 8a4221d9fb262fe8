"""Shells report the result of every instruction, also after an unexpected error."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
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
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import EntryPoint, JobGraph, PythonFile, SubtaskState
from tailrace.services.blobs import job_graph_blob
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.local_blob_files import BlobFiles
from tailrace.services.blobs.store import VoidBlobStore
from tailrace.services.blobs.tiered_store import TieredBlobStore
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher import shell as dispatcher_shell
from tailrace.services.dispatcher.inline_limit import InlineLimit
from tailrace.services.dispatcher.job_store import DeleteJobTopics
from tailrace.services.dispatcher.role import BuildJobGraph
from tailrace.services.dispatcher.shell import DispatcherShell
from tailrace.services.job_master import shell as job_master_shell
from tailrace.services.job_master.instructions import CreateChannels, DeleteChannels
from tailrace.services.job_master.shell import JobMasterShell

GRAPH = job_graph(source(), vertex("map"), edge("source", "map"))


class Broker:
    """Raises the given errors first, then succeeds."""

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
def sent() -> queue.Queue[OutgoingEvent]:
    return queue.Queue()


@pytest.fixture
def broker() -> Broker:
    return Broker(RuntimeError("unheard of"), RuntimeError("again"))


@pytest.fixture
def channels(
    sent: queue.Queue[OutgoingEvent], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JobMasterShell]:
    monkeypatch.setattr(job_master_shell, "_FIRST_PAUSE_S", 0.01)
    shell = JobMasterShell(lambda _, owed: sent.put(owed), broker, "c", 60_000_000)  # type: ignore[arg-type]
    yield shell
    shell.close()


def test_failure_to_create_channels_fails_job(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent]
) -> None:
    channels.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3)], None)
    assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsFailed(job_id="j", reason="unheard of")


def test_graph_is_stored_before_channels_are_created(
    sent: queue.Queue[OutgoingEvent], tmp_path: Path
) -> None:
    depot = TieredBlobStore(BlobFiles(tmp_path, durable=False), VoidBlobStore(), largest=1 << 20)
    shell = JobMasterShell(
        lambda _, owed: sent.put(owed),
        Broker(),
        "c",
        60_000_000,
        blobs=depot,  # type: ignore[arg-type]
    )
    content = job_graph_blob.encode("j", GRAPH)
    key = BlobKey(compute_digest(content), "j")
    shell.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3, str(key))], None)
    assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsCreated(job_id="j")
    assert depot.file(key).read_bytes() == content
    shell.close()


PASSING = KafkaException(KafkaError(KafkaError._TRANSPORT))


def test_short_outage_of_kafka_fails_no_job(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures = [PASSING] * 3
    channels.perform("job_master/j", [CreateChannels("j", GRAPH, 0, 3)], None)
    assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsCreated(job_id="j")


@pytest.mark.parametrize("how", ["not demanded", "retired", "closed"])
def test_shell_stops_waiting_for_channels_that_are_no_longer_required(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker, how: str
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
    assert sent.empty()


def test_channels_are_deleted_at_end_of_job(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    channels.perform("job_master/j", [DeleteChannels("j", GRAPH, 3)], None)
    assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    assert broker.failures == []


def test_closed_shell_leaves_deletions_to_successor(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures *= 1_000
    channels.perform("job_master/j", [DeleteChannels("j", GRAPH, 3)], None)
    channels.close()
    assert sent.empty()


def test_shell_forgets_completed_instruction_that_is_no_longer_demanded(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures.clear()
    demand = DeleteChannels("j", GRAPH, 3)
    for demanded in ([demand], [demand], [], [demand]):
        channels.perform("job_master/j", demanded, None)
        channels.perform("job_master/other", [], None)
    for _ in range(2):
        assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    channels.close()
    assert sent.empty()


def test_shell_ignores_job_led_elsewhere_and_starts_from_scratch_when_it_leads_again(
    channels: JobMasterShell, sent: queue.Queue[OutgoingEvent], broker: Broker
) -> None:
    broker.failures *= 1_000
    demand = DeleteChannels("j", GRAPH, 3)
    channels.perform("job_master/j", [demand], None)
    channels.retire("job_master/j")
    channels.retire("job_master/never_led")
    rest = -1
    while rest != len(broker.failures):
        rest = len(broker.failures)
        threading.Event().wait(0.1)
    assert sent.empty()
    broker.failures.clear()
    channels.perform("job_master/j", [demand], None)
    assert sent.get(timeout=TIMEOUT_S).body == job_master.ChannelsDeleted(job_id="j")
    channels.close()
    assert sent.empty()


def test_program_that_cannot_be_started_is_answered(
    sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork_fails(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(dispatcher_shell, "build", fork_fails)
    shell = DispatcherShell(lambda _, owed: sent.put(owed), Submissions())  # type: ignore[arg-type]
    try:
        shell.perform(
            "dispatcher", [BuildJobGraph("j", EntryPoint(target="a:b", arguments=()), None, 3)], None
        )
        body = sent.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(body, dispatcher.JobGraphFailed)
    assert "a:b could not be run: BlockingIOError" in body.reason


def test_program_is_built_from_blobs_and_large_parts_of_graph_become_blob(
    sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
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
        lambda _, owed: sent.put(owed),
        Submissions(),  # type: ignore[arg-type]
        {},
        depot,
        inline=InlineLimit(depot, minsize=1000, most=1 << 20),
    )
    entry_point = EntryPoint(target="a:b", arguments=(), python_files=files)
    try:
        shell.perform("dispatcher", [BuildJobGraph("j", entry_point, None, 3)], None)
        built = sent.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(built, dispatcher.JobGraphBuilt)
    assert seen == ["the program"]
    assert [file.content for file in built.job_graph.python_files] == [b"", b""]
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
def test_built_graph_keeps_number_of_key_groups_of_savepoint(
    given: str | None,
    programs: str | None,
    clusters: str | None,
    expected: int,
    sent: queue.Queue[OutgoingEvent],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The default is 128 key groups where it was saved, and 256 with the parallelism that it has now."""

    def configured(name: str | None) -> dict[str, str]:
        return {} if name is None else {"execution.state-recovery.path": str(tmp_path / name)}

    write_metadata(metadata_of(pipeline(), {("reduce", 0): SubtaskState()}, str(tmp_path / "saved")))
    graph = replace(pipeline(parallelism=100, max_parallelism=256), configuration=configured(programs))
    monkeypatch.setattr(dispatcher_shell, "build", lambda *_, **__: graph)
    shell = DispatcherShell(lambda _, owed: sent.put(owed), Submissions())  # type: ignore[arg-type]
    entry_point = EntryPoint(target="a:b", arguments=())
    savepoint = None if given is None else str(tmp_path / given)
    try:
        demand = BuildJobGraph("j", entry_point, None, 3, savepoint, configured(clusters))
        shell.perform("dispatcher", [demand], None)
        built = sent.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(built, dispatcher.JobGraphBuilt)
    assert built.job_graph.vertices[1].max_parallelism == expected


def test_program_with_missing_blobs_is_answered(sent: queue.Queue[OutgoingEvent], tmp_path: Path) -> None:
    depot = TieredBlobStore(BlobFiles(tmp_path, durable=False), VoidBlobStore(), largest=1 << 20)
    files = (PythonFile(path="a.py", content=b"", blob=f"permanent/j/{'a' * 64}"),)
    shell = DispatcherShell(lambda _, owed: sent.put(owed), Submissions(), None, depot)  # type: ignore[arg-type]
    entry_point = EntryPoint(target="a:b", arguments=(), python_files=files)
    try:
        shell.perform("dispatcher", [BuildJobGraph("j", entry_point, None, 3)], None)
        failed = sent.get(timeout=TIMEOUT_S).body
    finally:
        shell.close()
    assert isinstance(failed, dispatcher.JobGraphFailed)
    assert "is not here" in failed.reason


class HangingServer:
    """A BuildServer whose program hangs until it is cancelled."""

    def __init__(self) -> None:
        self.is_cancelled = threading.Event()

    def cancel(self) -> None:
        self.is_cancelled.set()

    def close(self) -> None:
        self.is_cancelled.set()


def test_program_that_is_not_wanted_any_more_is_killed(
    sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: queue.Queue[str] = queue.Queue()

    def build(target: str, *_: object, server: HangingServer, **__: object) -> JobGraph:
        started.put(target)
        if target == "quick":
            return GRAPH
        assert server.is_cancelled.wait(TIMEOUT_S)
        server.is_cancelled.clear()
        raise ProgramError(f"{target} did not build its graph")

    monkeypatch.setattr(dispatcher_shell, "BuildServer", HangingServer)
    monkeypatch.setattr(dispatcher_shell, "build", build)
    shell = DispatcherShell(lambda _, owed: sent.put(owed), Submissions())  # type: ignore[arg-type]
    hang, other, waits, quick = (
        BuildJobGraph(target, EntryPoint(target=target, arguments=()), None, cause)
        for cause, target in enumerate(("hang", "other", "waits", "quick"))
    )
    try:
        shell.perform("dispatcher", [hang, other, waits], None)
        assert {started.get(timeout=TIMEOUT_S), started.get(timeout=TIMEOUT_S)} == {"hang", "other"}
        shell.perform("dispatcher", [other, quick], None)
        built = sent.get(timeout=TIMEOUT_S)
        assert (built.cause, type(built.body)) == (3, dispatcher.JobGraphBuilt)
        assert started.get(timeout=TIMEOUT_S) == "quick", "the program that waits never starts"
    finally:
        shell.close()
    assert sent.empty()


def test_topics_of_expired_jobs_are_deleted_until_it_succeeds(
    sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_shell, "_FIRST_PAUSE_S", 0.01)
    failures, deleted = [RuntimeError("Kafka is away")] * 2, list[Sequence[str]]()

    def delete(job_ids: Sequence[str], _closed: threading.Event) -> None:
        if failures:
            raise failures.pop()
        deleted.append(job_ids)

    shell = DispatcherShell(
        lambda _, owed: sent.put(owed),
        Submissions(),  # type: ignore[arg-type]
        delete_job_data=delete,
    )
    try:
        shell.perform("dispatcher", [DeleteJobTopics(("a", "b"), 7)], None)
        event = sent.get(timeout=TIMEOUT_S)
    finally:
        shell.close()
    assert (event.body, event.cause) == (dispatcher.JobsForgotten(job_ids=("a", "b")), 7)
    assert deleted == [("a", "b")]


def test_program_is_built_once_per_demand(
    sent: queue.Queue[OutgoingEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_shell, "build", lambda *_, **__: GRAPH)
    shell = DispatcherShell(lambda _, owed: sent.put(owed), Submissions())  # type: ignore[arg-type]
    demand = BuildJobGraph("j", EntryPoint(target="a:b", arguments=()), None, 3)
    try:
        for steps in (([demand], [demand]), ([], [demand])):
            for demanded in steps:
                shell.perform("dispatcher", demanded, None)
            assert isinstance(sent.get(timeout=TIMEOUT_S).body, dispatcher.JobGraphBuilt)
    finally:
        shell.close()
    assert sent.empty()
