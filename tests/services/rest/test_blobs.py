"""Blobs over REST: those that a job names, and their verified content."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from tailrace.schemas.types import EntryPoint, PythonFile
from tailrace.services.blobs.garbage_collector import store_uri
from tailrace.services.blobs.keys import BlobKey, compute_digest
from tailrace.services.blobs.store import FileSystemBlobStore
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.history import HistoryProjection
from tailrace.services.rest.api import blobs
from tailrace.services.rest.api.blobs import BlobContents
from tailrace.services.rest.application import create_application
from tailrace.services.rest.moment import Moment

from .test_application import jobs_of_log, records

CONTENT = b"no pickle: \x80\x04. " * 100_000
DIGEST = compute_digest(CONTENT)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[TestClient]:
    """Yields a client of a server whose job names two blobs, of which the store has one."""
    (job_id,) = jobs_of_log()
    fold = HistoryProjection()
    for record in records():
        fold.apply(record)
    state = fold.replica.states[DISPATCHER]
    assert isinstance(state, DispatcherState)
    job = state.jobs[job_id]
    files = tuple(
        PythonFile(path=f"{digest[:4]}.zip", content=b"", blob=str(BlobKey(digest, job_id)))
        for digest in (DIGEST, "0" * 64)
    )
    job = replace(job, entry_point=EntryPoint(target="a:b", arguments=(), python_files=files))
    fold.replica.states[DISPATCHER] = replace(state, jobs=state.jobs.set(job_id, job))
    configuration = Configuration(
        {"high-availability.type": "zookeeper", "high-availability.storageDir": str(tmp_path / "ha")}
    )
    stored = tmp_path / "content"
    stored.write_bytes(CONTENT)
    FileSystemBlobStore(store_uri(configuration)).put(BlobKey(DIGEST, job_id), stored)

    @contextmanager
    def read(*_: object) -> Iterator[Moment]:
        yield Moment(fold, 0)

    contents = BlobContents.from_configuration(configuration, read)
    own = [*blobs.READS, blobs.create_endpoint(contents)]
    with TestClient(create_application(read, [], own), raise_server_exceptions=False) as client:
        yield client


def test_blob_that_job_names_is_listed_and_read(rest: TestClient) -> None:
    path = f"/api/v1/jobs/{jobs_of_log()[0]}/blobs"
    listed = rest.get(path).json()["blobs"]
    assert {each["digest"]: (each["kind"], each["name"]) for each in listed} == {
        DIGEST: ("file", f"{DIGEST[:4]}.zip"),
        "0" * 64: ("file", "0000.zip"),
    }
    answer = rest.get(f"{path}/{DIGEST}")
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{DIGEST}"'


def test_damaged_missing_or_other_blob_is_not_read(rest: TestClient, tmp_path: Path) -> None:
    path = f"/api/v1/jobs/{jobs_of_log()[0]}/blobs"
    assert rest.get(f"{path}/{'1' * 64}").status_code == 404
    assert rest.get(f"{path}/..%2F..%2Fcontent").status_code == 404
    assert rest.get(f"/api/v1/jobs/{'0' * 32}/blobs/{DIGEST}").status_code == 404
    missing = rest.get(f"{path}/{'0' * 64}")
    assert (missing.status_code, missing.headers["Retry-After"]) == (503, "5")
    (stored,) = (tmp_path / "ha").rglob("blob_p-*")
    stored.write_bytes(CONTENT[:-1] + b"x")
    damaged = rest.get(f"{path}/{DIGEST}")
    assert damaged.status_code == 503
    assert "can't be fetched" in damaged.json()["errors"][0]
