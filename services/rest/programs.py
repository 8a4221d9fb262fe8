"""Uploaded programs: stored, planned and run.

A program runs here only to build its graph, in a process of its own, as the Dispatcher runs programs
(pipelines/graph/program.py). The graph is then submitted with the files that it ships, as `tailrace run` submits it. So
the job has copies, and a program may be deleted while its jobs run.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...pipelines.checkpoint.compatibility import with_key_groups_at
from ...pipelines.graph.errors import ProgramError
from ...pipelines.graph.job_options import STATE_RECOVERY_PATH
from ...pipelines.graph.program import BuildRequest, build_request
from ...schemas.types import JobGraph, PythonFile
from ..blobs.keys import BlobKey, compute_file_digest
from ..client.client import new_job_id
from ..configuration.role_options import job_configuration
from ..history.execution_history import graph_before_start
from .endpoint import Answer, Parameters
from .errors import BadRequest, Conflict
from .flink import ids
from .flink.lookup import dispatcher
from .flink.operations import Empty
from .flink.plan import JobPlan, plan_of
from .live_replica import LiveReplica
from .principal import current_principal
from .program_requests import (
    PlanBody,
    ProgramFile,
    ProgramFiles,
    ProgramRequest,
    RunBody,
    RunResult,
    UploadResult,
    read_request,
)
from .program_store import ProgramStore, tenant_of, unknown_program
from .requests import Requests, digest_of_key
from .turns import Turns
from .uploads import UploadedFile

PARALLEL_BUILDS: Final = 2
WAITING_BUILDS: Final = 8
_MAX_INLINE_BYTES: Final = 1 << 20
"""A larger file becomes a blob of its job without being read into memory."""


class Programs:
    """The commands about programs; thread-safe. Arguments: parameters, body, Idempotency-Key or None."""

    def __init__(self, store: ProgramStore, requests: Requests, replica: LiveReplica, url: str) -> None:
        """`url`: the server's, as clients are told."""
        self._store = store
        self._requests = requests
        self._replica = replica
        self._url = url
        self._builds = Turns("plan or run programs", at_once=PARALLEL_BUILDS, waiting=WAITING_BUILDS)

    def upload(self, _parameters: Parameters, file: UploadedFile, _key: str | None) -> Answer:
        """POST /jars/upload: stores a program, a file .py, .zip or .whl; the same file twice is one program"""
        with tempfile.TemporaryDirectory(prefix="tailrace-upload-") as scratch:
            tenant = current_principal().grant.tenant
            program_id = self._store.put(file.name, file.content, Path(scratch), tenant)
        return Answer(UploadResult(f"{self._store.uri}/{program_id}", "success"), 200)

    def programs(self, _parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /jars: the uploaded programs of the principal's tenant, the newest first"""
        principal = current_principal()
        files = [
            ProgramFile(each.program_id, each.name, each.uploaded, ())
            for each in self._store.programs()
            if principal.sees_program(each.tenant)
        ]
        return Answer(ProgramFiles(self._url, files), 200)

    def delete(self, parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """DELETE /jars/:jarid: deletes a program; its jobs continue"""
        self._store.delete(_visible(parameters["jarid"]))
        return Answer(Empty(), 200)

    def plan(self, parameters: Parameters, body: PlanBody | None, _key: str | None) -> Answer:
        """GET or POST /jars/:jarid/plan: runs a program up to its first execute, and returns the plan of that job"""
        request = read_request(parameters, body or PlanBody())
        job_id = new_job_id("plan")
        with self._built(parameters["jarid"], request, job_id) as (graph, _):
            if request.flink_job_id is not None:
                job_id = request.flink_job_id
            return Answer(JobPlan(plan_of(job_id, graph.name, graph_before_start(graph))), 200)

    def run(self, parameters: Parameters, body: RunBody, key: str | None) -> Answer:
        """POST /jars/:jarid/run: runs a program up to its first execute, and submits that job"""
        request = read_request(parameters, body)
        wanted = request.flink_job_id
        if wanted is None and key is not None:
            wanted = digest_of_key(key)
        with self._replica.read() as moment:
            cluster = dispatcher(moment).configuration or {}
            known = None if wanted is None else ids.find_job_id(dispatcher(moment).jobs, wanted)
            offset = moment.offset
        if known is not None and wanted is not None:
            if key is None:
                raise Conflict(f"Job {wanted} was submitted already.")
            return Answer(RunResult(wanted, wanted), 200, offset)
        readable = re.sub(r"^[0-9a-f]{64}(@[^_]*)?_|\.[a-z]+$", "", parameters["jarid"])
        job_id = self._requests.new_job_id(readable)
        if wanted is not None:
            job_id = f"{job_id[:-32]}{wanted}"
        with self._built(parameters["jarid"], request, job_id) as (graph, blob):
            path = request.savepoint_path or STATE_RECOVERY_PATH.of(
                job_configuration(cluster, graph.configuration)
            )
            offset = self._requests.submit_job(
                with_key_groups_at(path, graph),
                job_id,
                blob=blob,
                savepoint_path=request.savepoint_path,
                allow_non_restored_state=request.allow_non_restored_state,
            )
        flink_id = ids.to_job_id(job_id)
        return Answer(RunResult(flink_id, flink_id), 200, offset)

    @contextmanager
    def _built(
        self, program_id: str, request: ProgramRequest, job_id: str
    ) -> Iterator[tuple[JobGraph, Path | None]]:
        """Yields the graph of a program, and the file that has to become a blob of the job; None if none has."""
        with tempfile.TemporaryDirectory(prefix="tailrace-program-") as made, self._builds.take():
            scratch = Path(made)
            file = self._store.fetch(_visible(program_id), scratch)
            shipped, is_blob = _ship(file, job_id)
            if request.entry_point is None and file.suffix != ".py":
                raise BadRequest(f"{file.name} names no function to run: set entryClass to module:function.")
            is_script = request.entry_point is None
            build = BuildRequest(
                target=request.entry_point,
                file=str(file) if is_script else None,
                arguments=request.arguments,
                parallelism=request.parallelism,
                configuration=request.configuration,
                python_files=() if is_script else (shipped,),
                blobs={shipped.blob: str(file)} if shipped.blob is not None and not is_script else {},
            )
            try:
                graph = build_request(build)
            except ProgramError as error:
                raise BadRequest(str(error).replace(f"{scratch}/", "")) from None
            yield graph, file if is_blob and not is_script else None


def _visible(program_id: str) -> str:
    """Raises NotFound for a program of another tenant, as for one that does not exist."""
    if not current_principal().sees_program(tenant_of(program_id)):
        raise unknown_program(program_id)
    return program_id


def _ship(file: Path, job_id: str) -> tuple[PythonFile, bool]:
    """Returns the shipped file of a program, and whether its content is a blob. A wheel is imported as a zip file."""
    path = f"{file.stem}.zip" if file.suffix == ".whl" else file.name
    if file.stat().st_size < _MAX_INLINE_BYTES:
        return PythonFile(path=path, content=file.read_bytes()), False
    digest, _ = compute_file_digest(str(file))
    return PythonFile(path=path, content=b"", blob=str(BlobKey(digest, job_id))), True
