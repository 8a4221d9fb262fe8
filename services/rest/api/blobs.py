"""The blobs of a job: GET /api/v1/jobs/:jobid/blobs, and the content of one of them.

The list comes from the states, so it has a moment. The content comes from the cluster's store or the leader's
BlobServer, and is verified by its SHA-256. It is code of users: here it is only copied.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, Response

from ....schemas.types import EntryPoint, JobGraph
from ...blobs.cache import BlobCache
from ...blobs.errors import BlobError, BlobNotFound
from ...blobs.garbage_collector import create_store
from ...blobs.keys import BlobKey
from ...blobs.shared_secret_auth import SharedSecret
from ...blobs.tls import client_tls
from ...client.blob_upload import address_of
from ...configuration import Configuration
from ...history.cluster_view import find_started_job
from ..endpoint import Endpoint, Parameter, Parameters
from ..errors import NotFound, Unavailable
from ..flink.endpoints import path_parameters
from ..flink.lookup import find_job
from ..moment import Moment
from ..turns import Turns
from .topics import Read

_MOST_FETCHES: Final = 2
"""A blob may have as many bytes as `blob.size.max`, and is copied to a temporary directory."""
_MOST_WAITING: Final = 4
_WAIT_S: Final = 20.0

Fetch = Callable[[BlobKey, str | None, Path], Path]
"""(blob, host:port of the leader's BlobServer, directory) -> a file in the directory. Raises BlobError, OSError."""


class BlobKind(StrEnum):
    """What a blob has."""

    FILE = "file"
    """A file that the job ships."""
    FUNCTION = "function"
    """The pickled functions of an operator."""
    GRAPH = "graph"
    """The graph of the job, for its TaskExecutors."""


class BlobEntry(msgspec.Struct, frozen=True, order=True):
    """A blob that a job names. `name`: the path of a file, or the operator. `digest`: its SHA-256."""

    kind: BlobKind
    name: str
    digest: str


class BlobList(msgspec.Struct, frozen=True):
    """/api/v1/jobs/:jobid/blobs"""

    blobs: Sequence[BlobEntry]


def blobs(moment: Moment, parameters: Parameters) -> BlobList:
    """GET /jobs/:jobid/blobs: the blobs that a job names: large files, large functions, and its graph"""
    job, view = find_job(moment, parameters)
    started = find_started_job(moment.fold.replica.states, view.job_id)
    found: set[BlobEntry] = set()
    for what in (job.graph, job.entry_point, None if started is None else started.graph):
        if what is not None:
            found |= set(_list(what))
    if started is not None and started.graph_blob is not None:
        found.add(BlobEntry(BlobKind.GRAPH, view.name, BlobKey.parse(started.graph_blob).digest))
    return BlobList(sorted(found))


def _list(what: JobGraph | EntryPoint) -> Iterator[BlobEntry]:
    for file in what.python_files:
        if file.blob is not None:
            yield BlobEntry(BlobKind.FILE, file.path, BlobKey.parse(file.blob).digest)
    for vertex in what.vertices if isinstance(what, JobGraph) else ():
        for operator in vertex.operators:
            if operator.code_blob is not None:
                digest = BlobKey.parse(operator.code_blob).digest
                yield BlobEntry(BlobKind.FUNCTION, operator.name, digest)


class BlobContents:
    """Serves the content of blobs. Thread-safe."""

    def __init__(self, read: Read, fetch: Fetch) -> None:
        self._read = read
        self._fetch = fetch
        self._turns = Turns("fetch blobs", at_once=_MOST_FETCHES, waiting=_MOST_WAITING, timeout_s=_WAIT_S)

    @classmethod
    def from_configuration(cls, configuration: Configuration, read: Read) -> BlobContents:
        """Returns those of the cluster."""

        def fetch(key: BlobKey, server: str | None, directory: Path) -> Path:
            cache = BlobCache(
                directory,
                lambda: server,
                create_store(configuration),
                retries=0,
                secret=SharedSecret.from_configuration(configuration),
                tls=client_tls(configuration),
            )
            return cache.file(key)

        return cls(read, fetch)

    async def open(self, parameters: Parameters, _last_event_id: str | None) -> Response:
        """GET /jobs/:jobid/blobs/:digest: the content of a blob that the job names"""
        directory = tempfile.TemporaryDirectory(prefix="tailrace-blob-")
        try:
            path = await run_in_threadpool(self._copy, parameters, Path(directory.name))
        except BaseException:
            directory.cleanup()
            raise
        return FileResponse(
            path,
            media_type="application/octet-stream",
            headers={"Cache-Control": "private, no-cache"},
            filename=parameters["digest"],
            background=BackgroundTask(directory.cleanup),
        )

    def _copy(self, parameters: Parameters, directory: Path) -> Path:
        digest = parameters["digest"]
        with self._read() as moment:
            _, view = find_job(moment, parameters)
            is_named = any(each.digest == digest for each in blobs(moment, parameters).blobs)
            server = address_of(moment.fold.replica.leadership)
        if not is_named:
            raise NotFound(f"Job {parameters['jobid']} names no blob {digest[:64]}.")
        try:
            with self._turns.take():
                return self._fetch(BlobKey(digest, view.job_id), server, directory)
        except BlobNotFound as error:
            raise NotFound(f"{error}.") from None
        except (BlobError, OSError) as error:
            raise Unavailable(f"The blob can't be fetched: {error}.", {"Retry-After": "5"}) from None


_LIST: Final = "/jobs/{jobid}/blobs"
_ONE: Final = f"{_LIST}/{{digest}}"
READS: Final = (Endpoint("GET", _LIST, path_parameters(_LIST), view=blobs, errors=(NotFound,)),)


def create_endpoint(contents: BlobContents) -> Endpoint:
    """Returns the endpoint of the content."""
    return Endpoint(
        "GET",
        _ONE,
        (*path_parameters(_LIST), Parameter("digest", str, "The SHA-256 of the blob.")),
        stream=contents.open,
        response=bytes,
        errors=(NotFound,),
    )
