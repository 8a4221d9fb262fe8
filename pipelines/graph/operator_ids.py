"""Operator ids: 16 bytes that stay the same while a program stays the same, so that a program finds the state of its
operators.

As in Flink: the id of an operator with a uid is derived from the uid alone. Any other id is derived from the operator's
position: the number of operators before it, breadth-first from the sources, once for itself and once more for each
operator chained to it, combined with the ids of its inputs. Names, functions and parallelism are not part of it, so
these may change.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping

from .errors import ProgramError
from .stream_graph import StreamEdge, StreamGraph, StreamNode

ID_BYTES = 16


def operator_ids(graph: StreamGraph, is_chained: Callable[[StreamEdge], bool]) -> Mapping[int, bytes]:
    """Returns node id -> operator id. Raises ProgramError if two operators get the same id."""
    ids: dict[int, bytes] = {}
    owners: dict[bytes, StreamNode] = {}
    waiting = deque(graph.sources())
    queued = {node.node_id for node in waiting}
    while waiting:
        node = waiting.popleft()
        if any(edge.source_id not in ids for edge in graph.in_edges(node.node_id)):
            queued.discard(node.node_id)  # its last input, when it has its id, queues it again
            continue
        operator_id = _id_of(node, graph, is_chained, ids)
        if operator_id in owners:
            raise _collision(owners[operator_id], node)
        ids[node.node_id] = operator_id
        owners[operator_id] = node
        for edge in graph.out_edges(node.node_id):
            if edge.target_id not in queued:
                queued.add(edge.target_id)
                waiting.append(graph.nodes[edge.target_id])
    return ids


def data_set_id(source: bytes, target: bytes, ordinal: int) -> str:
    """Returns the id of an operator's output to another, where `ordinal` earlier edges connect the same two."""
    return _digest(b"data set", source, target, ordinal.to_bytes(4, "little")).hex()


def _id_of(
    node: StreamNode, graph: StreamGraph, is_chained: Callable[[StreamEdge], bool], ids: Mapping[int, bytes]
) -> bytes:
    if node.uid is not None:
        return _digest(b"uid", node.uid.encode("utf-8"))
    position = len(ids).to_bytes(4, "little")
    chained = sum(is_chained(edge) for edge in graph.out_edges(node.node_id))
    own = bytearray(_digest(b"position", position * (1 + chained)))
    for edge in graph.in_edges(node.node_id):
        for i, byte in enumerate(ids[edge.source_id]):
            own[i] = (own[i] * 37 & 0xFF) ^ byte
    return bytes(own)


def _digest(*parts: bytes) -> bytes:
    hasher = hashlib.blake2b(digest_size=ID_BYTES)
    for part in parts:
        hasher.update(len(part).to_bytes(4, "little") + part)
    return hasher.digest()


def _collision(first: StreamNode, second: StreamNode) -> ProgramError:
    other = f"{first.name} at {first.location}"
    if first.uid is not None and first.uid == second.uid:
        reason = f"the uid {second.uid!r} is taken by {other}: each operator needs its own"
    else:
        reason = f"its id is also that of {other}: give one of them a uid"
    return ProgramError(reason, operator=second.name, location=second.location)
