"""The two programs of an upgrade: the new one, built here, and the old one, which the log and the BlobServer have.

The new program is built with a fixed seed of hashes. So two builds of the same program are equal, and a repeated
command sees that a job runs it already.
"""

from __future__ import annotations

import hashlib
from typing import Final

from msgspec.structs import replace

from .....pipelines.graph.build_server import BuildServer
from .....pipelines.graph.program import BuildRequest, build_request
from .....schemas.job_master import StartJob
from .....schemas.types import JobGraph
from ....blobs import job_graph_blob
from ....blobs.keys import BlobKey, compute_digest
from ....configuration import Configuration
from ....core.role import JOB_MASTER, address
from ....dispatcher.state import Job
from ....history.log_source import open_log_source
from ....log import LogUnavailable

_SEED: Final = {"PYTHONHASHSEED": "0"}


def build_new_program(request: BuildRequest) -> JobGraph:
    """Returns the graph of the program's first job. Raises ProgramError."""
    server = BuildServer(_SEED)
    try:
        return build_request(request, server=server)
    finally:
        server.close()


def read_program(configuration: Configuration, job: Job) -> JobGraph:
    """Returns the graph that a job started with, from the log. Raises LogUnavailable, LogTruncated."""
    master = address(JOB_MASTER, job.job_id)
    with open_log_source(configuration) as source:
        end = source.log.end()
        tail = source.log.tail(job.submission, concerns=lambda _, recipient: recipient == master)
        try:
            while tail.position < end:
                for record in tail.poll(1.0):
                    if isinstance(record.body, StartJob) and record.body.job_id == job.job_id:
                        return record.body.job_graph
        finally:
            tail.close()
    raise LogUnavailable(f"the log does not have the program of job {job.job_id}: it has not started")


def is_same_program(one: JobGraph, other: JobGraph) -> bool:
    """Whether two graphs are of the same program. The key groups that a savepoint has determined do not count."""
    return _digest(one) == _digest(other)


def _digest(graph: JobGraph) -> str:
    vertices = tuple(
        replace(
            vertex,
            max_parallelism=vertex.max_parallelism if vertex.is_max_parallelism_configured else 1,
            operators=tuple(
                replace(each, code=_content(each.code, each.code_blob), code_blob=None)
                for each in vertex.operators
            ),
        )
        for vertex in graph.vertices
    )
    files = tuple(
        replace(file, content=_content(file.content, file.blob), blob=None) for file in graph.python_files
    )
    plain = replace(graph, vertices=vertices, python_files=files)
    return hashlib.sha256(job_graph_blob.encode("", plain)).hexdigest()


def _content(content: bytes, blob: str | None) -> bytes:
    digest = compute_digest(content) if blob is None else BlobKey.parse(blob).digest
    return digest.encode()
