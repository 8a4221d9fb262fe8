"""The information that a leader publishes under `/leader/...` in ZooKeeper, for leader retrieval.

It is a hint for connecting only: the log records who leads, and since when.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LeaderInformation(msgspec.Struct, frozen=True):
    """`address` is for messages (host:pid), `session_id` identifies the leader's process (LeaderElected.session),
    `endpoints` are the servers of the process: name -> host:port, such as blob. Stored as a JSON object in
    ZooKeeper."""

    address: str
    session_id: str
    epoch: int = 0
    endpoints: Mapping[str, str] = {}


def encode(information: LeaderInformation) -> bytes:
    """Returns the content of a leader's node."""
    return msgspec.json.encode(information)


def decode(content: bytes) -> LeaderInformation | None:
    """Decodes the content of a leader's node; returns None for anything else, such as a node of another system."""
    try:
        return msgspec.json.decode(content, type=LeaderInformation)
    except msgspec.DecodeError:
        return None
