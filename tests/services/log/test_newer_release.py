"""A record of a newer release stops an older one; garbage does not."""

from __future__ import annotations

import copy
import io
import threading
from typing import Any

import fastavro
import pytest
from graphs import job_graph, source
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace
from services.simulated_cluster.cluster import header

from tailrace.schemas import avro
from tailrace.schemas.client import JobRejected
from tailrace.schemas.dispatcher import JobReachedTerminalState, SubmitJob
from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import FeatureLevelRaised, LeaderElected, SchemasRegistered
from tailrace.schemas.types import Header, JobStatus, Origin, RegisteredSchema
from tailrace.services.core import leadership
from tailrace.services.core.feature_level import FEATURE_LEVEL, UnknownFeatureLevel
from tailrace.services.core.replica import Replica
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.log.codec import SINGLE_OBJECT
from tailrace.services.log.event_log import Unreadable, read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.newer_release import NewerRelease
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.task_executor import TaskExecutor

MASTER = Header(
    event_id="e", time=1, sender="job_master/j", sender_epoch=1, recipient="dispatcher", decided_at=1
)
ENDED = JobReachedTerminalState(job_id="j", status=JobStatus.FINISHED, reason=None, accumulators={})


def of_next_release(body: Any, said: Header) -> bytes:
    """Encodes the event with a schema that has one more field."""
    schema = copy.deepcopy(avro.standalone(body.AVRO_NAME))
    schema["fields"].append({"name": "more", "type": "string", "default": ""})
    out = io.BytesIO()
    out.write(SINGLE_OBJECT + avro.fingerprint_of(schema))
    datum = {"header": to_builtins(said), **to_builtins(body, builtin_types=(bytes,)), "more": ""}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def log_with(*values: bytes) -> MemoryEventLog:
    """Returns a log with a claim of epoch 1, then the records of a foreign writer."""
    log = MemoryEventLog()
    for role in ("dispatcher", "job_master/j", "task_executor/t"):
        claim = LeaderElected(role=role, epoch=1, address="a", session="other")
        log.append([Event(header(role, "*", epoch=1), claim)])
    log.append_values(values)
    return log


def master() -> Replica:
    return Replica([Dispatcher(), ResourceManager(), JobMaster()])


def read(log: MemoryEventLog, *, worker: bool = False, skipped: tuple[int, ...] = ()) -> list[Unreadable]:
    """Returns the records that a leader skips when it has read the log."""
    passed: list[Unreadable] = []
    own = "task_executor/t"
    log.skipped = frozenset(skipped)
    host = Host(
        log,
        Replica([TaskExecutor()], only=own.__eq__) if worker else master(),
        cluster="c",
        leads=(own,) if worker else ("dispatcher",),
        process_address="a",
        session="s",
        on_unreadable=passed.append,
        concerns=(own,) if worker else None,
    )
    stop = threading.Event()
    try:
        host.run(stop, {}, finished=lambda _: host.leading.is_set() and stop.set() is None)
    finally:
        host.close()
    return passed


@pytest.mark.parametrize(
    ("said", "worker"),
    [
        (MASTER, False),
        (replace(MASTER, sender="dispatcher", sender_epoch=7), False),
        (replace(MASTER, sender="task_executor/t"), True),
        (replace(MASTER, recipient="task_executor/t"), True),
        (replace(MASTER, sender="job_master/of-a-newer-release"), False),
    ],
)
def test_unreadable_event_of_service_stops_masters_and_task_executors(said: Header, worker: bool) -> None:
    log = log_with(of_next_release(ENDED, said))
    with pytest.raises(NewerRelease, match=rf"offset 3 .*{said.sender}|{said.sender} at offset 3") as stopped:
        read(log, worker=worker)
    assert "\n" not in str(stopped.value)
    assert [entry.offset for entry in read(log, worker=worker, skipped=(3,))] == [3]


