"""A cluster's log of any length, created once by the real roles and stored in the temporary directory.

Jobs of four subtasks per vertex come, run on three TaskExecutors, and end, two at a time. Of twenty, one is cancelled,
two have a task that fails and restarts, and four take a checkpoint; the others finish. The file has each event as in
the log, after its length.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tailrace.schemas import avro, dispatcher
from tailrace.schemas.catalog import EVENTS
from tailrace.schemas.event import Event
from tailrace.schemas.types import ExecutionState
from tailrace.services.log import Codec
from tailrace.services.snapshots.fingerprint import schema_fingerprint

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from services.simulated_cluster.cluster import Cluster, graph

PARALLELISM = 4
CLUSTER = "startup"
_VERSION = 2
"""One more whenever the same jobs are told otherwise."""
_BEGIN = 1_760_000_000_000_000
_LENGTH = struct.Struct("<I")
_CODEC = Codec("conversation.log")


def conversation(events: int) -> Path:
    """Returns the file of a log of so many events; creates it if it does not exist."""
    path = Path(tempfile.gettempdir()) / f"tailrace-conversation-{_VERSION}-{events}-{fingerprint()}.bin"
    if not path.exists():
        half = path.with_suffix(f".{id(path)}.part")
        with half.open("wb") as file:
            for number, event in enumerate(_generate(events)):
                if number == events:
                    break
                value = _CODEC.encode(event)
                file.write(_LENGTH.pack(len(value)) + value)
        half.replace(path)
    return path


def fingerprint() -> str:
    """Returns a hash of the code of the roles: another release has another log."""
    digest = hashlib.blake2b(schema_fingerprint().encode(), digest_size=8)
    for name in sorted(EVENTS):
        digest.update(avro.fingerprint(name))
    return digest.hexdigest()


def read(path: Path) -> Iterator[tuple[Event, int]]:
    """Yields the events, each with its size in bytes."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            (length,) = _LENGTH.unpack(head)
            yield _CODEC.decode(file.read(length)), length


def _generate(events: int) -> Iterator[Event]:
    cluster = Cluster(configuration={"state.checkpoints.dir": "/checkpoints"})
    # Times of this century take eight bytes, and are read otherwise than shorter ones.
    cluster.now = _BEGIN
    cluster.start_master()
    for number in range(3):
        cluster.start_task_executor(f"te-{number}", 3)
    cluster.settle()
    number = 0
    while cluster.replica.offset < events:
        for job in (f"job-{number:07}", f"job-{number + 1:07}"):
            cluster.submit(job, graph(PARALLELISM))
        cluster.settle()
        match number // 2 % 10:
            case 0:
                cluster.send("client/test", "dispatcher", dispatcher.CancelJob(job_id=f"job-{number:07}"))
            case 1 | 2:
                _fail_one(cluster)
            case 3 | 4:
                for job in (f"job-{number:07}", f"job-{number + 1:07}"):
                    _checkpoint(cluster, job)
            case _:
                pass
        cluster.settle()
        cluster.tick(2)
        cluster.finish_all()
        cluster.settle()
        cluster.tick(0.1)
        number += 2
        yield from [Event(record.header, record.body) for record in cluster.log]
        # The log takes much memory, and the cluster does not need it.
        cluster.log.clear()


def _fail_one(cluster: Cluster) -> None:
    for address, state in sorted(cluster.replica.states.items()):
        if address.startswith("task_executor/"):
            for attempt, task in sorted(state.tasks.items()):
                if task.state is ExecutionState.RUNNING:
                    cluster.report(address, attempt, ExecutionState.FAILED, "ValueError: not a number")
                    return


def _checkpoint(cluster: Cluster, job: str) -> None:
    body = dispatcher.TriggerCheckpoint(job_id=job)
    cluster.send("client/test", "dispatcher", body)
