"""A client uploads large files to the cluster's BlobServer before it submits a job, or ships them in the job."""

from __future__ import annotations

from pathlib import Path

from services.blobs.conftest import LARGEST, StartServer
from services.blobs.test_job_blobs import files
from services.simulated_cluster.cluster import header

from tailrace.schemas.event import EVERYONE, Event
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import EntryPoint
from tailrace.services.blobs.client import BlobClient
from tailrace.services.blobs.garbage_collector import create_server
from tailrace.services.blobs.keys import BlobKey
from tailrace.services.client.blob_upload import copy_blobs, find_server, upload
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import DISPATCHER, RESOURCE_MANAGER
from tailrace.services.log.memory import MemoryEventLog

CONFIGURATION = Configuration({"blob.offload.minsize": "1 kb"})


def elected(role: str, epoch: int, address: str | None) -> Event:
    endpoints = {} if address is None else {"blob": address}
    body = LeaderElected(role=role, epoch=epoch, address="host:1", session=str(epoch), endpoints=endpoints)
    return Event(header(sender=role, recipient=EVERYONE, epoch=epoch), body)


def program(*sizes: int) -> EntryPoint:
    return EntryPoint(target="a:b", arguments=(), python_files=files(*sizes))


def test_client_uploads_to_server_of_dispatcher_leader() -> None:
    log = MemoryEventLog()
    assert find_server(log) is None
    log.append([elected(RESOURCE_MANAGER, 9, "other:1"), elected(DISPATCHER, 1, "first:1")])
    assert find_server(log) == "first:1"
    log.append([elected(DISPATCHER, 3, "second:1"), elected(DISPATCHER, 2, "too late:1")])
    assert find_server(log) == "second:1"
    log.append([elected(DISPATCHER, 4, None)])
    assert find_server(log) is None


def test_large_files_are_uploaded_and_referenced(start: StartServer) -> None:
    server, log = start(), MemoryEventLog()
    log.append([elected(DISPATCHER, 1, server.address)])
    what = program(5000, 10)
    made, rest = upload(what, "job", CONFIGURATION, log)
    assert rest is None
    assert made.python_files[1] == what.python_files[1]
    with BlobClient(server.address) as client:
        key = BlobKey.parse(made.python_files[0].blob or "")
        assert key.job_id == "job"
        assert client.get_bytes(key) == what.python_files[0].content


def test_blobs_of_one_job_are_stored_for_another_that_does_not_exist_yet(start: StartServer) -> None:
    server, log = start(), MemoryEventLog()
    log.append([elected(DISPATCHER, 1, server.address)])
    with BlobClient(server.address) as client:
        key = client.put(b"code", "old")
        copy_blobs([str(key)], "new", CONFIGURATION, log)
        assert client.get_bytes(BlobKey(key.digest, "new")) == b"code"
    copy_blobs([], "new", CONFIGURATION, MemoryEventLog())


def test_small_files_need_no_server() -> None:
    log = MemoryEventLog()
    log.close()
    assert upload(program(10), "job", CONFIGURATION, log) == (program(10), None)


def test_files_are_shipped_in_job_with_reason_if_there_is_no_server(start: StartServer) -> None:
    log = MemoryEventLog()
    assert upload(program(5000), "job", CONFIGURATION, log) == (
        program(5000),
        "the cluster has no BlobServer",
    )
    server = start()
    server.close()
    log.append([elected(DISPATCHER, 1, server.address)])
    what, rest = upload(program(5000), "job", CONFIGURATION, log)
    assert what == program(5000)
    assert "can't be reached" in (rest or "")


def test_files_rejected_by_server_are_shipped_in_job_with_reason(start: StartServer) -> None:
    log = MemoryEventLog()
    log.append([elected(DISPATCHER, 1, start().address)])
    what, rest = upload(program(LARGEST + 1), "job", CONFIGURATION, log)
    assert what == program(LARGEST + 1)
    assert "blob.size.max" in (rest or "")


def test_server_with_secret_accepts_uploads_of_clients_that_know_it(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct horse battery staple\n")
    knowing = CONFIGURATION.replace({"home": str(tmp_path), "blob.secret-file": str(tmp_path / "secret")})
    log = MemoryEventLog()
    with create_server(knowing) as server:
        log.append([elected(DISPATCHER, 1, server.address)])
        made, rest = upload(program(5000), "job", knowing, log)
        assert (made.python_files[0].content, rest) == (b"", None)
        made, rest = upload(program(5000), "job", CONFIGURATION, log)
    assert made == program(5000)
    assert "set blob.secret-file" in (rest or "")