@pytest.mark.parametrize("worker", [False, True])
def test_process_names_release_that_registered_unknown_schema(worker: bool) -> None:
    value = of_next_release(ENDED, replace(MASTER, recipient="task_executor/t"))
    schema = RegisteredSchema(name=ENDED.AVRO_NAME, fingerprint=value[2:10].hex(), definition="{}")
    log = log_with()
    # Under any epoch.
    log.append(
        [
            Event(
                header("task_executor/t-2", EVERYONE, epoch=4),
                SchemasRegistered(release="9.1.0", schemas=(schema,)),
            )
        ]
    )
    log.append_values([value])
    with pytest.raises(
        NewerRelease,
        match=r"offset 4 .*JobReachedTerminalState of 9\.1\.0\. Release 9\.1\.0 wrote it: install that release",
    ):
        read(log, worker=worker)


@pytest.mark.parametrize("worker", [False, True])
@pytest.mark.parametrize("level", [FEATURE_LEVEL + 1, 2**31 - 1])
def test_unknown_feature_level_stops_processes_until_its_record_is_skipped(level: int, worker: bool) -> None:
    log = log_with()
    log.append([Event(header("dispatcher", EVERYONE, epoch=1), FeatureLevelRaised(level=level))])
    with pytest.raises(UnknownFeatureLevel, match=r"since offset 3.*log\.skipped-offsets=3") as stopped:
        read(log, worker=worker)
    assert "\n" not in str(stopped.value)
    assert [entry.offset for entry in read(log, worker=worker, skipped=(3,))] == [3]


def test_level_raised_by_mistake_is_taken_back_by_skipping_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "FEATURE_LEVEL", FEATURE_LEVEL + 1)
    log = log_with()
    raised = FeatureLevelRaised(level=FEATURE_LEVEL + 1)
    log.append([Event(header("dispatcher", EVERYONE, epoch=1), raised)])
    accepted = JobRejected(job_id="j", reason="decided at the higher level")
    log.append([Event(header("dispatcher", "client/c", epoch=1), accepted)])

    def level() -> int:
        replica = master()
        for batch in read_to_end(log, 0):
            for record in batch:
                replica.apply(record)
        assert replica.offset == 4
        return replica.leadership.feature_level

    assert level() == FEATURE_LEVEL + 1
    log.skipped = frozenset({3})
    assert level() == FEATURE_LEVEL


def test_unreadable_admitted_request_stops_process() -> None:
    request = SubmitJob(job_id="j", job_graph=job_graph(source()), entry_point=None, parallelism=None)
    admitted = Header(event_id="e", time=1, sender="client/me", sender_epoch=0, recipient="dispatcher")
    assert [entry.offset for entry in read(log_with(of_next_release(request, admitted)))] == [3]
    admitted = replace(admitted, origin=Origin(topic="c.submissions", partition=0, offset=0))
    with pytest.raises(NewerRelease):
        read(log_with(of_next_release(request, admitted)))


@pytest.mark.parametrize(
    "value",
    [
        b"garbage",
        b"",
        SINGLE_OBJECT + bytes(8),
        SINGLE_OBJECT + b"\x07" * 60,
        b"\x00\x00\x00\x00\x05x",
        of_next_release(ENDED, replace(MASTER, sender_epoch=0)),
        of_next_release(ENDED, replace(MASTER, sender="client/me")),
        of_next_release(ENDED, replace(MASTER, sender="nobody/j")),
        of_next_release(ENDED, MASTER)[:20],
    ],
    ids=[
        "no Avro",
        "nothing",
        "no header",
        "sevens",
        "no registry",
        "an old epoch",
        "a client",
        "nobody",
        "torn",
    ],
)
def test_garbage_is_skipped(value: bytes) -> None:
    assert [entry.offset for entry in read(log_with(value))] == [3]


@given(st.binary(min_size=8, max_size=120))
def test_accidental_bytes_are_garbage(value: bytes) -> None:
    log = MemoryEventLog()
    log.append_values([SINGLE_OBJECT + value])
    assert [entry.offset for entry in read(log)] == [0]
