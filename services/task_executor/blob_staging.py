"""Fetches the blobs that tasks need before the tasks are deployed.

Fetching takes time, and the host must not wait for it: it runs in threads, and the task counts as deployed meanwhile. A
task that is cancelled before its blobs have arrived is never deployed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec.structs import replace

from ...infra import threads
from ...pipelines.runtime.common.deployment import VertexDeployment
from ..blobs.errors import BlobError
from ..blobs.job_blobs import code_keys, file_keys, parse, with_code
from ..blobs.library_cache import BlobLibraryCacheManager


class BlobStager:
    """Thread-safe. Without a library cache, every deployment that needs a blob fails."""

    def __init__(
        self,
        manager: BlobLibraryCacheManager | None,
        deploy: Callable[[VertexDeployment], None],
        failed: Callable[[str, str], None],
    ) -> None:
        """`failed` is called with (execution attempt id, reason) if an attempt can't be deployed."""
        self._manager = manager
        self._deploy = deploy
        self._failed = failed
        self._lock = threading.Lock()
        self._waiting: dict[str, str] = {}

    def waiting(self) -> frozenset[str]:
        """The attempts whose blobs are being fetched."""
        with self._lock:
            return frozenset(self._waiting)

    def deploy(self, deployment: VertexDeployment) -> None:
        """Deploys when all needed blobs are here; returns at once."""
        graph = deployment.job_graph
        files, code = file_keys(graph), code_keys(graph, deployment.vertex_id)
        if not files and not code:
            self._deploy(deployment)
            return
        with self._lock:
            for subtask in deployment.subtasks:
                self._waiting[subtask.execution_attempt_id] = deployment.job_id
        # Whoever ends the process does not wait for a server that does not answer.
        fetching = threads.Thread(
            target=self._fetch, args=(deployment, files, code), name="fetch blobs", daemon=True
        )
        fetching.start()

    def cancel(self, execution_attempt_id: str) -> None:
        """Cancels an attempt: if it is not deployed yet, it never will be."""
        with self._lock:
            self._waiting.pop(execution_attempt_id, None)

    def ended(self, job_id: str, execution_attempt_id: str) -> None:
        """The attempt has ended and needs no blobs any more."""
        if self._manager is not None:
            self._manager.unregister_task(job_id, execution_attempt_id)

    def close(self) -> None:
        """Attempts that are not deployed yet never will be."""
        with self._lock:
            self._waiting.clear()
        if self._manager is not None:
            self._manager.close()

    def _fetch(self, deployment: VertexDeployment, files: list[str], code: list[str]) -> None:
        try:
            ready = self._ready(deployment, files, code)
        except Exception as error:
            # Nobody asks for the outcome of this thread: what is not said here keeps the job waiting for ever.
            known = isinstance(error, BlobError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            self._give_up(deployment, f"what the task needs can't be fetched: {reason}")
            return
        with self._lock:
            # Under the lock: who cancels now finds it deployed.
            left = tuple(
                each for each in ready.subtasks if self._waiting.pop(each.execution_attempt_id, None)
            )
            if left:
                self._deploy(replace(ready, subtasks=left))
        for each in ready.subtasks:
            if each not in left:
                self.ended(ready.job_id, each.execution_attempt_id)

    def _ready(self, deployment: VertexDeployment, files: list[str], code: list[str]) -> VertexDeployment:
        if self._manager is None:
            raise BlobError("this TaskExecutor has no BlobCache")
        job_id = deployment.job_id
        keys = {text: parse(text, job_id) for text in (*files, *code)}
        found = {
            key: path
            for subtask in deployment.subtasks
            for key, path in self._manager.register_task(
                job_id, subtask.execution_attempt_id, keys.values()
            ).items()
        }
        paths = {text: found[key] for text, key in keys.items()}
        return replace(
            deployment,
            job_graph=with_code(deployment.job_graph, deployment.vertex_id, paths),
            blobs={text: str(paths[text]) for text in files},
        )

    def _give_up(self, deployment: VertexDeployment, reason: str) -> None:
        for subtask in deployment.subtasks:
            attempt = subtask.execution_attempt_id
            with self._lock:
                wanted = self._waiting.pop(attempt, None) is not None
            self.ended(deployment.job_id, attempt)
            if wanted:
                self._failed(attempt, reason)
