"""The blob of a large JobGraph: TaskExecutors fetch it, and events name it by its SHA-256.

The log has a graph when it is submitted and when its job starts, and never again for a slot or a TaskExecutor. The
leader of the job stores the blob before it submits tasks. Every jobmanager has the graph in its states, so its
BlobServer can serve the blob also if its disk and the store have lost it.

The content is a JobGraphBuilt event with an empty header, in single-object encoding: each release can read what another
one wrote. Equal graphs have equal content.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from ...pipelines.graph.limits import MAX_INLINE_GRAPH_BYTES
from ...schemas.dispatcher import JobGraphBuilt
from ...schemas.event import Event
from ...schemas.types import Header, JobGraph
from ..log.codec import Codec, Undecodable
from .errors import BlobRefused
from .keys import BlobKey, compute_digest

T = TypeVar("T")
_HEADER: Final = Header(event_id="", time=0, sender="", sender_epoch=0, recipient="")


def encode(job_id: str, graph: JobGraph) -> bytes:
    """Returns the content of the blob."""
    return _codec().encode(Event(_HEADER, JobGraphBuilt(job_id=job_id, job_graph=_ordered(graph))))


def key_of(job_id: str, graph: JobGraph) -> BlobKey | None:
    """Returns the key of the graph's blob; None for a small graph, which events contain."""
    content = encode(job_id, graph)
    return BlobKey(compute_digest(content), job_id) if len(content) > MAX_INLINE_GRAPH_BYTES else None


def decode(content: bytes, source: str) -> JobGraph:
    """Returns the graph. Raises BlobRefused with `source` in it for content that is no graph."""
    try:
        body = _codec().decode(content).body
    except Undecodable as error:
        raise BlobRefused(f"{source} is not a job graph: {error}") from error
    if not isinstance(body, JobGraphBuilt):
        raise BlobRefused(f"{source} is not a job graph: it contains {body.AVRO_NAME}")
    return body.job_graph


@functools.lru_cache(4)
def read(path: Path) -> JobGraph:
    """Returns the graph in the file of a blob; the file's name is its digest. Raises BlobRefused, OSError."""
    return decode(path.read_bytes(), str(path))


def _ordered(graph: JobGraph) -> JobGraph:
    """Sorts the maps of a graph: equal maps may differ in their order."""
    vertices = tuple(
        vertex
        if vertex.resource_profile is None
        else replace(
            vertex,
            resource_profile=replace(
                vertex.resource_profile,
                extended_resources=_sorted(vertex.resource_profile.extended_resources),
            ),
        )
        for vertex in graph.vertices
    )
    return replace(graph, vertices=vertices, configuration=_sorted(graph.configuration))


def _sorted(values: Mapping[str, T]) -> dict[str, T]:
    return dict(sorted(values.items()))


@functools.cache
def _codec() -> Codec:
    return Codec("a blob")
