"""Fetches the blobs that tasks need before the tasks are deployed.

Fetching takes time, and the host must not wait for it: it runs in threads, and the task counts as deployed meanwhile. A
task that is cancelled before its blobs have arrived is never deployed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from ...infra import threads
from ...pipelines.runtime.common.deployment import VertexDeployment
from ...schemas.types import JobGraph
from ..blobs import job_graph_blob
from ..blobs.errors import BlobError
from ..blobs.job_blobs import code_keys, file_keys, parse, with_code
from ..blobs.keys import BlobKey
from ..blobs.library_cache import BlobLibraryCacheManager


class BlobStager:
    """Thread-safe. Without a library cache, every deployment that needs a blob fails."""

    def __init__(
        self,
        manager: BlobLibraryCacheManager | None,
        deploy: Callable[[VertexDeployment], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`failed` is called with (execution attempt id, reason) if an attempt cannot be deployed."""
        self._manager = manager
        self._deploy = deploy
        self._failed = failed
        self._lock = threading.Lock()
        self._waiting: dict[str, str] = {}

    def waiting(self) -> frozenset[str]:
        """The attempts whose blobs are being fetched."""
        with self._lock:
            return frozenset(self._waiting)

    def deploy(
        self,
        job_id: str,
        execution_attempt_ids: Iterable[str],
        job_graph: JobGraph | str,
        create: Callable[[JobGraph], VertexDeployment],
    ) -> None:
        """Deploys tasks after all needed blobs have arrived; returns at once.

        `job_graph`: the graph, or the key of its blob. `create` returns the deployment of these attempts.
        """
        attempts = tuple(execution_attempt_ids)
        if isinstance(job_graph, JobGraph) and not _blobs_of(deployment := create(job_graph)):
            self._deploy(deployment)
            return
        with self._lock:
            for attempt in attempts:
                self._waiting[attempt] = job_id
        # The end of the process must not wait for a server that does not answer.
        fetching = threads.Thread(
            target=self._fetch, args=(job_id, attempts, job_graph, create), name="fetch blobs", daemon=True
        )
        fetching.start()

    def cancel(self, execution_attempt_id: str) -> None:
        """Cancels an attempt: if it is not deployed yet, it never will be."""
        with self._lock:
            self._waiting.pop(execution_attempt_id, None)

    def ended(self, job_id: str, execution_attempt_id: str) -> None:
        """Records that the attempt has ended and needs no blobs any more."""
        if self._manager is not None:
            self._manager.unregister_task(job_id, execution_attempt_id)

    def close(self) -> None:
        """Stops: attempts that are not deployed yet never will be."""
        with self._lock:
            self._waiting.clear()
        if self._manager is not None:
            self._manager.close()

    def _fetch(
        self,
        job_id: str,
        attempts: tuple[str, ...],
        job_graph: JobGraph | str,
        create: Callable[[JobGraph], VertexDeployment],
    ) -> None:
        try:
            if isinstance(job_graph, str):
                key = parse(job_graph, job_id)
                job_graph = job_graph_blob.read(self._files(job_id, attempts, [key])[key])
            ready = self._insert_blobs(create(job_graph))
        except Exception as error:
            # Nobody waits for the result of this thread: without a report, the job would wait for ever.
            known = isinstance(error, BlobError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            self._give_up(job_id, attempts, f"a blob of the task cannot be fetched: {reason}")
            return
        with self._lock:
            # Under the lock: a concurrent cancellation then finds the attempt deployed.
            left = tuple(
                subtask for subtask in ready.subtasks if self._waiting.pop(subtask.execution_attempt_id, None)
            )
            if left:
                self._deploy(replace(ready, subtasks=left))
        for subtask in ready.subtasks:
            if subtask not in left:
                self.ended(ready.job_id, subtask.execution_attempt_id)

    def _insert_blobs(self, deployment: VertexDeployment) -> VertexDeployment:
        texts = _blobs_of(deployment)
        if not texts:
            return deployment
        job_id, graph = deployment.job_id, deployment.job_graph
        keys = {text: parse(text, job_id) for text in texts}
        attempts = [subtask.execution_attempt_id for subtask in deployment.subtasks]
        found = self._files(job_id, attempts, keys.values())
        paths = {text: found[key] for text, key in keys.items()}
        return replace(
            deployment,
            job_graph=with_code(graph, deployment.vertex_id, paths),
            blobs={text: str(paths[text]) for text in file_keys(graph)},
        )

    def _files(self, job_id: str, attempts: Iterable[str], keys: Iterable[BlobKey]) -> Mapping[BlobKey, Path]:
        """Returns the files of blobs, which stay as long as these attempts. Raises BlobError."""
        if self._manager is None:
            raise BlobError("this TaskExecutor has no BlobCache")
        wanted, found = tuple(keys), dict[BlobKey, Path]()
        for attempt in attempts:
            found.update(self._manager.register_task(job_id, attempt, wanted))
        return found

    def _give_up(self, job_id: str, attempts: Iterable[str], reason: str) -> None:
        for attempt in attempts:
            with self._lock:
                wanted = self._waiting.pop(attempt, None) is not None
            self.ended(job_id, attempt)
            if wanted:
                self._failed(attempt, reason)


def _blobs_of(deployment: VertexDeployment) -> list[str]:
    """Returns the keys of the blobs that the tasks need besides the graph."""
    return [*file_keys(deployment.job_graph), *code_keys(deployment.job_graph, deployment.vertex_id)]
