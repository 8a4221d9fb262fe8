"""Limits the part of a job's graph that events contain.

The log contains a graph at the submission and at the start of the job. So the leader moves large parts to blobs if the
client has not done so; the rest is limited. TaskExecutors get a graph that is still large as a blob, too
(services/blobs/job_graph_blob.py).
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ...infra.logging_setup import logger
from ...schemas import dispatcher
from ...schemas.body import Body
from ...schemas.ids import is_id
from ...schemas.types import JobGraph
from ..blobs.errors import BlobError
from ..blobs.job_blobs import offload
from ..blobs.tiered_store import TieredBlobStore
from ..configuration.options.blob import BLOB_INLINE_SIZE_MAX

_log = logger(__name__)


class GraphTooLarge(ValueError):
    """A graph exceeds the limit. The text gives its size, the limit, and a remedy."""


class InlineLimit:
    """Moves large parts of graphs to blobs, and rejects graphs that are still too large. Thread-safe.

    `minsize`: parts of at least this size (bytes) always become blobs. `most`: maximum size of the remaining graph
    (bytes).
    """

    def __init__(self, blobs: TieredBlobStore | None, minsize: int, most: int) -> None:
        self._blobs = blobs
        self._minsize = minsize
        self._most = most

    def apply_to_submission(self, request: Body) -> Body:
        """Returns the request as it is admitted to the log. Raises GraphTooLarge."""
        if not isinstance(request, dispatcher.SubmitJob) or request.job_graph is None:
            return request
        graph = self.move_to_blobs(request.job_graph, request.job_id)
        return request if graph is request.job_graph else replace(request, job_graph=graph)

    def move_to_blobs(self, graph: JobGraph, job_id: str) -> JobGraph:
        """Returns the graph as events contain it. Raises GraphTooLarge."""
        why = ""
        if self._blobs is not None and is_id(job_id):
            blobs = self._blobs
            try:
                graph = offload(graph, self._minsize, lambda content: blobs.put(content, job_id))
            except BlobError as error:
                _log.warning(
                    "cannot store the large parts of a graph as blobs: they stay in the graph",
                    job=job_id,
                    error=str(error),
                )
                why = f"; its functions and files cannot be stored as blobs: {error}"
        size = len(msgspec.msgpack.encode(graph))
        if size > self._most:
            raise GraphTooLarge(
                f"the job's graph has {size:,} bytes besides its blobs, but {BLOB_INLINE_SIZE_MAX.key} allows "
                f"{self._most:,}, since every process keeps it in its states{why}: have its functions load what "
                "they need instead of carrying it with them, or raise the option"
            )
        return graph
